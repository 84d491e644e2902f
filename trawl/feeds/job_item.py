"""Items as they wait in a job's outbox, until they are in every feed.

The stored form is JSON: of a plain dict its object, of any other item an array of that object and the names of its
classes. Why JSON, and not pickle, msgpack or the feeds' own records:

* Every format of feeds writes an item through :func:`trawl.feeds.to_json.written_fields` and
  :func:`trawl.feeds.to_json.to_builtins`, the values that JSON has, and JSON
  says each of these exactly: integers of any size (msgpack ends at 64 bits) and floats by their shortest digits. So a
  feed's record of a stored item is byte for byte the record of the item itself, whatever class it was of.
* The form that an item has in one feed depends on the feed's settings and on its first item. They may be changed, and
  feeds added, while items wait: a record made beforehand would be of yesterday's settings, once a feed.
* Nothing is imported or run to read it (no code execution from stored data), so an item of a class that is gone, or of
  the spider's ``__main__``, is as good as any.

Feeds that an exporter class writes (:mod:`trawl.feeds.exporter_format`) tell a tuple from a list, a time from its text
and a field without a value from none at all. For them the values that JSON would change are in the array too, each by
its type, with the names of all fields. A subclass of ``str``, ``int``, ``float``, ``list``, ``tuple`` or ``dict`` is
there its base; a value of another class (a frozenset, a subclass of ``datetime``) is its text, which an exporter may
write otherwise than the value. A field's serializer has acted when the item is stored.

The names are for ``item_classes``: the item's own class, and those of the feeds that it was found to be of. Among them
is what the ``item_filter`` of each feed said of the item itself: its destination after ``+`` or ``-``; and after ``@``
the page that it was found on, for messages.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

import msgspec

from trawl.feeds.to_json import serialized_fields, to_builtins, to_json, written_fields, wrong_field
from trawl.items import Field, Item, field_metadata, is_item

__all__ = ["JobItem", "class_name", "from_stored", "to_stored"]

Fields = dict[str, object]


class JobItem(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An item of the outbox.

    Attributes:
        fields: Its fields, in their order, as plain values.
        classes: The dotted names of its class and of those that it was found to be of; empty for a plain dict.
        exact: Its fields, as :func:`to_stored` has tagged them, and the names of all that its class declares, if it is
            an :class:`~trawl.items.Item` or has serializers; ``=`` is before the name of a field whose serializer has
            acted. None if no feed asked for them.
    """

    fields: Fields
    classes: tuple[str, ...]
    exact: tuple[Fields, tuple[str, ...]] | None = None

    @property
    def item(self) -> dict[str, Any]:
        """The item for an exporter class: a dict, or an :class:`~trawl.items.Item` if it was one."""
        if self.exact is None:
            return self.fields
        tagged, names = self.exact
        values = {name: _untagged(value) for name, value in tagged.items()}
        return _item_type(names)(values) if names else values

    @property
    def page(self) -> str:
        """The URL of the page that the item was found on; "" if it is not known."""
        last = self.classes[-1] if self.classes else ""
        return last[1:] if last[:1] == "@" else ""

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self.classes[0].rpartition(".")[2] if self.classes else "dict"

    def answer(self, destination: str) -> bool | None:
        """Return the answer of the filter of the feed at ``destination``; None if it was not asked."""
        if f"+{destination}" in self.classes:
            return True
        return False if f"-{destination}" in self.classes else None

    def moved(self, places: Mapping[str, str]) -> JobItem:
        """Return this item, with the answers of filters under the ``places`` where their feeds are now."""
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
    """Encode an item for the outbox.

    Args:
        item: Of any kind.
        classes: Those that some feed asks for.
        answers: Answers of the feeds' filters, by their places.
        page: The URL of the page that it was found on.
        is_exact: Some feed is written by an exporter class.

    Raises:
        ValueError: It can't be written; the text names the field.
        Exception: Its own library failed on it.
    """
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
        # Half a surrogate pair may be in the place of a feed alone.
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
"""The key of a tagged value, ``{"": [type, text]}``: a dict that has it itself is tagged too."""

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
    str: str.__str__,  # a member of an enumeration has a text of its own
    int: int.__int__,
    float: float.__float__,
    list: list,
    tuple: tuple,
}
_TYPES = {kind.__name__: kind for kind in _TAGGED}


def _tagged(value: Any) -> object:
    """Return a value as JSON has it, with its type where JSON would change it; what is of no known type, as text."""
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
    """Return the value that :func:`_tagged` made of it."""
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
    """Return a class of items that declares these fields; a serializer that has acted does not act again."""
    has_acted = Field(serializer=lambda value: value)
    fields = {name.removeprefix("="): has_acted if name[:1] == "=" else Field() for name in names}
    return type("Item", (Item,), {"fields": fields})


def from_stored(stored: bytes) -> JobItem:
    """Decode an item of the outbox.

    Raises:
        ValueError: It can't be read: damaged, or nested deeper than can be.
    """
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
