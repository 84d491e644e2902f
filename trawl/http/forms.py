"""Requests that send a form. The form is given as names and values, or is on a page.

A form on a page is read with the rules of browsers (HTML, 4.10.21.4: constructing the entry list), or, in a spider that
was moved from Scrapy, with the rules of Scrapy 2.19 (:func:`_scrapys_entries`), so that it sends the same fields as
before. ``form2request`` 0.2 sends disabled controls and buttons, leaves out controls that name the form with ``form=``,
always encodes in UTF-8, does not convert an IDN, and takes 1.7 s for 4,000 nested selects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self, Unpack

import attrs
from lxml import etree
from lxml.html import FormElement

from trawl.http.content import parse_content_type
from trawl.http.encodings import codec_named, codec_of, encode, output_codec
from trawl.http.request import Callback, FormOptions, Request
from trawl.http.response import Response
from trawl.http.url import Field, encode_form, join_url, values_of
from trawl.selectors import MixedQuery, Selector, css_to_xpath

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["FormRequest"]

_BUTTONS = frozenset({"submit", "image"})
_WALKED = ("form", "fieldset", "input", "button", "select", "textarea", "option")
_NOT_SENT = frozenset({"submit", "image", "reset", "button"})


class _NoFile(str):
    """The value of a file control without a chosen file (HTML, 4.10.21.4)."""

    __slots__ = ()


def _find_form(
    page: Response, name: str | None, id: str | None, number: int, xpath: str | None, css: str | None
) -> Element:
    """Return the form with the given name, id, query or number. If several are given, the first in this order decides.

    A query may select the form or an element in it. As in Scrapy, a name or an id that no form has is ignored.
    """
    forms = _elements(page.selector, "//form")
    if not forms:
        raise ValueError(f"{page!r} has no form")
    for attribute, wanted in (("name", name), ("id", id)):
        found = next((form for form in forms if wanted is not None and form.get(attribute) == wanted), None)
        if found is not None:
            return found
    query = None
    try:
        query = css_to_xpath(css) if css is not None else xpath
        starts = [] if query is None else _elements(page.selector, query)[:1]
    except MixedQuery as error:
        raise error.named("formcss=...", "formxpath=...") from None
    if query is not None:
        for start in starts:
            for element in (start, *start.iterancestors()):
                if element.tag == "form":
                    return element
        raise ValueError(f"{page!r} has no form at {query!r}")
    try:
        return forms[number]
    except IndexError:
        raise IndexError(f"{page!r} has {len(forms)} forms: there is no form number {number}") from None


def _entries_of(form: Element) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the form's enabled and checked controls, without its buttons. No file is chosen."""
    for each in _controls(form):
        control = each.element
        name = control.get("name")
        if not name or each.is_disabled:
            continue
        if control.tag == "select":
            yield from ((name, value) for value in _selected(each))
        elif control.tag == "textarea":
            # A leading line break is not part of the value.
            yield name, _text(control).removeprefix("\r").removeprefix("\n")
        elif control.tag == "input":
            kind = _type_of(control)
            if kind == "file":
                yield name, _NoFile()
            elif kind in _NOT_SENT or (kind in {"checkbox", "radio"} and control.get("checked") is None):
                continue
            else:
                yield name, control.get("value", "on" if kind in {"checkbox", "radio"} else "")


def _clicked(form: Element, wanted: Mapping[str, str | int] | None) -> Element | None:
    """Return the button with the ``wanted`` attributes, or else the first enabled button; None if there is none.

    ``{"nr": n}`` means the n-th control of the form that has a name, starting at 0.
    """
    buttons = [control for control in _controls(form) if _is_button(control.element)]
    if wanted is None:
        return next((button.element for button in buttons if not button.is_disabled), None)
    if not buttons:
        return None
    if "nr" in wanted:
        controls = [control.element for control in _controls(form) if control.element.get("name")]
        number = int(wanted["nr"])
        if 0 <= number < len(controls):
            return controls[number]
    return _with_attributes(form, {name: value for name, value in wanted.items() if name != "nr"})


def _with_attributes(form: Element, wanted: Mapping[str, str | int]) -> Element:
    found = [
        control for control in form.iter() if all(control.get(name) == str(value) for name, value in wanted.items())
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} elements of the form have the clickdata {dict(wanted)!r}: exactly one should")
    return found[0]


