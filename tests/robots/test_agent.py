from __future__ import annotations

import pytest

from trawl.robots import product_token


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("trawl/1.0", "trawl"),
        ("trawl/1.0 (+https://your.site/compatible;bot)", "trawl"),
        ("Mozilla/5.0 (compatible; Foobot/2.1; +http://foo.example/bot)", "foobot"),
        ("MyBot", "mybot"),
        ("  spaced/1", "spaced"),
        ("1bot/2", ""),
        ("", ""),
    ],
)
def test_a_robots_txt_knows_us_by_our_product(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token
