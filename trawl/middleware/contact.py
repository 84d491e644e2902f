"""The default ``User-Agent`` with the user's contact, and the advice to set a contact."""

from __future__ import annotations

import logging
import re
from collections.abc import Coroutine
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trawl.address_guard import is_loopback
from trawl.errors import SettingsError
from trawl.http import Outcome, Request, host_of
from trawl.transport import OnSent, Transport

__all__ = ["AdvisingTransport", "check_contact", "product"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

# Spaces, parentheses and backslashes are special in a comment of User-Agent (RFC 9110, section 5.6.5).
_CONTACT = re.compile(
    r"https?://[^\s()\\/?#@]+([/?#][^\s()\\]*)?|(mailto:)?[^\s()\\@:/]+@[^\s()\\@:/?#]+\.[^\s()\\@:/?#]+", re.IGNORECASE
)
_MAX_CONTACT = 500  # characters


@cache  # reads a file
def product() -> str:
    """Return trawl's name and version, the default ``User-Agent`` without a contact (RFC 9110, section 10.1.5)."""
    try:
        number = version("trawl-crawler")
    except PackageNotFoundError:  # trawl runs from a checkout and is not installed
        number = "0"
    return f"trawl/{number}"


def check_contact(contact: str) -> None:
    """Check that ``CONTACT`` is a URL or an e-mail address, and has no characters that a header can't contain.

    Raises:
        SettingsError: If ``contact`` is not valid.
    """
    is_sent = contact.isascii() and contact.isprintable() and len(contact) <= _MAX_CONTACT
    if not is_sent or _CONTACT.fullmatch(contact) is None:
        raise SettingsError(
            "CONTACT must be a URL such as https://your.site/crawler, or an e-mail address, in ASCII without blanks, "
            f"parentheses and backslashes, not {contact[:_MAX_CONTACT]!r}",
            "CONTACT",
        )


class AdvisingTransport:
    """A transport that suggests ``CONTACT`` once, when a request without a contact is sent to another machine.

    Args:
        transport: The transport that sends the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._is_given = False

    # This method is not async, because it runs for each page, and another coroutine would cost time.
    def send(self, request: Request, on_sent: OnSent) -> Coroutine[Any, Any, Outcome]:
        """Send ``request``. Always a checkpoint."""
        if not self._is_given and request.headers.get("User-Agent") == product():
            host = host_of(request.url)
            if not is_loopback(host):
                self._is_given = True
                logger.info(
                    "%s gets requests with the name %r, which does not identify you: set CONTACT to a URL or e-mail "
                    "address where site owners can reach you",
                    host, product(),
                )  # fmt: skip
        return self._transport.send(request, on_sent)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()
