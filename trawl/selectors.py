"""Selectors over a page, based on parsel, with a fast path for most pages and a limit for attributes.

Most pages are HTML, and most queries use no variables and no custom namespaces. Selectors of such pages share one dict
of namespaces until a selector gets its own, and are created without parsel's constructor. For ten links, this takes a
quarter of the time. parsel handles everything else, including all errors.

libxml2 compares each attribute of an HTML element with all previous attributes. 20,000 attributes take a second, 50,000
take more than a minute. 50,000 attributes fit into a page of half a megabyte. An element of an honest page has fewer
than a hundred. So start tags with more than :data:`MAX_ATTRIBUTES` attributes are cut before a page is parsed, unless
the page is too small to have so many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, Literal, Self

import parsel
from cssselect import SelectorError
from lxml import etree, html
from parsel import SelectorList
from parsel.csstranslator import HTMLTranslator

__all__ = [
    "MAX_ATTRIBUTES",
    "NO_XML",
    "MixedQuery",
    "Selector",
    "SelectorList",
    "SelectorType",
    "check_mixed",
    "check_silent",
    "css_to_xpath",
    "find_links",
    "is_query_error",
    "limit_attributes",
    "select",
]

MAX_ATTRIBUTES = 1_000
"""Maximum number of attributes of one element. Further attributes of a tag are cut off."""

SMALL = 4 * 10_000
"""Number of characters. A page with fewer characters can't have enough attributes to take long."""


# Matches an attribute as HTML does (13.2.5.32 to 39). Every repetition is possessive, so nothing is read twice.
_ATTRIBUTE = r"""[\s/]*+(?:=[^\s/>=]*+|[^\s/>=]++)(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"']?+[^\s>]*+))?+"""

_TAG = re.compile(rf"<[A-Za-z][^\s/>]*+(?:{_ATTRIBUTE}){{0,{MAX_ATTRIBUTES}}}+")

_REST = re.compile(rf"(?:{_ATTRIBUTE})++")


def limit_attributes(text: str) -> str:
    """Return ``text``, an HTML page, without the attributes of an element after the first :data:`MAX_ATTRIBUTES`."""
    if len(text) <= SMALL:
        return text
    kept: list[str] = []
    begin = at = 0
    while (tag := _TAG.search(text, at)) is not None:
        at = tag.end()
        if at - tag.start() > 2 * MAX_ATTRIBUTES and (rest := _REST.match(text, at)) is not None:
            kept.append(text[begin:at])
            begin = at = rest.end()
    return "".join([*kept, text[begin:]]) if kept else text


class MixedQuery(SelectorError, ValueError):
    """An XPath query was passed instead of CSS, or the reverse. The message says what to write.

    Attributes:
        query: The query.
        language: The query's language, ``"XPath"`` or ``"CSS"``.
    """

    def __init__(self, query: str, language: str, instead: str = "") -> None:
        instead = instead or f".{language.lower()}(...)"
        super().__init__(f"{query!r} is {language}: write {instead}")
        self.query = query
        self.language = language

    def named(self, css: str, xpath: str) -> MixedQuery:
        """Return the error with other advice: write ``css`` for a CSS query, or ``xpath`` for an XPath query."""
        return MixedQuery(self.query, self.language, css if self.language == "CSS" else xpath)


_OF_XPATH = re.compile(r"/|@|(?<![:\w-])[\w-]+\(|^\.")  # an XPath query that fails as CSS has one of these

_COMPOUND = r"[A-Za-z*][\w-]*(?:\.[A-Za-z_-][\w-]*)*"

_SILENT = re.compile(rf"(?=.*[.>])\s*{_COMPOUND}(?:\s*>\s*{_COMPOUND})*\s*")
"""CSS that is also valid XPath: ``ul.big`` is an element name, and ``ul > li`` is a comparison."""


def check_mixed(query: object, expected: str, instead: str = "") -> None:
    """Raise :class:`MixedQuery` if a failed query is written in the other language; ``instead`` says what to write."""
    if not isinstance(query, str):
        return
    if expected == "CSS":
        if _OF_XPATH.search(query) and _is_xpath(query):
            raise MixedQuery(query, "XPath", instead) from None
    elif _is_css(query):
        raise MixedQuery(query, "CSS", instead) from None


