from __future__ import annotations

import re

from tests.middleware.web import Web
from trawl.http import Request, Response
from trawl.middleware import MiddlewareSettings, default_headers
from trawl.middleware.stack import default_header_fields

URL = "https://a.example/"


async def sent(request: Request, settings: MiddlewareSettings | None = None) -> dict[str, str]:
    web = Web(Response(URL))
    await web.through([default_headers(default_header_fields(settings or MiddlewareSettings()))], request)
    return web.fields[0]


async def test_a_request_names_the_crawler_and_what_it_takes() -> None:
    fields = await sent(Request(URL))
    assert set(fields) == {"Accept", "Accept-Language", "User-Agent"}
    assert re.fullmatch(r"trawl/\S+", fields["User-Agent"])


async def test_the_requests_own_fields_go_before_the_defaults() -> None:
    fields = await sent(Request(URL, headers={"user-agent": "me", "Accept": "application/json"}))
    assert fields["user-agent"] == "me"
    assert fields["Accept"] == "application/json"
    assert "User-Agent" not in fields


async def test_a_request_refuses_a_default_with_none() -> None:
    assert "Accept" not in await sent(Request(URL, headers={"Accept": None}))


async def test_a_default_of_none_is_left_out() -> None:
    settings = MiddlewareSettings(default_request_headers={"Accept": None, "X-Mine": "1"}, user_agent="")
    assert await sent(Request(URL), settings) == {"X-Mine": "1"}


async def test_a_user_agent_among_the_default_headers_goes_before_the_setting() -> None:
    settings = MiddlewareSettings(default_request_headers={"USER-AGENT": "theirs"}, user_agent="ours")
    assert await sent(Request(URL), settings) == {"USER-AGENT": "theirs"}
