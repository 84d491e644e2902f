"""The entries of RSS and Atom."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.items import is_item
from trawl.spiders.feed_spider import Enclosure, FeedEntry, WebFeed

URL = "http://a.example/feed/"

RSS = b"""<?xml version="1.0"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><title>The feed</title><link>/</link>
<item><title>One &amp; two</title><link>/1?a=1&b=2</link><guid isPermaLink="false">id-1</guid>
 <pubDate>Wed, 01 May 2024 10:00:00 +0200</pubDate><description><![CDATA[<p>short &amp;</p>]]></description>
 <content:encoded><![CDATA[<p>long</p>]]></content:encoded><dc:creator>Ada</dc:creator>
 <category>x</category><category>y</category><enclosure url="/a.mp3" type="audio/mpeg" length="12"/></item>
<item><guid>http://a.example/2</guid><pubDate>soon</pubDate></item>
</channel></rss>"""

ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://b.example/"><title>The feed</title>
<entry xml:base="blog/"><title type="html">Title</title><link rel="self" href="self"/><link href="1"/>
 <link rel="enclosure" href="/f" length="x"/><id>tag:b.example,2024:1</id><published>2024-05-01T10:00:00Z</published>
 <updated>2024-05-02T10:00:00.5+01:00</updated><author><name>Bob</name><email>b@b.example</email></author>
 <category term="t"/><summary>short</summary>
 <content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">a <b>b</b></div></content></entry></feed>"""

