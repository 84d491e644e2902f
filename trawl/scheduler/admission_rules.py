"""The rules of admission that need only the request itself.

Only the package's ``__init__`` imports it, because lanes and queues do not need it.

A request that is not admitted ends with a reason that is counted, and not with an error. The frontier finds duplicates,
because it stores what was seen.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable

from trawl.address_guard import AddressGuard
from trawl.http import FETCHED_SCHEMES, Request, host_of, is_in_domains, normalize_domain
from trawl.http.notes import note, notes_of
from trawl.scheduler.settings import SchedulerSettings

__all__ = ["AdmissionRules"]

logger: logging.Logger = logging.getLogger("trawl.admission")


_FETCHED = tuple([f"{scheme}:" for scheme in FETCHED_SCHEMES])

HOSTS_REMEMBERED = 10_000
"""Maximum number of hosts whose result is kept, because a crawl of the open web sees more hosts than fit in memory."""


class AdmissionRules:
    """The rules by which a crawl admits requests.

    Args:
        settings: Limits on depth and length.
        allowed_domains: Only these domains and their subdomains are admitted; empty: all.
        guard: The rules for addresses; None: all addresses are allowed.

    Raises:
        ValueError: If an allowed domain is a URL or has a port.
    """

    __slots__ = (
        "_allowed",
        "_guard",
        "_hosts",
        "_listed",
        "_listed_count",
        "_max_depth",
        "_max_length",
        "_starts_anywhere",
    )

    def __init__(
        self, settings: SchedulerSettings, allowed_domains: Iterable[str] = (), guard: AddressGuard | None = None
    ) -> None:
        if isinstance(allowed_domains, str):
            raise ValueError(f"allowed_domains must be a list of domains, not one text; use [{allowed_domains!r}]")
        if not isinstance(allowed_domains or (), Iterable):
            raise ValueError(f"allowed_domains must be a list of domains, not {allowed_domains!r}")
        # Read a list or set again if the spider adds to it during the crawl.
        self._listed: Collection[str] = allowed_domains if isinstance(allowed_domains, list | set) else ()
        self._listed_count = len(self._listed)
        self._allowed = frozenset([_domain(name) for name in allowed_domains or () if name])
        self._hosts: dict[str, bool] = {}
        self._max_depth = settings.depth_limit or math.inf
        self._max_length = settings.urllength_limit or math.inf
        self._starts_anywhere = settings.filter_start_urls  # as in Scrapy, which filters offsite requests of start()
        self._guard = guard

    def refusal(self, request: Request, *, depth: int) -> str | None:
        """Return the name of the statistic that counts a request dropped at ``depth``; None if it is admitted."""
        url = request.url
        if not url.startswith(_FETCHED):
            return "scheme_filtered"
        if len(url) > self._max_length:
            return "urllength_filtered"
        if depth > self._max_depth:
            return "depth_filtered"
        if (self._allowed or self._listed) and self.is_offsite(request):
            return "offsite_filtered"
        if self._guard is not None and self._guard.refuses_url(url):
            return "private_addresses_refused"
        return None

    def note_start(self, request: Request) -> bool:
        """Record a start request. Returns True if start requests have shown that private addresses are wanted."""
        return self._guard is not None and self._guard.note_start(request.url)

    def note_vouched(self, request: Request, *, is_shared: bool) -> None:
        """Record in a request that is about to be stored which addresses start requests have allowed.

        The statistics of a job also record that all private addresses are wanted. The next run reads them at its start,
        but another process at the same time does not (``is_shared``).
        """
        guard = self._guard
        if guard is not None and (is_shared or not guard.is_open) and (vouched := guard.vouched(request.url)):
            note(request, vouched=vouched)

    def hear_vouched(self, request: Request) -> None:
        """Restore the addresses that start requests had allowed when a stored request was found."""
        if self._guard is not None and (vouched := notes_of(request).vouched):
            self._guard.take_over(request.url, vouched)

    def open_addresses(self) -> None:
        """Admit private addresses, because start requests of an earlier run have shown that they are wanted."""
        if self._guard is not None:
            self._guard.open()

    def is_offsite(self, request: Request) -> bool:
        """Return True if the request's host is outside the allowed domains, and neither it nor a setting exempts it."""
        if not self.is_outside(host_of(request.url)) or request.dont_filter:
            return False
        return not (
            request.meta_get("allow_offsite") or (self._starts_anywhere and request.meta_get("is_start_request"))
        )

    def is_outside(self, host: str) -> bool:
        """Return True if a host in normal form is outside the allowed domains."""
        if len(self._listed) != self._listed_count:
            self._read_again()
        if not self._allowed:
            return False
        offsite = self._hosts.get(host)
        if offsite is None:
            if len(self._hosts) >= HOSTS_REMEMBERED:
                self._hosts.clear()
            offsite = self._hosts[host] = not is_in_domains(host, self._allowed)
        return offsite

    def _read_again(self) -> None:
        self._listed_count = len(self._listed)
        self._hosts.clear()
        allowed = []
        for name in filter(None, self._listed):
            try:
                allowed.append(_domain(name))
            except ValueError as error:
                logger.warning("%s: it has no effect", error)
        self._allowed = frozenset(allowed)


def _domain(name: str) -> str:
    try:
        return normalize_domain(name)
    except ValueError as error:
        raise ValueError(f"allowed_domains must hold domains such as 'example.com', not {name!r}") from error