def check_silent(query: str, instead: str = "") -> None:
    """Raise :class:`MixedQuery` if an XPath query is valid CSS and, as XPath, never selects anything in HTML."""
    if _SILENT.fullmatch(query):
        check_mixed(query, "XPath", instead)


def is_query_error(error: BaseException) -> bool:
    """Return True if a selector raised ``error`` because its query is wrong or does not fit the page."""
    traceback = error.__traceback__
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__"))
        if name == __name__ or name.partition(".")[0] in {"parsel", "cssselect"}:
            return True
        traceback = traceback.tb_next
    return isinstance(error, SelectorError)


def _is_xpath(query: str) -> bool:
    try:
        etree.XPath(query)
    except etree.XPathError:
        return False
    return True


def _is_css(query: str) -> bool:
    try:
        _TRANSLATOR.css_to_xpath(query)
    except SelectorError:
        return False
    return True


_NAMESPACES: dict[str, str] = dict(parsel.Selector._default_namespaces)  # shared by selectors, so never changed

_TRANSLATOR = HTMLTranslator()

# Shared, because creating a parser takes as long as parsing a small page. The parser has a lock, so only one thread
# parses at a time. Other threads run Python meanwhile, because the GIL is released.
_PARSER = html.HTMLParser(recover=True, encoding="utf-8", huge_tree=True)


class Selector(parsel.Selector):
    """A part of a page that can be queried by CSS, XPath or JMESPath. A faster :class:`parsel.Selector`.

    See https://parsel.readthedocs.io for its methods.

    >>> row = trawl.Selector("<p><b>12 EUR</b> <a href='/1'>Stool</a></p>")
    >>> row.css("a::attr(href)").get(), row.xpath("//b/text()").re_first("[0-9]+")
    ('/1', '12')
    """

    __slots__ = ()

    _namespaces: MemberDescriptorType = parsel.Selector.__dict__["namespaces"]  # a second name for the same slot

    def __init__(self, text: Any = None, *given: Any, response: Any = None, **options: Any) -> None:
        """Create a selector with the arguments of parsel's class. As in Scrapy, a response may replace the text."""
        if hasattr(text, "selector"):
            text, response = None, text
        if response is not None:
            text = response.text
            options = {"type": response.selector.type, "base_url": response.base_url, **options}
        super().__init__(text, *given, **options)

    @property
    def namespaces(self) -> dict[str, str]:
        """The URI of each prefix that queries may use. The dict belongs to this selector."""
        if self._namespaces is _NAMESPACES:
            self._namespaces = dict(_NAMESPACES)
        own: dict[str, str] = self._namespaces
        return own

    @namespaces.setter
    def namespaces(self, namespaces: dict[str, str]) -> None:
        self._namespaces = namespaces

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> SelectorList[Self]:
        """Select by an XPath query.

        Args:
            query: The query.
            namespaces: The URIs of further prefixes.
            variables: The values of ``$names`` in the query.

        Raises:
            ValueError: If ``query`` is not XPath, or the page is JSON.
            MixedQuery: If ``query`` is CSS.
        """
        if self._namespaces is _NAMESPACES and namespaces is None and not variables:
            try:
                if (evaluate := _compiled(query)) is not None:
                    found = evaluate(self.root)
                    if not found or found is True:
                        check_silent(query)
                    return SelectorList(_wrapped(found if type(found) is list else [found], query))
            except (etree.XPathError, TypeError):
                pass  # the query is not XPath, or the root is a string; parsel raises the right error below
        try:
            selected: SelectorList[Self] = super().xpath(query, namespaces=namespaces, **variables)
        except ValueError as error:
            if isinstance(error.__context__, etree.XPathError):
                check_mixed(query, "XPath")
            raise
        # parsel returns "0" and "1" for false and true
        is_silent = len(selected) <= 1 and self.type == "html" and selected.getall() in ([], ["0"], ["1"])
        if is_silent:
            check_silent(str(query))  # str(), because parsel also accepts None and lists
        return selected

    def css(self, query: str) -> SelectorList[Self]:
        """Select by a CSS query, with ``::text`` and ``::attr(name)``.

        Raises:
            cssselect.SelectorError: If ``query`` is not CSS.
            MixedQuery: If ``query`` is XPath.
            ValueError: If the page is JSON.
        """
        try:
            if self._namespaces is _NAMESPACES:
                return self.xpath(_TRANSLATOR.css_to_xpath(query))
            return super().css(query)
        except SelectorError:
            check_mixed(query, "CSS")
            raise

    def get(self) -> Any:
        """Return the selected text, or the markup of the element. For JSON, return the value."""
        root = self.root
        return root if type(root) is str else super().get()

    extract = get