def _scrapys_entries(form: FormElement) -> Iterator[tuple[str, str | list[str]]]:
    """Yield the names and values of the form as Scrapy does, without its buttons: disabled controls are sent too."""
    for control in form.iterdescendants("input", "select", "textarea"):
        name = control.get("name")
        kind = _type_of(control) if control.tag == "input" else ""
        is_checkable = kind in {"checkbox", "radio"}
        if not name or kind in _NOT_SENT - {"button"} or (is_checkable and control.get("checked") is None):
            continue
        if control.tag == "select":
            options = list(control.iterdescendants("option"))
            chosen = [option for option in options if option.get("selected") is not None]
            enabled = [option for option in options if option.get("disabled") is None]
            is_multiple = control.get("multiple") is not None
            sent = chosen if is_multiple else chosen[-1:] or enabled[:1] or options[:1]
            if sent or is_multiple:  # even an empty list of options is a field
                yield name, [option.get("value", (option.text or "").strip()) for option in sent]
        else:
            value: Any = getattr(control, "value", None)
            yield name, value or ""


def _scrapys_button(form: FormElement, wanted: Mapping[str, str | int] | None) -> list[tuple[str, str]]:
    """Return the field of the clicked button as Scrapy chooses it, like :func:`_clicked`."""
    buttons = [
        button
        for button in form.iterdescendants("input", "button")
        if button.get("type", "submit" if button.tag == "button" else "").lower()
        in (_BUTTONS if button.tag == "input" else {"submit"})
    ]
    if not buttons:
        return []
    button: Element = buttons[0]
    if wanted is not None:
        fields: list[Element] = list(form.inputs)
        number = wanted.get("nr")
        is_numbered = isinstance(number, int) and -len(fields) <= number < len(fields)
        button = fields[int(number or 0)] if is_numbered else _with_attributes(form, wanted)
    name = button.get("name")
    return [] if name is None else [(name, button.get("value") or "")]


def _written(form: Element, button: Element | None, name: str) -> str:
    """Return the ``action``, ``method`` or ``enctype`` of a form, unless the button overrides it; "" if missing."""
    overriding = button.get(f"form{name}") if button is not None and _is_button(button) else None
    return (form.get(name, "") if overriding is None else overriding).strip()


def _of_button(button: Element) -> list[tuple[str, str]]:
    """Return the fields that a clicked button adds: its name and value, or the position of the click on an image."""
    name = button.get("name") or ""
    if button.tag == "input" and _type_of(button) == "image":
        prefix = f"{name}." if name else ""
        return [(f"{prefix}x", "0"), (f"{prefix}y", "0")]
    return [(name, button.get("value", ""))] if name else []


def _elements(selector: Selector, query: str) -> list[Element]:
    return [found.root for found in selector.xpath(query) if hasattr(found.root, "iterancestors")]


@attrs.frozen
class _Control:
    """One control of a form, disabled if a fieldset around it is. A select has ``options``, not nested ones."""

    element: Element
    is_disabled: bool
    options: list[Element]


def _controls(form: Element) -> list[_Control]:
    """Return the controls inside the form that name no other form, and those elsewhere that name this form.

    The page is traversed once, because checking the ancestors of each control would take longer for deep pages.
    """
    own = form.get("id")
    top = next(reversed([form, *form.iterancestors()]))
    found: list[_Control] = []
    forms: list[Element] = []
    options: list[list[Element]] = []
    disabled = 0
    for event, element in etree.iterwalk(top, events=("start", "end"), tag=_WALKED):
        begins, tag = event == "start", element.tag
        if tag == "form":
            forms.append(element) if begins else forms.pop()
        elif tag == "fieldset":
            if element.get("disabled") is not None:
                disabled += 1 if begins else -1
        elif tag == "option":
            if begins and options:
                options[-1].append(element)
        elif not begins:
            if tag == "select":
                options.pop()
        else:
            named = element.get("form")
            own_options: list[Element] = []
            if tag == "select":
                options.append(own_options)
            if named == own if named is not None else bool(forms) and forms[-1] is form:
                found.append(_Control(element, bool(disabled) or element.get("disabled") is not None, own_options))
    return found


def _is_button(control: Element) -> bool:
    if control.tag == "button":  # an unknown type is a submit button (HTML, 4.10.8)
        return _type_of(control) not in {"button", "reset"}
    return control.tag == "input" and _type_of(control) in _BUTTONS


def _type_of(control: Element) -> str:
    """Return the type in lower case. Spaces around a type make it unknown (HTML, 2.3.3: enumerated attributes)."""
    return control.get("type", "text").lower()


