"""Which requests are taken in, and which goes next."""

from trawl.scheduler.admit import AdmissionRules
from trawl.scheduler.choose import Chooser, Refused
from trawl.scheduler.heads import Heads
from trawl.scheduler.lanes import Entry, Lane
from trawl.scheduler.outlook import pending_pages
from trawl.scheduler.settings import SchedulerSettings

__all__ = ["AdmissionRules", "Chooser", "Entry", "Heads", "Lane", "Refused", "SchedulerSettings", "pending_pages"]
