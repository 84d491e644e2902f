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

The names are for ``item_classes``: the item's own class, and those of the feeds that it was found to be of. Among them
is what the ``item_filter`` of each feed said of the item itself: its place after ``+`` or ``-``; and after ``@`` the
page that it was found on, for messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import msgspec

from trawl.feeds.to_json import to_json, written_fields, wrong_field

__all__ = ["StoredItem", "class_name", "from_stored", "to_stored"]

Fields = dict[str, object]


@attrs.frozen
class StoredItem:
    """An item of the outbox.

    Attributes:
        fields: Its fields, in their order, as plain values.
        classes: The dotted names of its class and of those that it was found to be of; empty for a plain dict.
    """

    fields: Fields
    classes: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """The URL of the page that the item was found on; "" if it is not known."""
        return next((name[1:] for name in self.classes if name[:1] == "@"), "")

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self.classes[0].rpartition(".")[2] if self.classes else "dict"

    def answer(self, place: str) -> bool | None:
        """Return the answer of the filter of the feed at ``place``; None if it was not asked."""
        if f"+{place}" in self.classes:
            return True
        return False if f"-{place}" in self.classes else None

    def moved(self, places: Mapping[str, str]) -> StoredItem:
        """Return this item, with the answers of filters under the ``places`` where their feeds are now."""
        now = [f"{name[0]}{places[name[1:]]}" if name[1:] in places else name for name in self.classes]
        return StoredItem(self.fields, tuple(now))

    def is_of(self, classes: Iterable[type]) -> bool:
        """Return whether the item was of one of ``classes``."""
        own = self.classes or (_DICT,)
        return any(class_name(one) in own for one in classes)


def class_name(kind: type) -> str:
    """Return the dotted name of a class, as the outbox stores it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def to_stored(
    item: object, classes: Iterable[type] = (), answers: Mapping[str, bool] | None = None, page: str = ""
) -> bytes:
    """Encode an item for the outbox.

    Args:
        item: Of any kind.
        classes: Those that some feed asks for.
        answers: Answers of the feeds' filters, by their places.
        page: The URL of the page that it was found on.

    Raises:
        ValueError: It can't be written; the text names the field.
        Exception: Its own library failed on it.
    """
    if type(item) is dict and not answers and not page:
        return _to_json(item)
    names = [class_name(type(item))]
    names += [name for one in classes if isinstance(item, one) and (name := class_name(one)) not in names]
    names += [f"+{place}" if answer else f"-{place}" for place, answer in (answers or {}).items()]
    names += [f"@{page}"] if page else []
    return b"[%b,%b]" % (_to_json(written_fields(item)), to_json(names))


def _to_json(fields: Mapping[str, object]) -> bytes:
    try:
        return to_json(fields)
    except Exception as error:
        raise wrong_field(fields, error) from error


def from_stored(stored: bytes) -> StoredItem:
    """Decode an item of the outbox.

    Raises:
        ValueError: It can't be read: damaged, or nested deeper than can be.
    """
    try:
        if stored[:1] == b"{":
            return StoredItem(_FIELDS.decode(stored))
        fields, names = _PAIR.decode(stored)
    except RecursionError as error:
        raise ValueError("an item is nested too deep") from error
    return StoredItem(fields, names)


_DICT = class_name(dict)
_FIELDS = msgspec.json.Decoder(Fields)
_PAIR = msgspec.json.Decoder(tuple[Fields, tuple[str, ...]])
