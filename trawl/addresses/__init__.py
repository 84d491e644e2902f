"""Which addresses a crawl may connect to: what an address is for, and who may send us there."""

from trawl.addresses.guard import MOST_NAMES, AddressGuard
from trawl.addresses.kinds import kind_of

__all__ = ["MOST_NAMES", "AddressGuard", "kind_of"]
