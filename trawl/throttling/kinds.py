"""From settings to kinds: what each scope id is configured to.

Looked up by ``host:port``, then by ``host`` (E19); an id without an entry gets the defaults of its form (I10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trawl.throttling.autothrottle import AutoThrottle
from trawl.throttling.backoff import backoff_of
from trawl.throttling.configuration import check_scope, load_object
from trawl.throttling.limits import limits_of
from trawl.throttling.manager import ThrottlingScopeManager
from trawl.throttling.policy import Kind
from trawl.throttling.rampup import rampup_of
from trawl.throttling.said import Failed, nobody
from trawl.throttling.scope import CONFIGURED
from trawl.throttling.scopes import host_part, is_address, is_host_like, normal_id
from trawl.throttling.settings import ThrottlingSettings

__all__ = ["Kinds"]

_OWN_HOSTS = 10_000  # names without a dot that are remembered as hosts: intranets have few


class Kinds:
    """The kinds of all scopes of one crawl.

    Args:
        settings: What is configured.
        failed: Told when a user's strategy or scope manager fails.

    Raises:
        SettingsError: A scope's custom strategy can't be made.
    """

    def __init__(self, settings: ThrottlingSettings, failed: Failed = nobody) -> None:
        self.settings = settings
        self._failed = failed
        per_ip = settings.concurrent_requests_per_ip
        self._ip_settings = msgspec.structs.replace(settings, concurrent_requests_per_domain=per_ip) if per_ip else None
        self._configs: dict[str, tuple[str, Mapping[str, Any]]] = {
            normal_id(key): (key, config) for key, config in settings.throttling_scopes.items()
        }
        self._own_hosts: dict[str, None] = {}
        self._known: dict[tuple[str, bool, bool], Kind] = {}
        for id in self._configs:
            self.of(id)

    def of(self, id: str) -> Kind:
        """The kind of a scope with a normalised id; the same object for scopes that are configured alike."""
        is_host, is_ip = self._form(id)
        key, config = self._configs.get(id) or (is_host and self._configs.get(host_part(id))) or ("", {})
        known = self._known.get((key, is_host, is_ip))
        if known is None:
            known = self._known[key, is_host, is_ip] = self._made(key, config, is_host=is_host, is_ip=is_ip)
        return known

    def is_host(self, id: str) -> bool:
        """Whether a scope is host-like: by its form, or because it was a request's own host (E20)."""
        return is_host_like(id) or id in self._own_hosts

    def own_host(self, id: str) -> None:
        """Note that ``id`` is the host of a request."""
        if id not in self._own_hosts:
            self._own_hosts[id] = None
            if len(self._own_hosts) > _OWN_HOSTS:
                del self._own_hosts[next(iter(self._own_hosts))]

    def changed(self, id: str, changes: Mapping[str, Any]) -> Kind:
        """The kind of a scope whose configuration is to be changed (I12); nothing is changed before :meth:`keep`.

        Raises:
            SettingsError: A key is unknown or a value does not fit.
        """
        config = dict(self.of(id).config)
        if "delay" in changes:
            config.pop("rate", None)
        if "rate" in changes:
            config.pop("delay", None)
            config.pop("delay_per_slot", None)
        checked = check_scope({**config, **changes}, f"THROTTLING_SCOPES[{id!r}]")
        is_host, is_ip = self._form(id)
        return self._made(id, checked, is_host=is_host, is_ip=is_ip)

    def keep(self, id: str, kind: Kind) -> None:
        """Put a kind of :meth:`changed` in the place of the scope's, also for when it is made anew."""
        for known in [known for known in self._known if known[0] == id]:
            del self._known[known]
        self._configs[id] = (id, kind.config)
        self._known[id, *self._form(id)] = kind

    def _form(self, id: str) -> tuple[bool, bool]:
        """Whether a scope is host-like, and whether it is an address that hosts are charged to (I05)."""
        is_host = self.is_host(id)
        return is_host, self._ip_settings is not None and is_host and is_address(id)

    def configured(self) -> list[tuple[str, Kind]]:
        """The scopes that have a configuration of their own."""
        return [(id, self.of(id)) for id in self._configs]

    def _made(self, key: str, config: Mapping[str, Any], *, is_host: bool, is_ip: bool) -> Kind:
        settings = self._ip_settings if is_ip and self._ip_settings is not None else self.settings
        path = f"THROTTLING_SCOPES[{key!r}]"
        backoff = backoff_of(config.get("backoff", {}), settings, f"{path}['backoff']", failed=self._failed)
        follows_latency = settings.autothrottle_enabled and is_host and "delay" not in config and "rate" not in config
        cls = load_object(config.get("manager") or settings.throttling_scope_manager, f"{path}['manager']")
        return Kind(
            config=config,
            limits=limits_of(config, settings, is_host=is_host),
            backoff=backoff,
            rampup=rampup_of(config.get("rampup", False), settings, window=backoff.window, max_delay=backoff.max_delay),
            autothrottle=_autothrottle(settings) if follows_latency else None,
            give_up_after=settings.backoff_give_up_after,
            source=path if key else CONFIGURED,
            manager=None if cls is ThrottlingScopeManager else cls,
            failed=self._failed,
        )


def _autothrottle(settings: ThrottlingSettings) -> AutoThrottle:
    return AutoThrottle(
        start_delay=settings.autothrottle_start_delay,
        min_delay=settings.download_delay,
        max_delay=settings.autothrottle_max_delay,
        target_concurrency=settings.autothrottle_target_concurrency,
    )
