"""Requests that send a form: of names and values, or of a form that stands on a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Self, Unpack

from trawl.http.form import Field, encode_form
from trawl.http.html_form import action_of, clicked, entries_of, find_form, method_of
from trawl.http.request import Callback, FormOptions, Request
from trawl.http.response import Response
from trawl.http.url import join_url

__all__ = ["FormRequest"]

_LINE_END = re.compile(r"\r\n|\r|\n")
_FORM = "application/x-www-form-urlencoded"

FormData = Mapping[str, Field | None] | Iterable[tuple[str, Field | None]]


class FormRequest(Request):
    """A request with fields, as a browser sends an HTML form: Scrapy's name for :meth:`Request.form`, and more."""

    __slots__ = ()

    def __init__(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        formdata: FormData | None = None,
        encoding: str = "utf-8",
        **options: Unpack[FormOptions],
    ) -> None:
        """Make a request that sends ``formdata``.

        Args:
            url: The form's action.
            callback: Gets the response.
            formdata: Names and values; a value may be a list of values, None leaves a field out. With it, the method is
                POST unless ``method`` says otherwise; with GET it takes the place of the URL's query.
            encoding: What the fields, and the URL's query, are encoded with.
            options: As :class:`Request` takes them.

        Raises:
            ValueError: as :class:`Request`; or ``formdata`` is neither a mapping nor pairs.
        """
        if not formdata:
            super().__init__(url, callback, encoding=encoding, **options)
            return
        if options.get("method") is None:
            options["method"] = "POST"
        encoded = encode_form([(_bytes(name, encoding), held) for name, held in _fields(formdata, encoding)])
        super().__init__(url, callback, encoding=encoding, **options)
        if self.method == "POST":
            self.body: bytes = encoded.encode()
            self.headers.setdefault("Content-Type", _FORM)
        else:
            self.url: str = f"{self.url.partition('#')[0].partition('?')[0]}?{encoded}"

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
        """Make the request that a browser would send for a form on a page, hidden fields and all.

        The form is the one named ``formname``, else with the id ``formid``, else where a query finds it or something in
        it, else number ``formnumber`` of the page, from 0.

        Args:
            response: The page.
            formname: The ``name`` of the form.
            formid: The ``id`` of the form.
            formnumber: Which of the page's forms.
            formdata: Values that take the place of those in the form, or are added; None takes a field away.
            clickdata: Attributes of the button that is clicked (``{"name": "go"}``, ``{"nr": 0}``); the first if None.
            dont_click: Send the form without any button's value.
            formxpath: An XPath query for the form or something in it.
            formcss: A CSS query for the same.
            options: As :class:`Request` takes them; ``url`` takes the place of the form's action.

        Raises:
            ValueError: there is no such form, no such button, or the action makes no URL.
            IndexError: the page has fewer forms.
        """
        form = find_form(response, name=formname, id=formid, number=formnumber, xpath=formxpath, css=formcss)
        given = list(_pairs(formdata or ()))
        button = None if dont_click else clicked(form, clickdata)
        names = {name for name, _ in given}
        fields: list[tuple[str, Field | None]] = [entry for entry in entries_of(form) if entry[0] not in names]
        if button is not None and (name := button.get("name")) and name not in names:
            fields.append((name, button.get("value", "")))
        fields += given
        options.setdefault("method", method_of(form, button))
        if str(options["method"]).upper() not in {"GET", "POST"}:
            options["method"] = "GET"
        options.setdefault("encoding", response.encoding)
        url = join_url(response.base_url, options.pop("url", None) or action_of(form, button) or response.url)
        return cls(url, formdata=fields, **options)


def _pairs(formdata: FormData) -> Iterable[tuple[str, Field | None]]:
    pairs: list[Any] = list(formdata.items() if isinstance(formdata, Mapping) else formdata)
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("formdata is a mapping, or pairs of a name and a value")
    return pairs


def _fields(formdata: FormData, encoding: str) -> Iterable[tuple[str, Field]]:
    """The fields that are sent, their texts encoded; a character that the encoding lacks is sent as ``&#...;``."""
    for name, held in _pairs(formdata):
        if held is None:
            continue
        if isinstance(held, str):
            yield name, _bytes(held, encoding)
        elif isinstance(held, bytes | int | float):
            yield name, held
        else:
            yield name, [_bytes(value, encoding) if isinstance(value, str) else value for value in held]


def _bytes(text: str, encoding: str) -> Any:
    return text if encoding == "utf-8" else _LINE_END.sub("\r\n", text).encode(encoding, "xmlcharrefreplace")
