from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from trawl.http import Request, fingerprint
from trawl.http.request import FINGERPRINT_BYTES

PARTS = st.tuples(
    st.sampled_from(["GET", "POST", "PUT"]),
    st.sampled_from(["http://a.example/", "http://a.example/b", "https://a.example/", "http://a.example/?a&b"]),
    st.binary(max_size=3),
)


@given(PARTS, PARTS)
def test_requests_are_the_same_when_method_address_and_body_are(
    one: tuple[str, str, bytes], other: tuple[str, str, bytes]
) -> None:
    prints = [fingerprint(Request(url, method=method, body=body)) for method, url, body in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)
    assert [len(each) for each in prints] == [FINGERPRINT_BYTES] * 2


@given(st.text(), st.text(), st.binary(max_size=5))
def test_two_sessions_see_two_pages(one: str, other: str, body: bytes) -> None:
    alone = Request("http://a.example/", body=body)
    prints = [fingerprint(alone.replace(meta={"session": name})) for name in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)
    assert fingerprint(alone) not in prints


@settings(max_examples=40)
@given(
    st.dictionaries(st.text("ab", min_size=1), st.text("ab")),
    st.dictionaries(st.text("ab"), st.integers()),
    st.integers(),
    st.booleans(),
)
def test_headers_meta_priority_and_fragment_do_not_count(
    headers: dict[str, str], meta: dict[str, int], priority: int, dont_filter: bool
) -> None:
    request = Request(
        "http://a.example/?b&a#f",
        headers=headers,
        meta=meta,
        cookies=headers,
        priority=priority,
        dont_filter=dont_filter,
    )
    assert fingerprint(request) == fingerprint(Request("http://a.example/?a&b"))


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from trawl.http import Request, fingerprint\n"
        "print(fingerprint(Request('http://a.example/?b=1&a=2', method='POST', body='x')).hex())"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == fingerprint(Request("http://a.example/?a=2&b=1", method="POST", body=b"x")).hex()


def test_a_body_can_not_pass_for_another_address() -> None:
    assert fingerprint(Request("http://a.example/", body="b")) != fingerprint(Request("http://a.example/b"))
