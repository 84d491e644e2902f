"""Jobs in a Redis or Valkey server: ``--job redis://host/NAME``.

The design is of partitions with one owner each. A job has one partition today, and one worker at a time; its format has
room for more.
"""

from trawl.frontier.redis.client import Address
from trawl.frontier.redis.job import RedisJob, open_job

__all__ = ["Address", "RedisJob", "open_job"]
