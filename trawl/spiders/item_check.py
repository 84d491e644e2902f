"""The settings of spiders, and the hook that validates items against a type (``ITEM_TYPE``) after callbacks.

msgspec validates dataclasses, attrs classes, Structs and TypedDicts strictly: the string ``"12"`` is not a number, and
an unknown field is an error. pydantic validates and converts its own models. For classes without types
(:class:`trawl.items.Item`), only the class of the item is checked. Only :mod:`trawl.spiders` imports this module.
"""

from __future__ import annotations

import dataclasses
import logging
import types
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, MutableMapping
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

import attrs
import msgspec
from msgspec import Struct

from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.items import InvalidItem, is_item, is_item_type, item_fields
from trawl.observe import Stats
from trawl.passwords import without_passwords
from trawl.spiders.spider import Spider
from trawl.throttling.configuration import load_object

__all__ = ["ItemCheck", "ItemCheckError", "SpidersSettings", "item_check", "item_type_of", "make_check", "type_name"]


class SpidersSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the kinds of spiders, under Scrapy's names.

    Attributes:
        crawlspider_follow_links: Follow the links of a CrawlSpider's rules. False fetches only its start URLs.
        item_type: Type against which items are validated: a dataclass, attrs class, pydantic model, msgspec Struct or
            TypedDict, a union of them, or an import path. "spider" means the type argument of the spider's class. null
            disables validation.
        invalid_items: What to do with items that do not match ITEM_TYPE: "drop" them, or "keep" each as an InvalidItem,
            which goes to feeds that name it in ``item_classes``.
        scrapy_compat: Treat the spider as written for Scrapy: if trawl and Scrapy differ, use Scrapy's behavior, even
            if it would be wrong for other spiders. null means true only if the spider has Scrapy's imports with the
            name trawl (import trawl as scrapy).
    """

    crawlspider_follow_links: bool = True
    item_type: Any = None
    invalid_items: Literal["drop", "keep"] = "drop"
    scrapy_compat: bool | None = None


Check = Callable[[Any], Any]  # returns the validated item, converted if needed, or raises :class:`ItemCheckError`


class ItemCheckError(ValueError):
    """An item is not valid. The message describes the error and its position in the item."""


def make_check(kind: Any) -> Check:
    """Return the check for a type or a union of types; raise TypeError if it is not an item type.

    The check converts a dict to the type, and returns instances of the type unchanged.
    """
    if get_origin(kind) in (Union, types.UnionType):
        return _any_of({member: make_check(member) for member in get_args(kind)}, type_name(kind))
    if not isinstance(kind, type) or not (is_typeddict(kind) or is_item_type(kind)):
        raise TypeError(
            f"{kind!r} is not a type of item: use a dataclass, attrs class, pydantic model, Struct or TypedDict"
        )
    if hasattr(kind, "model_validate"):
        return _by_class(kind, kind.model_validate)  # pydantic validated an instance when it was created
    if not is_typeddict(kind) and issubclass(kind, MutableMapping):
        return _by_class(kind, None)
    return _by_msgspec(kind)


def type_name(kind: Any) -> str:
    """Return the name of a type or union for messages."""
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return " | ".join(getattr(member, "__name__", str(member)) for member in members)


def _by_msgspec(kind: type) -> Check:
    is_dict = is_typeddict(kind)
    known = _names_of(kind)

    def check(item: Any) -> Any:
        is_instance = not is_dict and isinstance(item, kind)
        if not is_instance and not isinstance(item, Mapping):
            raise _another(item, kind)
        if not is_instance and not item.keys() <= known:
            unknown = next(name for name in item if name not in known)
            raise ItemCheckError(f"Object contains unknown field `{unknown}`")  # the same message as from msgspec
        try:
            made: Any = msgspec.convert(item_fields(item), kind, from_attributes=True)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise ItemCheckError(str(error)) from error
        return item if is_instance else made

    return check


def _names_of(kind: Any) -> frozenset[str]:
    """Return the keys that a dict may have to be converted to ``kind``."""
    if is_typeddict(kind):
        return frozenset(kind.__required_keys__ | kind.__optional_keys__)
    if issubclass(kind, msgspec.Struct):
        return frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    return frozenset(field.name for field in attrs.fields(kind))


def _by_class(kind: type, convert: Callable[[Any], Any] | None) -> Check:
    """Return a check that accepts instances unchanged. A dict is converted with ``convert``, if that is not None."""

    def check(item: Any) -> Any:
        if isinstance(item, kind):
            return item
        if convert is None or not isinstance(item, Mapping):
            raise _another(item, kind)
        try:
            return convert(dict(item))
        except ValueError as error:
            raise ItemCheckError(_words(error)) from error

    return check


def _any_of(checks: Mapping[type, Check], name: str) -> Check:
    classes = tuple(kind for kind in checks if not is_typeddict(kind))

    def check(item: Any) -> Any:
        whys = []
        for kind, one in checks.items():
            if kind in classes and isinstance(item, kind):
                return one(item)
        for kind, one in checks.items():
            try:
                return one(item)
            except ItemCheckError as error:
                whys.append(f"{kind.__name__}: {error}")
        raise ItemCheckError(f"it is not one of {name}: {'; '.join(whys)}")

    return check


def _another(item: object, kind: type) -> ItemCheckError:
    return ItemCheckError(f"it is of type {type(item).__name__}, not {kind.__name__}")


def _words(error: Any) -> str:
    """Return pydantic's errors in one line."""
    details = getattr(error, "errors", None)
    if not callable(details):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in details())


