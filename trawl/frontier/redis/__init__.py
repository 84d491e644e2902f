"""Jobs in a Redis or Valkey server: ``--job redis://host/NAME``.

Several processes may work on a job. Each process owns some of the job's hosts (:mod:`trawl.frontier.parts`).
"""

from trawl.frontier.redis.client import Address
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.startup import open_job

__all__ = ["Address", "RedisJob", "open_job"]
