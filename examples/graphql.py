"""The releases of a repository from GitHub's GraphQL API: JSON that is posted, pages by cursor, a token, a budget.

::

    export TRAWL_HTTP_AUTH='{"https://api.github.com": {"token": "YOUR TOKEN"}}'
    trawl crawl examples/graphql.py -O releases.jsonl
    trawl crawl examples/graphql.py -O releases.jsonl -a repository=psf/requests

The token goes to that origin and nowhere else. GraphQL answers 200 whatever is wrong, and says so in the answer.
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
    """One release; a draft has no day."""

    tag: str
    day: str | None


class GraphQL(trawl.Spider[Release]):
    """Asks for a hundred releases at a time."""

    name = "graphql"
    endpoint = "https://api.github.com/graphql"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,  # who has a token is no robot that came by; the API's own terms hold
        "THROTTLING_SCOPES": {"api.github.com": {"concurrency": 1, "quota": 5000, "window": 3600}},
    }

    repository = "pytest-dev/pytest"
    """``-a repository=OWNER/NAME``."""

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """The first hundred."""
        yield self.page(None)

    def page(self, after: str | None) -> trawl.Request:
        """A request for the releases behind a cursor. The bodies differ, so none is a duplicate of another."""
        owner, _, name = self.repository.partition("/")
        variables = {"owner": owner, "name": name, "after": after}
        return trawl.Request.json(self.endpoint, {"query": QUERY, "variables": variables})

    def parse(self, response: trawl.Response) -> Iterator[Release | trawl.Request]:
        """The releases of an answer, and the request for those behind them."""
        answer: dict[str, Any] = response.json()
        if answer.get("errors"):
            raise ValueError("; ".join(error["message"] for error in answer["errors"]))
        releases = answer["data"]["repository"]["releases"]
        for release in releases["nodes"]:
            yield {"tag": release["tagName"], "day": (release["publishedAt"] or "")[:10] or None}
        if releases["pageInfo"]["hasNextPage"]:
            yield self.page(releases["pageInfo"]["endCursor"])
