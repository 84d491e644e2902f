from __future__ import annotations

import msgspec
import pytest

from trawl.errors import SettingsError
from trawl.observe import ObserveSettings
from trawl.settings import Settings, load


class Own(msgspec.Struct, frozen=True, rename="upper"):
    text: str = "a,b"
    number: float = 2.7
    flag: str = "False"
    table: str = '{"a": 1}'
    codes: tuple[int, ...] = (1, 2)
    nothing: str | None = None


@pytest.fixture
def settings() -> Settings:
    return Settings({Own: Own()}, {"TEXT": "-s"})


def test_settings_are_a_mapping_of_all_names(settings: Settings) -> None:
    assert list(settings) == ["TEXT", "NUMBER", "FLAG", "TABLE", "CODES", "NOTHING"]
    assert len(settings) == 6
    assert settings["NUMBER"] == 2.7
    assert settings.get("MISSING") is None
    with pytest.raises(KeyError):
        settings["MISSING"]


def test_settings_cannot_be_changed(settings: Settings) -> None:
    with pytest.raises(TypeError):
        settings["NUMBER"] = 3
    settings.copy_to_dict()["NUMBER"] = 3
    assert settings["NUMBER"] == 2.7


def test_scrapy_accessors_convert(settings: Settings) -> None:
    assert settings.getbool("FLAG") is False
    assert settings.getbool("NUMBER") is True
    assert settings.getbool("MISSING", True) is True
    assert settings.getint("NUMBER") == 2
    assert settings.getfloat("MISSING", 1.5) == 1.5
    assert settings.getlist("TEXT") == ["a", "b"]
    assert settings.getlist("CODES") == [1, 2]
    assert settings.getlist("NOTHING") == []
    assert settings.getdict("TABLE") == {"a": 1}
    assert settings.getdict("NOTHING") == {}


def test_a_section_is_given_whole(settings: Settings) -> None:
    assert settings.of(Own) == Own()
    with pytest.raises(KeyError):
        settings.of(ObserveSettings)


def test_a_value_knows_where_it_came_from(settings: Settings) -> None:
    assert (settings.source("TEXT"), settings.source("NUMBER")) == ("-s", "default")
    with pytest.raises(KeyError):
        settings.source("MISSING")
    assert repr(settings) == "Settings(TEXT='a,b')"


def test_equal_settings_are_equal() -> None:
    assert load() == load()


@pytest.mark.parametrize("accessor", ["getbool", "getint", "getfloat", "getlist", "getdict", "__getitem__", "source"])
def test_a_name_that_is_misspelled_is_refused_with_the_nearest(accessor: str) -> None:
    with pytest.raises(SettingsError, match=r"; did you mean DOWNLOAD_DELAY\?$") as raised:
        getattr(load(), accessor)("DOWNLOAD_DELAYS")
    assert isinstance(raised.value, KeyError)
    assert load().get("DOWNLOAD_DELAYS") is None
    assert "DOWNLOAD_DELAYS" not in load()


def test_a_name_of_the_users_own_is_to_be_declared_or_to_have_a_default() -> None:
    with pytest.raises(SettingsError, match="own_settings of the spider"):
        load().getint("XYZZY")
    assert load().getint("XYZZY", 3) == 3
    assert load().getlist("XYZZY", None) == []


def test_scrapys_settings_that_mean_nothing_here_are_empty() -> None:
    settings = load()
    assert (settings.getbool("TELNETCONSOLE_ENABLED"), settings.getint("TELNETCONSOLE_ENABLED")) == (False, 0)
