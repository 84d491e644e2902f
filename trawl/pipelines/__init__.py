"""Pipelines: what each item passes before it is written."""

from trawl.pipelines.chain import CLOSE_GRACE, Pipelines
from trawl.pipelines.settings import PipelinesSettings

__all__ = ["CLOSE_GRACE", "Pipelines", "PipelinesSettings"]
