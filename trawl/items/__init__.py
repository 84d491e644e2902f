"""What spiders yield besides requests: items, of whatever kind."""

from trawl.items.fields import is_item, is_item_type, item_fields
from trawl.items.invalid import InvalidItem
from trawl.items.item import Field, Item

__all__ = ["Field", "InvalidItem", "Item", "is_item", "is_item_type", "item_fields"]
