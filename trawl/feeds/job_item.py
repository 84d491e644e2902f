"""The stored form of items in a job's outbox, and the filter that selects a feed's items, stored or not.

Items wait in the outbox until every feed has written them. The stored form is JSON. A plain dict is stored as an
object. Any other item is stored as an array, which contains such an object and the names of the item's classes. The
reasons for JSON instead of pickle, msgpack or the records of the feeds are:

* Every format writes an item with :func:`trawl.feeds.to_json.written_fields` and
  :func:`trawl.feeds.to_json.to_builtins`, which return values of JSON's types. JSON stores these values exactly,
  including integers of any size (msgpack is limited to 64 bits) and floats with their shortest digits. So a feed writes
  the same bytes for a stored item as for the item itself, for items of any class.
* A feed's record of an item depends on the feed's settings and on its first item. While items wait, settings may change
  and feeds may be added. Stored records would follow outdated settings, and each feed would need its own records.
* Reading JSON imports no module and runs no stored code. So items can be read even if their class no longer exists, or
  was defined in ``__main__``.

An exporter class (:mod:`trawl.feeds.exporter_format`) may distinguish a tuple from a list, a time from a string, and a
field without a value from a missing field. If a feed has an exporter class, the array also contains the *exact* fields,
in which each value that JSON would change is tagged with its type, and the names of all declared fields. A subclass of
``str``, ``int``, ``float``, ``list``, ``tuple`` or ``dict`` is stored as its base class. A value of another class (a
frozenset, a subclass of ``datetime``) is stored as a string, so an exporter may write it differently than the original
value. Serializers of fields are applied before the item is stored.

The list of class names contains the item's own class. If the item is an instance of a class in a feed's
``item_classes``, the list also contains that class. The list also contains values that are not class names. For each
feed with an ``item_filter``, it has the feed's destination after a ``+`` if the filter accepted the item, or after a
``-`` if not. For messages, it has the URL of the item's page after an ``@``.
"""

from __future__ import annotations

import inspect
import pkgutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

import attrs
import msgspec

from trawl.errors import SettingsError
from trawl.feeds.to_json import serialized_fields, to_builtins, to_json, written_fields, wrong_field
from trawl.items import Field, InvalidItem, Item, field_metadata, is_item
from trawl.tracebacks import contained

__all__ = ["Accepts", "ItemFilter", "JobItem", "class_name", "from_stored", "load_accepts", "to_stored"]

Fields = dict[str, object]


