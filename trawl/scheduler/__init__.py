"""Scheduling: the rules of admission, and the choice of the request that goes next."""

from trawl.scheduler.admission_rules import AdmissionRules
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.lanes import Lane
from trawl.scheduler.prefetcher import Prefetcher
from trawl.scheduler.reasons import pending_pages
from trawl.scheduler.scheduler import Refused, Scheduler
from trawl.scheduler.settings import SchedulerSettings

__all__ = [
    "AdmissionRules",
    "Scheduler",
    "Attempt",
    "Prefetcher",
    "Lane",
    "Refused",
    "SchedulerSettings",
    "pending_pages",
]