def _wrapped(roots: list[Any], query: str | None) -> list[Any]:
    """Return a selector of an HTML page for each of ``roots``, with the slots filled as parsel does."""
    new, selectors = object.__new__, []
    for root in roots:
        selector = new(Selector)
        selector.root = root
        selector.type = "html"
        selector._namespaces = _NAMESPACES
        selector._expr = query
        selector._huge_tree = True
        selector._text = None
        selectors.append(selector)
    return selectors


@lru_cache(maxsize=256)
def _compiled(query: str) -> etree.XPath | None:
    """Return a compiled XPath query; None if it uses a prefix or a user function, so that parsel must evaluate it."""
    functions: list[Any] = list(etree.FunctionNamespace(None))  # the names are bytes, although lxml's stubs say str
    names = {name.decode() for name in functions} - {"has-class"}
    if any(f"{prefix}:" in query for prefix in _NAMESPACES) or any(name in query for name in names):
        return None
    return etree.XPath(query, smart_strings=False)


SelectorType = Literal["html", "xml", "json", "text"]
"""The way to parse a string: HTML as in browsers, XML with repairs, JSON (JMESPath), or not at all."""


NO_XML: re.Pattern[str] = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML excludes (XML 1.0, 2.2). libxml2 drops the text after some of these characters."""


def select(text: str, type: SelectorType = "html", base_url: str | None = None) -> Selector:
    """Parse ``text`` once and return the selector of its root.

    Broken markup never raises an error. With ``type="json"``, a string that is not JSON selects nothing. At most
    :data:`MAX_ATTRIBUTES` attributes of an HTML element are read. In XML, excluded characters become U+FFFD.
    """
    if type == "xml":
        text = NO_XML.sub("\ufffd", text)
    if type != "html":
        return Selector(text=text, type=type, base_url=base_url)
    if "\0" in text:
        text = text.replace("\0", "")  # the search above takes a tenth of the time of replace()
    body = limit_attributes(text).strip().encode() or b"<html/>"
    root: etree._Element | None = etree.fromstring(body, _PARSER, base_url=base_url)
    if root is None:  # the page has only comments
        root = etree.fromstring(b"<html/>", _PARSER, base_url=base_url)
    selector: Selector = _wrapped([root], None)[0]
    return selector


def css_to_xpath(query: str) -> str:
    """Return a CSS query, with ``::text`` and ``::attr(name)``, as an XPath query; ValueError if it is not CSS."""
    try:
        return str(_TRANSLATOR.css_to_xpath(query))
    except SelectorError as error:
        check_mixed(query, "CSS")
        raise ValueError(f"{query!r} is not CSS: {error}") from error


def find_links(selector: Selector, css: str) -> list[Any]:
    """Return the matches of a CSS query as lxml elements or strings, for following links.

    For HTML, the result contains the links of the elements as strings, so that no object is created per element.
    Elements without a link are left out.

    Raises:
        ValueError: If ``css`` is not CSS, or the page is JSON.
    """
    query = css_to_xpath(css)
    evaluate = None
    if selector.type == "html" and "|" not in css:  # "|" follows a namespace prefix, which only the selector knows
        if "::" not in css:
            # If a query selects only <a>, like most queries, skip the check of element names, because the check takes
            # 50 % longer.
            is_named = query.endswith(("::a", "/a")) and "|" not in query
            query = f"{query}/@href" if is_named else f"({query})[self::a or self::area or self::link]/@href"
        evaluate = _compiled(query)
    return [each.root for each in selector.css(css)] if evaluate is None else list(evaluate(selector.root))