class JobItem(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An item of the outbox, in the form that the head of this module describes.

    Attributes:
        exact: The fields, with values tagged by :func:`to_stored`, and the names of all fields that its class declares.
            There are names only for an :class:`~trawl.items.Item`, or for a class with serializers. ``=`` precedes the
            name of a field whose serializer was applied. None if no feed has an exporter class.
    """

    fields: Fields
    classes: tuple[str, ...]
    exact: tuple[Fields, tuple[str, ...]] | None = None

    @property
    def item(self) -> Item | dict[str, Any]:
        """The item for an exporter class: an :class:`~trawl.items.Item` if it was one, or else a dict."""
        if self.exact is None:
            return self.fields
        tagged, names = self.exact
        values = {name: _untagged(value) for name, value in tagged.items()}
        return _item_type(names)(values) if names else values

    @property
    def page(self) -> str:
        """The URL of the item's page; "" if unknown."""
        last = self.classes[-1] if self.classes else ""
        return last[1:] if last[:1] == "@" else ""

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self.classes[0].rpartition(".")[2] if self.classes else "dict"

    def answer(self, destination: str) -> bool | None:
        """Return the result of the filter of the feed at ``destination``; None if this filter was not called."""
        if f"+{destination}" in self.classes:
            return True
        return False if f"-{destination}" in self.classes else None

    def moved(self, places: Mapping[str, str]) -> JobItem:
        """Return this item with its filter results moved from the old to the new destinations in ``places``."""
        now = [f"{name[0]}{places[name[1:]]}" if name[1:] in places else name for name in self.classes]
        return JobItem(self.fields, tuple(now), self.exact)

    def is_of(self, classes: Iterable[type]) -> bool:
        """Return whether the item was of one of ``classes``."""
        own = self.classes or (_DICT,)
        return any(class_name(one) in own for one in classes)


def class_name(kind: type) -> str:
    """Return the dotted name of a class, as the outbox stores it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def to_stored(
    item: object,
    classes: Iterable[type] = (),
    answers: Mapping[str, bool] | None = None,
    page: str = "",
    *,
    is_exact: bool = False,
) -> bytes:
    """Encode an item for the outbox. ``answers`` are the results of the feeds' filters, by destination."""
    if type(item) is dict and not answers and not page and not is_exact:
        return _to_json(item)
    names = [_DICT if type(item) is dict else class_name(type(item))]
    if classes:
        names += [name for one in classes if isinstance(item, one) and (name := class_name(one)) not in names]
    if answers:
        names += [f"+{destination}" if answer else f"-{destination}" for destination, answer in answers.items()]
    if page:
        names.append(f"@{page}")
    written = _to_json(item if type(item) is dict else written_fields(item))
    if not is_exact:
        # The slower to_json() is needed only for the destinations of feeds, which may contain an unpaired surrogate.
        return b"[%b,%b]" % (written, to_json(names) if answers else _encode(names))
    exact = {name: _tagged(value) for name, value in serialized_fields(item).items()}
    metadata = field_metadata(type(item))  # type: ignore[arg-type]  # mypy: a class has no hash
    serialized = {name for name in exact if "serializer" in metadata.get(name, ())}
    declared = item.fields if isinstance(item, Item) else exact if serialized else ()
    marked = [f"={name}" if name in serialized else name for name in declared]
    return b"[%b,%b,%b]" % (written, to_json(names), to_json([exact, marked]))


def _to_json(fields: Mapping[str, object]) -> bytes:
    try:
        return to_json(fields)
    except Exception as error:
        raise wrong_field(fields, error) from error


_TAG = ""
"""The key of a tagged value, ``{"": [type, text]}``. A dict of an item that contains this key is tagged too."""

_TAGGED: Mapping[type, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda span: [span.days, span.seconds, span.microseconds], lambda parts: timedelta(*parts)),
    Decimal: (str, Decimal),
    float: (str, float),
    bytes: (lambda raw: b64encode(raw).decode(), b64decode),
    tuple: (lambda parts: [_tagged(part) for part in parts], lambda parts: tuple(map(_untagged, parts))),
    set: (lambda parts: [_tagged(part) for part in parts], lambda parts: set(map(_untagged, parts))),
    dict: (
        lambda parts: [[_tagged(key), _tagged(part)] for key, part in parts.items()],
        lambda pairs: {_untagged(key): _untagged(part) for key, part in pairs},
    ),
}
_BASES: Mapping[type, Callable[[Any], object]] = {
    str: str.__str__,  # not str(), because members of an enumeration override it
    int: int.__int__,
    float: float.__float__,
    list: list,
    tuple: tuple,
}
_TYPES = {kind.__name__: kind for kind in _TAGGED}


def _tagged(value: Any) -> object:
    """Return a value in JSON's types, tagged if JSON would change it. A value of an unknown type becomes a string."""
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and isfinite(value)):
        return value
    if kind is list:
        return [_tagged(part) for part in value]
    for base, plain in _BASES.items():
        if kind is not base and isinstance(value, base):
            return _tagged(plain(value))
    if isinstance(value, dict) and _TAG not in value and all(type(key) is str for key in value):
        return {key: _tagged(part) for key, part in value.items()}
    kind = dict if isinstance(value, dict) else kind
    if kind in _TAGGED:
        return {_TAG: [kind.__name__, _TAGGED[kind][0](value)]}
    return to_builtins(value) if is_item(value) else str(value)


