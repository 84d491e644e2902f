"""Which requests are taken in, and which goes next."""

from trawl.scheduler.explain import pending_pages
from trawl.scheduler.lanes import Grant, Lane
from trawl.scheduler.prefetch import Heads
from trawl.scheduler.rules import AdmissionRules, SchedulerSettings
from trawl.scheduler.scheduler import Chooser, Refused

__all__ = ["AdmissionRules", "Chooser", "Grant", "Heads", "Lane", "Refused", "SchedulerSettings", "pending_pages"]
