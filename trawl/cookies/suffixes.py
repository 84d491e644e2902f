"""Which domains belong to nobody in particular: the Public Suffix List, from the copy that tldextract brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tldextract import TLDExtract

__all__ = ["PublicSuffixes"]


class PublicSuffixes:
    """Asks the list, which is read when first asked; the network is never touched."""

    __slots__ = ("_extract",)

    def __init__(self) -> None:
        self._extract: TLDExtract | None = None

    def __call__(self, domain: str) -> bool:
        """Whether names right below ``domain`` belong to different parties, as with ``com`` and ``github.io``."""
        if "." not in domain:
            return True
        if self._extract is None:
            from tldextract import TLDExtract  # noqa: PLC0415 - takes 0.1 s, and few crawls get here

            self._extract = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)
        return self._extract.extract_str(domain).suffix == domain
