"""Values that were given as text: in the environment and with ``-s``.

A text is read as JSON where it can be. Where the JSON value does not fit the setting, the text itself may
(``USER_AGENT=5``), for truths ``1`` and ``0``, as with Scrapy's ``-s``, and for lists the parts between commas
(``RETRY_HTTP_CODES=500,502``).
"""

from __future__ import annotations

from typing import Any, get_origin

import msgspec

from trawl.errors import SettingsError
from trawl.settings.check import checked
from trawl.settings.wording import members_of, without_meta

__all__ = ["from_json", "from_text"]

_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def from_text(text: str, annotation: Any, path: str) -> Any:
    """The value of ``annotation`` that ``text`` means.

    Raises:
        SettingsError: No reading of it fits; the sentence is that of the JSON reading.
    """
    readings = [from_json(text), text]
    inner = [without_meta(member)[0] for member in members_of(annotation)]
    if bool in inner and text.lower() in _TRUTHS:
        readings.append(_TRUTHS[text.lower()])
    if any(get_origin(member) in (list, tuple, set, frozenset) for member in inner):
        readings.append([from_json(part.strip()) for part in text.split(",") if part.strip()])
        readings.append([part.strip() for part in text.split(",") if part.strip()])
    refusal: SettingsError | None = None
    for reading in readings:
        try:
            return checked(reading, annotation, path)
        except SettingsError as error:
            refusal = refusal or error
    raise refusal or SettingsError(f"{path}: no value", path)


def from_json(text: str) -> object:
    """What ``text`` means as JSON (RFC 8259), or the text itself where it is none."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeError):
        return text