def _selected(select: _Control) -> list[str]:
    """Return the values of a select's selected options, or of its first option if one is required (HTML, 4.10.7)."""
    enabled = [option for option in select.options if option.get("disabled") is None]
    chosen = [option for option in select.options if option.get("selected") is not None]
    if select.element.get("multiple") is None:
        chosen = chosen[-1:] or enabled[:1]
    # A disabled option is not sent, even if it is selected.
    sent = [option for option in chosen if option.get("disabled") is None]
    return [option.get("value", " ".join(_text(option).split())) for option in sent]


def _text(element: Element) -> str:
    return str(element.xpath("string()"))


_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_TEXT = "text/plain"

FormData = (
    Mapping[str, Field | None]
    | Mapping[bytes, Field | None]
    | Iterable[tuple[str, Field | None] | tuple[bytes, Field | None]]
)


class FormRequest(Request):
    """A request with fields, as a browser sends an HTML form. Scrapy's class; :meth:`Request.form` has fewer features.

    Line breaks in values are sent unchanged, as in Scrapy, while :meth:`Request.form` sends them as CR LF.

    >>> trawl.FormRequest("http://a.example/login", formdata={"user": "anna"}).body
    b'user=anna'
    """

    __slots__ = ()

    def __init__(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        formdata: FormData | None = None,
        encoding: str = "utf-8",
        enctype: str = _FORM,
        **options: Unpack[FormOptions],
    ) -> None:
        """Create a request that sends ``formdata``.

        Args:
            url: The form's action.
            callback: Receives the response.
            formdata: Names and values. A value may be a list of values, and None leaves a field out. With ``formdata``,
                the default method is POST. With GET, ``formdata`` replaces the URL's query.
            encoding: The encoding of fields that are not bytes, and of the URL's query.
            enctype: The format of the body: ``multipart/form-data``, ``text/plain``, or
                ``application/x-www-form-urlencoded`` for all other names. In the first two formats, line breaks are CR
                LF.
            options: Keyword arguments of :class:`Request`.

        Raises:
            ValueError: As in :class:`Request`, or if ``formdata`` is neither a mapping nor pairs.
        """
        if not formdata:
            super().__init__(url, callback, encoding=encoding, **options)
            return
        if options.get("method") is None:
            options["method"] = "POST"
        fields = _fields(formdata, codec_named(encoding))
        super().__init__(url, callback, encoding=encoding, **options)
        if self.method == "POST":
            body, kind = _as_body(fields, enctype.lower())
            self.body: bytes = body
            if kind.startswith(_MULTIPART):
                self.headers["Content-Type"] = kind  # kind includes the boundary of this body
            else:
                self.headers.setdefault("Content-Type", kind)
        else:
            self.url: str = f"{self.url.partition('#')[0].partition('?')[0]}?{encode_form(fields)}"

    def replace(self, **changes: Any) -> Any:
        """Return a copy with ``changes``, which may include ``formdata``; see :meth:`trawl.Request.replace`."""
        if "formdata" in changes and changes.get("cls") is None:
            changes["cls"] = type(self)
            changes.setdefault("enctype", parse_content_type(self.headers.get("content-type", "")).essence)
        return super().replace(**changes)

    @classmethod
    def from_response(
        cls,
        response: Response,
        formname: str | None = None,
        formid: str | None = None,
        formnumber: int = 0,
        formdata: FormData | None = None,
        clickdata: Mapping[str, str | int] | None = None,
        dont_click: bool = False,
        formxpath: str | None = None,
        formcss: str | None = None,
        **options: Any,
    ) -> Self:
        """Return the request that a browser would send for a form on a page, including hidden fields.

        If the spider was moved from Scrapy, the request has the fields that Scrapy sends. The form's ``enctype``
        decides the format of the body. File controls are sent without a file. If several of ``formname``, ``formid``, a
        query and ``formnumber`` are given, the first in this order decides. A name or an id that no form has is
        ignored.

        Args:
            response: The page.
            formname: The ``name`` of the form.
            formid: The ``id`` of the form.
            formnumber: The index of the form on the page, starting at 0.
            formdata: Names and values that replace fields of the form or are added to them. The value None removes a
                field.
            clickdata: Attributes of the button to click (``{"name": "go"}``, ``{"nr": 0}``); None for the first button.
            dont_click: Whether to send the form without clicking a button.
            formxpath: An XPath query for the form or an element in it.
            formcss: A CSS query for the form or an element in it.
            options: Keyword arguments of :class:`Request`; ``url`` replaces the form's action.

        Raises:
            ValueError: If the page does not have the form or the button, or the action is not a valid URL.
            IndexError: If the page has no form with this number.
        """
        form = _find_form(response, formname, formid, formnumber, formxpath, formcss)
        given = list(_pairs(formdata or ()))
        button: Element | None = None
        home = response.url
        names = {name for name, _ in given}
        if response._is_scrapys and isinstance(form, FormElement):
            home = response.base_url
            clicked = [] if dont_click else _scrapys_button(form, clickdata)
            # If the form data are pairs, Scrapy also sends a button whose name they contain.
            added = [field for field in clicked if field[0] not in names or not isinstance(formdata, Mapping)]
            entries: list[Any] = list(_scrapys_entries(form))
            given = [*added, *(pair for pair in given if pair[1] is not None)]
        else:
            button = None if dont_click else _clicked(form, clickdata)
            entries = [*_entries_of(form), *(_of_button(button) if button is not None else ())]
        fields: list[tuple[str, Field | None]] = [entry for entry in entries if entry[0] not in names]
        fields += given
        options.setdefault("method", _written(form, button, "method"))
        if str(options["method"]).upper() not in {"GET", "POST"}:
            options["method"] = "GET"
        # ``accept-charset`` overrides the page's encoding (HTML, 4.10.21.5).
        named = filter(None, map(codec_of, form.get("accept-charset", "").split()))
        options.setdefault("encoding", output_codec(next(named, response.output_encoding)))
        options.setdefault("enctype", _written(form, button, "enctype"))
        url = join_url(response.base_url, options.pop("url", None) or _written(form, button, "action") or home)
        return cls(url, formdata=fields, **options)