def _untagged(value: Any) -> Any:
    """Return the original value for a value that :func:`_tagged` returned."""
    if type(value) is list:
        return [_untagged(part) for part in value]
    if type(value) is not dict:
        return value
    if _TAG not in value:
        return {key: _untagged(part) for key, part in value.items()}
    name, told = value[_TAG]
    return _TAGGED[_TYPES[name]][1](told)


@lru_cache(maxsize=256)
def _item_type(names: tuple[str, ...]) -> type[Item]:
    """Return an item class that declares these fields. A serializer that was already applied is not applied again."""
    has_acted = Field(serializer=lambda value: value)
    fields = {name.removeprefix("="): has_acted if name[:1] == "=" else Field() for name in names}
    return type("Item", (Item,), {"fields": fields})


def from_stored(stored: bytes) -> JobItem:
    """Decode an item of the outbox; raise ValueError if it is damaged or nested too deep."""
    try:
        if stored[:1] == b"{":
            return JobItem(_FIELDS.decode(stored), ())
        return _WHOLE.decode(stored)
    except RecursionError as error:
        raise ValueError("an item is nested too deep") from error


_DICT = class_name(dict)
_encode = msgspec.json.Encoder().encode
_FIELDS = msgspec.json.Decoder(Fields)
_WHOLE = msgspec.json.Decoder(JobItem)

Accepts = Callable[[Any], object]  # returns whether a feed takes an item

_INVALID = class_name(InvalidItem)


@attrs.frozen
class ItemFilter:
    """Decides which items go to one feed.

    The feed takes instances of ``classes`` (if empty, all items but invalid ones) for which ``accepts``, if any,
    returns true. A job stores the results of ``accepts`` under ``destination``.
    """

    destination: str = ""
    classes: tuple[type, ...] = ()
    accepts: Accepts | None = None

    def takes(self, item: object) -> bool:
        """Return whether the feed takes an item; raise ValueError if the filter raises an error."""
        if self.classes:
            if not isinstance(item, self.classes):
                return False
        elif type(item) is InvalidItem:
            return False
        return self.accepts is None or self._accepted(item)

    def takes_stored(self, stored: JobItem) -> bool:
        """Return whether the feed takes a stored item, by the result stored with it, or else by its fields."""
        if self.classes:
            if not stored.is_of(self.classes):
                return False
        elif _INVALID in stored.classes:
            return False
        if self.accepts is None:
            return True
        answer = stored.answer(self.destination)
        return self._accepted(stored.fields) if answer is None else answer

    def answer(self, item: object) -> bool | None:
        """Return the function's result, to be stored with the item; None if the item's class decides alone."""
        if self.accepts is None or (self.classes and not isinstance(item, self.classes)):
            return None
        return self._accepted(item) if self.classes or type(item) is not InvalidItem else None

    def _accepted(self, item: object) -> bool:
        try:
            with contained:
                return bool(self.accepts and self.accepts(item))
        except Exception as error:
            raise ValueError(f"its item_filter failed: {error!r}") from error


def load_accepts(given: object, path: str, options: Mapping[str, Any]) -> Accepts | None:
    """Load ``item_filter``: a function, or a class with ``accepts(item)``, which gets the feed's ``options``."""
    if given is None:
        return None
    where = f"FEEDS[{path!r}]['item_filter']"
    try:
        found: Any = pkgutil.resolve_name(given) if isinstance(given, str) else given
        if inspect.isclass(found):
            make: Callable[..., Any] = found
            found = make(dict(options)) if inspect.signature(make).parameters else make()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise SettingsError(f"{where}: {given}: {error}", "FEEDS") from error
    accepts: Accepts = getattr(found, "accepts", found)
    if not callable(accepts):
        raise SettingsError(f"{where}: {given!r} is neither a function nor a class with accepts(item)", "FEEDS")
    return accepts
