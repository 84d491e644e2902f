"""Reads the releases of a repository from GitHub's GraphQL API. Shows JSON requests, a cursor, a token and a quota.

::

    export TRAWL_HTTP_AUTH='{"https://api.github.com": {"token": "YOUR TOKEN"}}'
    trawl crawl examples/graphql.py -O releases.jsonl
    trawl crawl examples/graphql.py -O releases.jsonl -a repository=psf/requests

The token is sent only to api.github.com. If a query fails, GraphQL responds with 200 and lists the errors in the body.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, TypedDict

import trawl

QUERY = """
query ($owner: String!, $name: String!, $after: String) {
  repository(owner: $owner, name: $name) {
    releases(first: 100, after: $after) {
      nodes { tagName publishedAt }
      pageInfo { hasNextPage endCursor }
    }
  }
}
"""


class Release(TypedDict):
    """One release. A draft has no day."""

    tag: str
    day: str | None


class GraphQL(trawl.Spider[Release]):
    """Requests the releases, a hundred per request."""

    name = "graphql"
    endpoint = "https://api.github.com/graphql"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,  # the terms of the API apply instead of robots.txt
        "THROTTLING_SCOPES": {"api.github.com": {"concurrency": 1, "quota": 5000, "window": 3600}},
    }

    repository = "pytest-dev/pytest"
    """``-a repository=OWNER/NAME``."""

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield the request for the first hundred releases."""
        yield self.page(None)

    def page(self, after: str | None) -> trawl.Request:
        """Return a request for the releases after a cursor. The body has the cursor, so no request is a duplicate."""
        owner, _, name = self.repository.partition("/")
        variables = {"owner": owner, "name": name, "after": after}
        return trawl.Request.json(self.endpoint, {"query": QUERY, "variables": variables})

    def parse(self, response: trawl.Response) -> Iterator[Release | trawl.Request]:
        """Yield the releases of a response, and the request for the next releases."""
        answer: dict[str, Any] = response.json()
        if answer.get("errors"):
            raise ValueError("; ".join(error["message"] for error in answer["errors"]))
        releases = answer["data"]["repository"]["releases"]
        for release in releases["nodes"]:
            yield {"tag": release["tagName"], "day": (release["publishedAt"] or "")[:10] or None}
        if releases["pageInfo"]["hasNextPage"]:
            yield self.page(releases["pageInfo"]["endCursor"])
