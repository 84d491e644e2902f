"""Names, defaults, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trawl.errors import SettingsError
from trawl.throttling import ThrottlingManager, ThrottlingSettings

DEFAULTS: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 16,  # A11
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,  # A03
    "CONCURRENT_REQUESTS_PER_IP": 0,  # I05
    "PAGES_PER_DOMAIN": 0,  # C11: no budget
    "DOWNLOAD_DELAY": 1.0,  # A05
    "DOWNLOAD_DELAY_PER_SLOT": 1.0,  # A06
    "RANDOMIZE_DOWNLOAD_DELAY": True,  # A17
    "THROTTLING_SCOPES": {},  # A14: no site is in the defaults
    "THROTTLING_MANAGER": "trawl.throttling.ThrottlingManager",  # E06
    "THROTTLING_SCOPE_MANAGER": "trawl.throttling.ThrottlingScopeManager",  # E17
    "THROTTLING_WINDOW": 60.0,  # F02
    "THROTTLING_ROBOTSTXT_OBEY": True,  # D09
    "THROTTLING_ROBOTSTXT_MAX_DELAY": 60.0,  # D10
    "THROTTLING_RATELIMIT_OBEY": True,  # D07
    "THROTTLING_RATELIMIT_MAX_DELAY": 60.0,  # D07
    "THROTTLING_SCOPE_LIMIT": 100_000,  # I01
    "THROTTLING_SHARED": True,
    "THROTTLING_SCOPE_MAX_IDLE": 3600.0,
    "DELAYED_REQUESTS_WARN_THRESHOLD": 500,  # F10
    "BACKOFF_HTTP_CODES": [429, 502, 503, 504, 520, 521, 522, 523, 524],  # B01
    "BACKOFF_DELAY_FACTOR": 2.0,  # B03
    "BACKOFF_MAX_DELAY": 300.0,  # B04
    "BACKOFF_MIN_DELAY": 1.0,  # B05
    "BACKOFF_JITTER": 0.1,  # B06
    "BACKOFF_WINDOW": 60.0,  # B07
    "BACKOFF_CONCURRENCY_FACTOR": 0.5,  # B15
    "BACKOFF_GIVE_UP_AFTER": 900.0,  # B20
    "RAMPUP_BACKOFF_TARGET": 1,  # C02
    "AUTOTHROTTLE_ENABLED": False,  # H01
    "AUTOTHROTTLE_START_DELAY": 5.0,
    "AUTOTHROTTLE_MAX_DELAY": 60.0,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 1.0,
    "AUTOTHROTTLE_DEBUG": False,
}


def test_the_defaults_are_the_fields_to_the_letter() -> None:
    values = msgspec.to_builtins(ThrottlingSettings())
    exceptions = values.pop("BACKOFF_EXCEPTIONS")  # B02
    assert exceptions == [
        "trawl.exceptions.ConnectTimeout",
        "trawl.exceptions.ReadTimeout",
        "trawl.exceptions.ConnectFailed",
        "trawl.exceptions.ResponseBroken",
    ]
    assert values == DEFAULTS


def of(**given: Any) -> ThrottlingSettings:
    return msgspec.convert({key.upper(): value for key, value in given.items()}, ThrottlingSettings)


@pytest.mark.parametrize(
    ("scopes", "words"),
    [
        ({"api": {"dely": 1}}, r"THROTTLING_SCOPES\['api'\] has an unknown key 'dely'; did you mean 'delay'"),
        (
            {"api": {"colour": 1}},
            r"THROTTLING_SCOPES\['api'\] has an unknown key 'colour'; known are backoff, bandwidth",
        ),
        ({"api": {"backoff": {"min_delay": 9, "max_delay": 3}}}, r"\['backoff'\]\['min_delay'\] \(9 s\) is above"),
        ({"api": {"backoff": {"delay_factor": 1}}}, r"\['delay_factor'\] must be a number > 1.0, not 1$"),
        ({"api": {"backoff": {"http_codes": [429, "x"]}}}, r"\['http_codes'\] must be a whole number at \[1\], not"),
        ({"api": {"rampup": "yes"}}, r"\['rampup'\] must be true or false or a mapping, not 'yes'$"),
        ({"api": {"delay": "fast"}}, r"THROTTLING_SCOPES\['api'\]\['delay'\].*'fast'"),
        ({"api": {"delay": -1}}, r"THROTTLING_SCOPES\['api'\]\['delay'\]"),
        ({"api": {"delay": float("nan")}}, r"THROTTLING_SCOPES\['api'\]\['delay'\] must be a finite number"),
        ({"api": {"concurrency": 0}}, r"\['concurrency'\]"),
        ({"api": {"concurrency": 1.5}}, r"\['concurrency'\]"),
        ({"api": {"rate": 4, "delay": 1}}, "both 'rate' and 'delay'"),  # I06
        ({"api": {"rate": 0}}, r"\['rate'\]"),
        ({"api": {"jitter": [2, 1]}}, r"\['jitter'\]"),
        ({"api": {"backoff": {"windw": 1}}}, r"\['backoff'\] has an unknown key 'windw'; did you mean 'window'"),
        ({"api": {"backoff": {"exceptions": ["builtins.Nope"]}}}, "builtins.Nope"),
        ({"api": {"backoff": {"exceptions": ["builtins.int"]}}}, "exception class"),
        ({"api": {"backoff": {"cls": "nowhere.Strategy"}}}, "nowhere.Strategy"),
        (
            {"api": {"rampup": {"target": 1}}},
            r"unknown key 'target'; did you mean 'backoff_target'",
        ),
        ({"api": {"rampup": {"backoff_target": [3, 1]}}}, "backoff_target"),
        ({"api": {"manager": "nowhere.Manager"}}, "nowhere.Manager"),
        ({"api": {"sliding": "yes"}}, r"\['sliding'\]"),
    ],
)
def test_i03_a16_wrong_scopes_are_refused_naming_the_entry(scopes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        ThrottlingSettings(throttling_scopes=scopes)


def test_a16_b12_every_key_has_valid_values() -> None:
    config = {
        "concurrency": 2, "delay": 0.5, "delay_per_slot": 1, "jitter": [-0.1, 0.3], "quota": 100, "window": 60,
        "sliding": True,
        "ignore_robots_txt": True, "manager": "trawl.throttling.ThrottlingScopeManager",
        "rampup": {"backoff_target": [1, 3], "delay_factor": 0.8, "min_delay": 0.0, "window": 5},
        "backoff": {
            "http_codes": [429, 503], "exceptions": ["builtins.IOError"], "delay_factor": 1.2, "max_delay": 180.0,
            "min_delay": 5.0, "jitter": [0.01, 0.33], "window": 30.0, "concurrency_factor": 0.8,
        },
    }  # fmt: skip
    scopes: Any = {"api": config, "other": {"rate": 4, "rampup": True, "backoff": {"jitter": False}}}
    assert of(throttling_scopes=scopes).throttling_scopes["api"]["backoff"]["max_delay"] == 180.0


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"backoff_exceptions": ["nowhere.Error"]}, "BACKOFF_EXCEPTIONS"),
        ({"randomize_download_delay": 3.0}, "RANDOMIZE_DOWNLOAD_DELAY"),
        ({"backoff_jitter": [1.0, 0.0]}, "BACKOFF_JITTER"),
        ({"rampup_backoff_target": [3, 1]}, "RAMPUP_BACKOFF_TARGET"),
        ({"rampup_backoff_target": 0}, "RAMPUP_BACKOFF_TARGET"),
        ({"throttling_manager": "nowhere.Manager"}, "THROTTLING_MANAGER"),
        ({"throttling_scope_manager": "nowhere.Manager"}, "THROTTLING_SCOPE_MANAGER"),
        ({"backoff_min_delay": 9.0, "backoff_max_delay": 3.0}, "BACKOFF_MIN_DELAY"),
        ({"autothrottle_enabled": True, "download_delay": 61.0}, "AUTOTHROTTLE_MAX_DELAY"),  # H06
    ],
)
def test_i03_what_crosses_or_can_not_be_imported_is_refused(given: dict[str, Any], name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        of(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"autothrottle_target_concurrency": 0.0},  # H01
        {"download_delay": -1.0},
        {"backoff_delay_factor": 1.0},
        {"backoff_concurrency_factor": 1.0},
        {"concurrent_requests": -1},
    ],
)
def test_h01_i03_values_out_of_range_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        of(**given)


@pytest.mark.parametrize("number", [10**400, 10**5000, 1e301], ids=["400", "5000", "1e301"])
@pytest.mark.parametrize("key", ["concurrency", "pages", "delay", "quota", "rate"])
def test_i03_a_number_beyond_reason_is_refused_in_a_line_naming_the_entry(key: str, number: float) -> None:
    with pytest.raises(SettingsError, match=r"^THROTTLING_SCOPES\['api'\]\['" + key + r"'\] must be at most 1e\+300$"):
        ThrottlingSettings(throttling_scopes={"api": {key: number}})  # type: ignore[misc]


@pytest.mark.parametrize(
    "name", ["CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN", "CONCURRENT_REQUESTS_PER_IP"]
)
def test_i03_nor_can_so_many_requests_be_in_flight_anywhere(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} must be at most 1e\+300$"):
        msgspec.convert({name: 10**400}, ThrottlingSettings)


def test_i06_a_rate_whose_delay_never_ends_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"\['rate'\] is so low that nothing would ever be sent"):
        ThrottlingSettings(throttling_scopes={"api": {"rate": 1e-320}})


def test_e06_a_manager_may_be_a_class() -> None:
    assert ThrottlingSettings(throttling_manager=ThrottlingManager).throttling_manager is ThrottlingManager


class Empty:
    limit = 3


class Made:
    @classmethod
    def from_crawler(cls, crawl: object) -> object:
        return ThrottlingManager()


class OfRequests:
    def get_scopes(self, request: object) -> str:
        return "api"


def test_a_manager_without_a_method_that_is_called_is_told() -> None:
    [told] = ThrottlingSettings(throttling_manager=Empty).mistyped_methods()
    assert told == "THROTTLING_MANAGER: Empty has no effect, because it has no method that trawl calls"
    for manager in (Made, ThrottlingManager, OfRequests):
        assert not list(ThrottlingSettings(throttling_manager=manager).mistyped_methods())
