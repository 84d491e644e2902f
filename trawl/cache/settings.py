"""What a user may set about the cache."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["CacheSettings"]


class CacheSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Responses kept on disk, and answered from there."""

    httpcache_enabled: Annotated[
        bool, Meta(description="Keep responses on disk, and answer requests from there where HTTPCACHE_POLICY says so.")
    ] = False
    httpcache_policy: Annotated[
        str,
        Meta(
            description="`always`: whatever was answered once is answered so for ever, for as long as a spider is"
            " being written. `rfc9111`: as a browser does it, with ages and revalidation (needs the extra `cache`)."
            " The paths of Scrapy's `DummyPolicy` and `RFC2616Policy` mean the same."
        ),
    ] = "always"
    httpcache_dir: Annotated[
        str, Meta(description="The folder of the cache: a file for each spider, below the working directory.")
    ] = ".trawl/httpcache"
    httpcache_expiration_secs: Annotated[
        float, Meta(ge=0, title="s", description="What is older is asked for again; 0: nothing is too old.")
    ] = 0.0
    httpcache_ignore_http_codes: Annotated[
        tuple[int, ...],
        Meta(description="Statuses that are not kept. What is sent again (RETRY_HTTP_CODES) is never kept."),
    ] = ()
    httpcache_ignore_schemes: Annotated[tuple[str, ...], Meta(description="Schemes whose responses are not kept.")] = ()
    httpcache_ignore_missing: Annotated[
        bool, Meta(description="Send nothing: a request that the cache does not answer is dropped.")
    ] = False
    httpcache_gzip: Annotated[bool, Meta(description="Compress bodies on disk.")] = False
    httpcache_always_store: Annotated[
        bool, Meta(description="With `rfc9111`: keep whatever does not say `no-store`, to have it for revalidation.")
    ] = False
    httpcache_ignore_response_cache_controls: Annotated[
        tuple[str, ...],
        Meta(description="With `rfc9111`: directives of `Cache-Control` that are not obeyed, `no-store` say."),
    ] = ()
