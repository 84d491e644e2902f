"""How proxies are written, and which the environment names."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.transport.proxy import EnvironmentProxies, Proxy


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "credentials"),
    [
        ("http://a.example:8080", "http", "a.example", 8080, None),
        ("http://a.example", "http", "a.example", 80, None),
        ("https://a.example/", "https", "a.example", 443, None),
        ("a.example:3128", "http", "a.example", 3128, None),
        ("socks5://a.example", "socks5", "a.example", 1080, None),
        ("SOCKS5H://A.example:1", "socks5", "a.example", 1, None),
        ("http://[2001:db8::1]:3128", "http", "2001:db8::1", 3128, None),
        ("http://me:p%40ss%3a@a.example:1", "http", "a.example", 1, (b"me", b"p@ss:")),
        ("http://me@a.example:1", "http", "a.example", 1, (b"me", b"")),
        ("http://m%C3%A9:%C3%BC@a.example:1", "http", "a.example", 1, ("mé".encode(), "ü".encode())),
    ],
)
def test_a_proxy_is_taken_apart(
    url: str, scheme: str, host: str, port: int, credentials: tuple[bytes, bytes] | None
) -> None:
    assert Proxy.of(url) == Proxy(scheme, host, port, credentials)
    assert Proxy.of(f" {url}\n") == Proxy.of(url)


@pytest.mark.parametrize(
    "url",
    ["", "http://", "ftp://a.example", "socks4://a.example", "http://a b:1", "http://a.example:x", "http://me:s@:1"],
)
def test_what_is_no_proxy_is_refused_without_telling_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="proxy") as raised:
        Proxy.of(url.replace("//", "//me:secret@", 1) if "@" not in url else url)
    assert "secret" not in str(raised.value)


@given(st.text())
def test_whatever_is_given_is_a_proxy_or_a_value_error(text: str) -> None:
    try:
        proxy = Proxy.of(text)
    except ValueError:
        return
    assert proxy.host
    assert 0 < proxy.port < 65_536


def test_people_never_see_credentials() -> None:
    proxy = Proxy.of("http://me:secret@a.example:1")
    assert str(proxy) == "http://a.example:1"
    assert "secret" not in repr(proxy)
    assert str(Proxy.of("http://[::1]:1")) == "http://[::1]:1"


@pytest.mark.parametrize(
    ("environ", "http", "https"),
    [
        ({}, None, None),
        ({"http_proxy": "http://p:1"}, "http://p:1", None),
        ({"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:2"}, "http://p:1", "http://p:2"),
        ({"http_proxy": "http://p:1", "HTTP_PROXY": "http://q:1"}, "http://p:1", None),
        ({"http_proxy": "", "HTTP_PROXY": "http://q:1"}, None, None),
        ({"all_proxy": "socks5://p:1", "https_proxy": "http://p:2"}, "socks5://p:1", "http://p:2"),
        ({"ALL_PROXY": "socks5://p:1"}, "socks5://p:1", "socks5://p:1"),
        ({"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:2", "REQUEST_METHOD": "GET"}, None, "http://p:2"),
        ({"http_proxy": "http://p:1", "REQUEST_METHOD": "GET"}, "http://p:1", None),
        ({"http_proxy": "http://p:1", "no_proxy": "a.example"}, None, None),
    ],
)
def test_the_environment_names_a_proxy_a_scheme(environ: dict[str, str], http: str | None, https: str | None) -> None:
    proxies = EnvironmentProxies.of(environ)
    assert proxies.proxy_for("http://a.example/") == http
    assert proxies.proxy_for("https://a.example/") == https


@pytest.mark.parametrize(
    ("entry", "url", "is_excepted"),
    [
        ("*", "http://a.example/", True),
        ("a.example", "http://a.example/", True),
        ("a.example", "http://www.a.example/", True),
        ("a.example", "http://ba.example/", False),
        (".a.example", "http://www.a.example/", True),
        (".a.example", "http://a.example/", True),
        ("*.a.example", "http://www.a.example/", True),
        ("A.Example", "http://a.example/", True),
        ("a.example.", "http://a.example./", True),
        ("b.example, a.example", "http://a.example/", True),
        ("b.example a.example", "http://a.example/", True),
        ("a.example:8080", "http://a.example:8080/", True),
        ("a.example:8080", "http://a.example/", False),
        ("a.example:443", "https://a.example/", True),
        ("a.example:443", "http://a.example/", False),
        ("127.0.0.1", "http://127.0.0.1:81/", True),
        ("10.0.0.0/8", "http://10.1.2.3/", True),
        ("10.0.0.0/8", "http://11.1.2.3/", False),
        ("::1", "http://[::1]/", True),
        ("[::1]:81", "http://[::1]:81/", True),
        ("[::1]:81", "http://[::1]/", False),
        ("2001:db8::/32", "http://[2001:db8::5]/", True),
        ("localhost", "http://me:x@localhost:81/", True),
        (",, ,", "http://a.example/", False),
    ],
)
def test_hosts_are_excepted(entry: str, url: str, is_excepted: bool) -> None:
    proxies = EnvironmentProxies.of({"all_proxy": "http://p:1", "no_proxy": entry})
    assert (proxies.proxy_for(url) is None) is is_excepted


HOSTS = st.sampled_from(["a.example", "www.a.example", "ba.example", "example", "127.0.0.1"])


@given(host=HOSTS, entries=st.lists(HOSTS.flatmap(lambda host: st.sampled_from([host, f".{host}"])), max_size=3))
def test_names_are_excepted_as_urllib_excepts_them(host: str, entries: list[str]) -> None:
    text = ",".join(entries)
    ours = EnvironmentProxies.of({"http_proxy": "http://p:1", "no_proxy": text}).proxy_for(f"http://{host}/")
    bypass: Any = vars(urllib.request)["proxy_bypass_environment"]
    theirs = bypass(host, {"no": text}) if text else False
    assert (ours is None) == bool(theirs)
