"""Which requests are taken in."""

from __future__ import annotations

import pytest

from trawl.address_guard import AddressGuard
from trawl.http import Request
from trawl.scheduler import AdmissionRules, SchedulerSettings


@pytest.mark.parametrize(
    ("url", "depth", "refusal"),
    [
        ("http://a.example/", 0, None),
        ("https://www.a.example/x", 2, None),
        ("https://b.example/", 0, "offsite_filtered"),
        ("https://nota.example/", 0, "offsite_filtered"),
        ("mailto:someone@a.example", 0, "scheme_filtered"),
        ("javascript:void(0)", 0, "scheme_filtered"),
        ("ftp://a.example/", 0, "scheme_filtered"),
        ("http://a.example/" + "x" * 84, 0, "urllength_filtered"),
        ("http://a.example/" + "x" * 83, 0, None),
        ("http://a.example/", 3, "depth_filtered"),
    ],
)
def test_each_refusal_has_its_reason(url: str, depth: int, refusal: str | None) -> None:
    admission = AdmissionRules(SchedulerSettings(depth_limit=2, urllength_limit=100), ["a.example"])
    assert admission.refusal(Request(url), depth=depth) == refusal


def test_without_limits_everything_that_can_be_fetched_is_taken_in() -> None:
    admission = AdmissionRules(SchedulerSettings(urllength_limit=0))
    assert admission.refusal(Request("http://a.example/" + "x" * 5000), depth=10_000) is None


def test_a_request_may_ask_to_be_let_offsite() -> None:
    admission = AdmissionRules(SchedulerSettings(), ["a.example"])
    assert admission.is_offsite(Request("http://b.example/"))
    assert not admission.is_offsite(Request("http://b.example/", dont_filter=True))
    assert not admission.is_offsite(Request("http://b.example/", meta={"allow_offsite": True}))


@pytest.mark.parametrize("domain", ["EXAMPLE.com", ".example.com", "example.com."])
def test_domains_are_compared_in_normal_form(domain: str) -> None:
    admission = AdmissionRules(SchedulerSettings(), [domain])
    assert not admission.is_offsite(Request("http://WWW.example.com/"))
    assert admission.is_offsite(Request("http://example.org/"))


def test_the_root_dot_of_a_host_makes_it_no_other_site() -> None:
    admission = AdmissionRules(SchedulerSettings(), ["a.example"])
    assert admission.refusal(Request("http://a.example./"), depth=0) is None
    assert admission.refusal(Request("http://www.a.example.:8080/"), depth=0) is None
    assert admission.refusal(Request("http://b.example./"), depth=0) == "offsite_filtered"


def test_an_international_domain_is_compared_in_ascii() -> None:
    admission = AdmissionRules(SchedulerSettings(), ["bücher.example"])
    assert not admission.is_offsite(Request("http://bücher.example/"))


@pytest.mark.parametrize("domain", ["http://a.example/", "a.example:8000", "a.example/x"])
def test_a_domain_that_is_none_is_refused_by_its_name(domain: str) -> None:
    with pytest.raises(ValueError, match="domains such as"):
        AdmissionRules(SchedulerSettings(), [domain])


@pytest.mark.parametrize("listed", [[], ["a.example"]])
def test_domains_that_are_added_to_the_list_are_allowed_from_then_on(
    listed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    admission = AdmissionRules(SchedulerSettings(), listed)
    assert admission.is_offsite(Request("http://b.example/")) == bool(listed)
    listed += ["c.example", "http://d.example/"]
    assert admission.refusal(Request("http://b.example/"), depth=1) == "offsite_filtered"
    assert admission.refusal(Request("http://c.example/"), depth=1) is None
    assert "'http://d.example/': it has no effect" in caplog.text
    listed.append("b.example")
    assert admission.refusal(Request("http://b.example/"), depth=1) is None


def test_one_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="not one text"):
        AdmissionRules(SchedulerSettings(), "a.example")


def test_answers_by_host_are_forgotten_before_they_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.scheduler.admission_rules.HOSTS_REMEMBERED", 2)
    admission = AdmissionRules(SchedulerSettings(), ["a.example"])
    hosts = [f"http://h{i}.example/" for i in range(5)]
    assert all(admission.is_offsite(Request(url)) for url in [*hosts, *hosts])


def test_an_address_that_is_not_public_is_refused_until_a_start_request_is_there() -> None:
    admission = AdmissionRules(SchedulerSettings(), guard=AddressGuard())
    inside, outside = Request("http://10.0.0.1/"), Request("http://a.example/")
    assert not admission.note_start(outside)
    assert admission.refusal(inside, depth=1) == "private_addresses_refused"
    assert admission.refusal(outside, depth=1) is None
    assert admission.note_start(Request("http://localhost:8000/"))
    assert admission.refusal(inside, depth=1) is None


def test_a_job_that_goes_on_opens_what_it_had_opened() -> None:
    admission = AdmissionRules(SchedulerSettings(), guard=AddressGuard())
    admission.open_addresses()
    assert admission.refusal(Request("http://10.0.0.1/"), depth=1) is None
    unguarded = AdmissionRules(SchedulerSettings())
    unguarded.open_addresses()
    assert not unguarded.note_start(Request("http://10.0.0.1/"))
    assert unguarded.refusal(Request("http://10.0.0.1/"), depth=1) is None
