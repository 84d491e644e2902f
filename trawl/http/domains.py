"""Domains in settings and attributes: their normal form, and the hosts in them."""

from __future__ import annotations

from collections.abc import Collection

from trawl.http.url import host_of, normalize_url

__all__ = ["is_in_domains", "normalize_domain"]


def normalize_domain(name: str) -> str:
    """Return a domain in the form of hosts in a normalized URL. A dot in front of it has no meaning.

    Raises:
        ValueError: If ``name`` is a URL, has a port or is no host name.
    """
    plain = name.strip().strip(".")
    if "/" in plain or (":" in plain and not plain.startswith("[")):
        raise ValueError(f"not a domain: {name!r}")
    return host_of(normalize_url(f"http://{plain}/"))


def is_in_domains(host: str, domains: Collection[str]) -> bool:
    """Return True if a host is one of the ``domains``, or a subdomain of one.

    Args:
        host: The host of a normalized URL.
        domains: Domains in normal form. A set is faster.
    """
    host = host.removesuffix(".")
    while host not in domains:
        _, dot, host = host.partition(".")
        if not dot:
            return False
    return True