def _pairs(formdata: FormData) -> Iterable[tuple[Any, Field | None]]:
    pairs: list[Any] = list(formdata.items() if isinstance(formdata, Mapping) else formdata)
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("formdata must be a mapping, or pairs of a name and a value")
    return pairs


def _fields(formdata: FormData, codec: str) -> list[tuple[Any, Field]]:
    """Return the fields with encoded strings. A character that the encoding does not have becomes ``&#...;``."""

    def encoded(value: Any) -> Any:
        return encode(value, codec) if isinstance(value, str) and not isinstance(value, _NoFile) else value

    pairs = [(name, held) for name, held in _pairs(formdata) if held is not None]
    return [(encoded(name), [encoded(value) for value in values_of(held)]) for name, held in pairs]


_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOUNDARY_DIGITS = 24


def _as_body(fields: list[tuple[Any, Field]], enctype: str) -> tuple[bytes, str]:
    """Return the body for ``fields``, and its content type (HTML, 4.10.21.3)."""
    if enctype not in {_MULTIPART, _TEXT}:
        return encode_form(fields).encode(), _FORM
    pairs = [(_with_crlf(name), value) for name, held in fields for value in values_of(held)]
    if enctype == _TEXT:
        return b"".join(b"%b=%b\r\n" % (name, _with_crlf(value)) for name, value in pairs), _TEXT
    parts = [_part(name, value) for name, value in pairs]
    content = b"".join(parts)
    # Derive the boundary from the content, so that requests with equal forms have equal fingerprints.
    boundary = b"----trawl" + sha256(content).hexdigest()[:_BOUNDARY_DIGITS].encode()
    while boundary in content:
        boundary += b"-"
    body = b"".join(b"--%b\r\n%b\r\n" % (boundary, part) for part in parts) + b"--%b--\r\n" % boundary
    return body, f"{_MULTIPART}; boundary={boundary.decode()}"


def _part(name: bytes, value: Any) -> bytes:
    """Return one part of ``multipart/form-data`` (HTML, 4.10.21.8)."""
    escaped = name.replace(b"\r", b"%0D").replace(b"\n", b"%0A").replace(b'"', b"%22")
    file = b'; filename=""\r\nContent-Type: application/octet-stream' if isinstance(value, _NoFile) else b""
    return b'Content-Disposition: form-data; name="%b"%b\r\n\r\n%b' % (escaped, file, _with_crlf(value))


def _with_crlf(value: str | bytes | int | float) -> bytes:
    return _LINE_END.sub(b"\r\n", value if isinstance(value, bytes) else str(value).encode())
