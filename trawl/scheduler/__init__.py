"""Which requests are taken in, and which goes next."""

from trawl.scheduler.explain import pending_pages
from trawl.scheduler.grant import Grant
from trawl.scheduler.lanes import Lane
from trawl.scheduler.prefetch import Prefetcher
from trawl.scheduler.rules import AdmissionRules, SchedulerSettings
from trawl.scheduler.scheduler import Refused, Scheduler

__all__ = [
    "AdmissionRules",
    "Scheduler",
    "Grant",
    "Prefetcher",
    "Lane",
    "Refused",
    "SchedulerSettings",
    "pending_pages",
]
