from __future__ import annotations

import msgspec

from trawl.settings import SECTIONS, definitions
from trawl.settings.check import checked


def test_every_setting_belongs_to_one_section_and_has_a_description() -> None:
    """I03: the reference is made from these."""
    everything = list(definitions())
    names = [definition.name for definition in everything]
    assert len(names) == len(set(names))
    assert [d.name for d in everything if not d.description.endswith(".")] == []
    assert [d.name for d in everything if d.name != d.name.upper()] == []


def test_every_default_is_a_value_of_its_own_type() -> None:
    for definition in definitions():
        assert checked(definition.default, definition.annotation, definition.name) == definition.default


def test_sections_are_frozen() -> None:
    assert [section.value.__name__ for section in SECTIONS if not section.value.__struct_config__.frozen] == []


def test_a_duration_carries_its_unit() -> None:
    by_name = {definition.name: definition for definition in definitions()}
    assert (by_name["LOGSTATS_INTERVAL"].unit, by_name["LOGSTATS_INTERVAL"].range) == ("s", "at least 0")


def test_defaults_are_made_anew() -> None:
    for section in SECTIONS:
        assert msgspec.structs.asdict(section.value()) == msgspec.structs.asdict(section.value())


def test_the_keys_of_typed_mappings_are_defined_too() -> None:
    """I03, I04, A16."""
    by_name = {definition.name: definition for definition in definitions()}
    keys = {key.name: key for key in by_name["THROTTLING_SCOPES"].keys}
    assert {
        "concurrency",
        "delay",
        "delay_per_slot",
        "rate",
        "jitter",
        "backoff",
        "rampup",
        "quota",
        "window",
    } < keys.keys()
    assert (keys["delay"].unit, keys["delay"].type, keys["delay"].range) == ("s", "a number", "at least 0")
    assert {key.name for key in keys["rampup"].keys} == {"backoff_target", "delay_factor", "min_delay", "window"}
    assert {key.name for key in keys["backoff"].keys} == {
        "cls",
        "concurrency_factor",
        "delay_factor",
        "exceptions",
        "http_codes",
        "jitter",
        "max_delay",
        "min_delay",
        "window",
    }


def test_every_key_of_a_scope_tells_what_holds_without_it() -> None:
    """I03, B12, C03: default, unit and range of every key, for the reference."""
    names = {definition.name for definition in definitions()}
    scopes = next(definition for definition in definitions() if definition.name == "THROTTLING_SCOPES")
    keys = {key.name: key for key in scopes.keys}
    for key in (*keys.values(), *keys["backoff"].keys, *keys["rampup"].keys):
        assert key.absent, key.name
        assert key.description.endswith("."), key.name
        named = {word for word in key.absent.split() if word.isupper() and not word.endswith("...")}
        assert named <= names, key.name
    longest = next(key for key in keys["backoff"].keys if key.name == "max_delay")
    assert (longest.unit, longest.range, longest.absent) == ("s", "at least 0", "BACKOFF_MAX_DELAY")
    assert keys["jitter"].range == "a number from 0 to 1, or a pair from -1 up in rising order"
    assert keys["manager"].type == "a class or its import path"