RDF = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>The feed</title></channel>
<item rdf:about="x"><title>Old</title><link>http://a.example/old</link><dc:date>2001-01-01T00:00:00</dc:date>
<dc:subject>history</dc:subject></item></rdf:RDF>"""


def entries(body: bytes) -> list[FeedEntry]:
    return list(WebFeed(body, URL, max_bytes=1 << 20))


def test_rss() -> None:
    first, second = entries(RSS)
    time = datetime(2024, 5, 1, 8, tzinfo=UTC)
    assert first == FeedEntry(
        url="http://a.example/1?a=1&b=2",
        title="One & two",
        id="id-1",
        published_utc=time,
        updated_utc=time,
        author="Ada",
        summary="<p>short &amp;</p>",
        content="<p>long</p>",
        categories=("x", "y"),
        enclosures=(Enclosure("http://a.example/a.mp3", "audio/mpeg", 12),),
        feed_url=URL,
    )
    assert (second.url, second.id, second.title, second.published_utc) == (
        "http://a.example/2",
        "http://a.example/2",
        "",
        None,
    )
    assert is_item(first)


def test_atom() -> None:
    (entry,) = entries(ATOM)
    assert (entry.url, entry.title, entry.id) == ("http://b.example/blog/1", "Title", "tag:b.example,2024:1")
    assert entry.published_utc == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert entry.updated_utc == datetime(2024, 5, 2, 9, 0, 0, 500_000, tzinfo=UTC)
    assert (entry.author, entry.summary, entry.categories) == ("Bob", "short", ("t",))
    assert entry.content == "a <b>b</b>"
    assert entry.enclosures == (Enclosure("http://b.example/f"),)


def test_rss_1() -> None:
    (entry,) = entries(RDF)
    assert (entry.url, entry.title, entry.categories) == ("http://a.example/old", "Old", ("history",))
    assert entry.published_utc == datetime(2001, 1, 1, tzinfo=UTC)


def item(content: str, namespaces: str = "") -> FeedEntry:
    (entry,) = entries(f"<rss {namespaces}><channel><item>{content}</item></channel></rss>".encode())
    return entry


def test_elements_of_another_namespace_are_not_rsss_own() -> None:
    media = 'xmlns:media="http://search.yahoo.com/mrss/"'
    content = "<media:title>photo</media:title><title>Story</title><media:description>x</media:description>"
    entry = item(content + "<media:category>m</media:category><description>of the story</description>", media)
    assert (entry.title, entry.summary, entry.categories) == ("Story", "of the story", ())
    atom = 'xmlns:atom="http://www.w3.org/2005/Atom"'
    assert item('<link>/a</link><atom:link href="/b"/>', atom).url == "http://a.example/a"
    assert item('<atom:link href="/b"/><atom:id>i</atom:id>', atom).url == "http://a.example/b"
    assert item('<rss1:title xmlns:rss1="http://purl.org/rss/1.0/">t</rss1:title>').title == "t"
    assert item("<dc:creator>undeclared</dc:creator>").author == "undeclared"


def test_an_entry_inside_another_is_a_part_of_it() -> None:
    (entry,) = entries(
        b"<rss><channel><item><x:p xmlns:x='x'><x:item>1</x:item></x:p><title>t</title></item></channel></rss>"
    )
    assert entry.title == "t"


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ('type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">Less: <em>x</em></div>', "Less: <em>x</em>"),
        ('type="xhtml" xmlns:h="http://www.w3.org/1999/xhtml"><h:div>a &lt; <h:b c="d"/></h:div>', 'a &lt; <b c="d"/>'),
        ('type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"/>', ""),
        ('type="xhtml">only text', "only text"),
        ('type="html">a &lt;b&gt;c&lt;/b&gt;', "a <b>c</b>"),
    ],
)
def test_xhtml_is_given_without_its_div(title: str, text: str) -> None:
    body = f'<feed xmlns="http://www.w3.org/2005/Atom"><entry><title {title}</title></entry></feed>'
    assert entries(body.encode())[0].title == text


def test_rdf_about_is_the_id_of_an_entry_of_rss_1() -> None:
    (entry,) = entries(RDF)
    assert (entry.id, entry.url) == ("x", "http://a.example/old")
    linkless = RDF.replace(b"<link>http://a.example/old</link>", b"").replace(
        b'about="x"', b'about="http://a.example/1"'
    )
    assert (entries(linkless)[0].id, entries(linkless)[0].url) == ("http://a.example/1",) * 2


@pytest.mark.parametrize(
    ("written", "hour"),
    [
        ("Thu, 5 Sep 2024 7:30:00 PM GMT", 19),
        ("Thu, 5 Sep 2024 7:30 a.m. GMT", 7),
        ("5 Sep 2024 12:30AM", 0),
        ("Thu, 5 Sep 2024 12:30:00 PM +0200", 10),
        ("Thu, 5 Sep 2024 09:30:00 EST", 14),
        ("Thu, 5 Sep 2024 09:30:00 GMT-01:00", 10),
        ("Thu Sep  5 09:30:00 2024", 9),
        ("Thu, 5 Sep 2024", 0),
        ("2024-09-05", 0),
        ("2024-09-05t09:30:00z", 9),
        ("Thu, 5 Sep 2024 19:30:00 PM GMT", None),
        ("Thu, 5 Sep 2024 PM 7:30:00 GMT", None),
        ("Thu, 5 Sep 2024 7.30.00 PM GMT", None),
        ("Thu, 5 Sep 2024 09:30:00 BST", None),
        ("Thu, 5 Sep 2024 09:30:00 +zz:00", None),
        ("2024-09-05 7:30 PM", 19),
        ("2024-09-05T07:30:00.5 AM Z", 7),
        ("2024-09-05 09:30:00 UTC", 9),
        ("2024-09-05T09:30 EST", 14),
        ("2024-09-05 09:30:00 -0400 EDT", 13),
        ("Thu, 5 Sep 2024 7 AM PDT", 14),
        ("Thu, 5 Sep 2024 7 PM", 19),
        ("Thu, 5 Sep 2024 09:30:00 +0000 UTC", 9),
        ("Thu, 5 Sep 2024 09:30:00 UTC", 9),
        ("Thu, 5 Sep 2024 09:30:00 PST", 17),
        ("Thu, 5 Sep 2024 09:30:00 Z", 9),
        ("2024-09-05 09:30:00 BST", None),
        ("2024-09-05 19:30:00 PM", None),
        ("2024-09-05-07", None),
    ],
)
def test_a_time_is_the_right_instant_or_none(written: str, hour: int | None) -> None:
    time = item(f"<pubDate>{written}</pubDate>").published_utc
    assert (None if time is None else (time.day, time.hour)) == (None if hour is None else (5, hour))


@pytest.mark.parametrize("body", [b"", b"<html><body/></html>", b"<urlset/>", b"{}"])
def test_what_is_no_feed(body: bytes) -> None:
    feed = WebFeed(body, URL, max_bytes=1 << 20)
    assert (feed.is_feed, list(feed)) == (False, [])


def test_an_entry_may_say_next_to_nothing() -> None:
    (entry,) = entries(b"<rss><channel><item/></channel></rss>")
    assert (entry.url, entry.id, entry.author, entry.enclosures) == ("", "", "", ())
    assert entries(b"<rss><channel><item><link>http://[</link></item></channel></rss>")[0].url == ""


@given(st.text(max_size=30), st.sampled_from(["link", "pubDate", "guid", "author", "category", "title"]))
def test_whatever_an_entry_says_it_can_be_read(text: str, name: str) -> None:
    body = f"<rss><channel><item><{name}>{text}</{name}></item></channel></rss>".encode("utf-8", "replace")
    assert len(entries(body)) <= 1


def atom_entry(content: str) -> FeedEntry:
    (entry,) = entries(
        f'<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://b.example/"><entry>{content}</entry></feed>'.encode()
    )
    return entry


@pytest.mark.parametrize(
    ("links", "url"),
    [
        ('<link href="x" xml:base="http://c.example/"/>', "http://c.example/x"),  # RFC 4287, 2
        ('<link rel="http://d.example/alternate" href="/no"/><link href="/yes"/>', "http://b.example/yes"),
        ('<link rel="http://www.iana.org/assignments/relation/alternate" href="/yes"/>', "http://b.example/yes"),
        ('<link rel="Alternate" href="/yes"/>', "http://b.example/yes"),
    ],
)
def test_a_link_has_a_base_of_its_own_and_only_registered_relations_count(links: str, url: str) -> None:
    assert atom_entry(links).url == url


def test_an_enclosure_has_a_base_of_its_own() -> None:
    entry = atom_entry('<link rel="enclosure" href="x" xml:base="http://c.example/"/>')
    assert entry.enclosures == (Enclosure("http://c.example/x"),)


def test_an_element_of_an_extension_is_no_entry() -> None:
    body = b"""<rss xmlns:x="urn:x"><channel><x:item><x:title>no</x:title></x:item>
    <item><title>yes</title></item></channel></rss>"""
    assert [entry.title for entry in entries(body)] == ["yes"]
    body = b'<rss xmlns="urn:y"><channel><item><title>yes</title></item></channel></rss>'
    assert [entry.title for entry in entries(body)] == ["yes"]


@pytest.mark.parametrize("time", ["Sat, 31 Dec 2016 23:59:60 GMT", "2016-12-31T23:59:60Z"])
def test_a_leap_second_is_a_time(time: str) -> None:
    (entry,) = entries(f"<rss><channel><item><pubDate>{time}</pubDate></item></channel></rss>".encode())
    assert entry.published_utc == datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_a_declaration_counts_behind_white_space() -> None:
    body = (
        '\n <?xml version="1.0" encoding="windows-1251"?><rss><channel><item><title>При</title></item></channel></rss>'
    )
    assert [entry.title for entry in entries(body.encode("cp1251"))] == ["При"]