logger: logging.Logger = logging.getLogger("trawl.items")

OF_THE_SPIDER = "spider"  # value of ITEM_TYPE that selects the type argument of the spider's class


class ItemCheck:
    """Hook that validates items. Invalid items are counted, logged, and dropped or kept as :class:`InvalidItem`."""

    def __init__(self, kind: Any, stats: Stats, *, keeps: bool) -> None:
        """Validate items against ``kind`` (TypeError if it is not an item type). ``keeps`` keeps invalid items."""
        self._check: Check = make_check(kind)
        self._name = type_name(kind)
        self._stats = stats
        self._keeps = keeps

    async def __call__(self, response: Response | None, outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Yield the outputs of a callback, with items validated."""
        async for output in outputs:
            checked = output if isinstance(output, Request) else self._checked(output, response)
            if checked is not None:
                yield checked

    def process_start(self, start: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Return the outputs of ``start()``, with items validated."""
        return self(None, start)

    def _checked(self, output: Any, response: Response | None) -> Any:
        if not is_item(output) or isinstance(output, InvalidItem):
            return output
        try:
            return self._check(output)
        except ItemCheckError as error:
            url = "" if response is None else response.url
            self._stats.inc("item_invalid_count")
            logger.warning(
                "an item of %s is not a valid %s: %s", without_passwords(url) or "start()", self._name, error
            )
            return InvalidItem(url, str(error), self._name, item_fields(output)) if self._keeps else None


def item_check(spider: Spider[Any], settings: Mapping[str, Any], stats: Stats) -> ItemCheck | None:
    """Return the hook for ``ITEM_TYPE``; None if the setting is empty.

    Raises:
        SettingsError: If the setting is not an item type, or the spider's class has no type argument.
    """
    wanted = settings.get("ITEM_TYPE")
    if wanted is None or wanted == "":
        return None
    kind = item_type_of(type(spider)) if wanted == OF_THE_SPIDER else load_object(wanted, "ITEM_TYPE")
    if kind is None:
        name = type(spider).__name__
        raise SettingsError(f"ITEM_TYPE: {name} has no type of items: write {name}(Spider[Quote])", "ITEM_TYPE")
    try:
        return ItemCheck(kind, stats, keeps=settings.get("INVALID_ITEMS") == "keep")
    except TypeError as error:
        raise SettingsError(f"ITEM_TYPE: {error}", "ITEM_TYPE") from error


def item_type_of(spider: type) -> Any:
    """Return the type argument of a spider's class or of one of its base classes; None if there is none."""
    for kind in spider.__mro__:
        for base in vars(kind).get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Spider) and not hasattr(get_args(base)[0], "__bound__"):
                return get_args(base)[0]
    return None
