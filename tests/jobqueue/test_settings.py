"""Settings: file < environment < flags, and clear words for what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, load
from tests.acceptance.service import ROOT


def test_the_file_in_conf_has_every_setting_with_its_default_and_a_comment() -> None:
    text = (ROOT / "conf/jobqueue.toml").read_text()
    assert tomllib.loads(text) == msgspec.to_builtins(Settings())
    assert list(tomllib.loads(text)) == list(Settings.__struct_fields__)
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    assert all("#" in line for line in lines)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text('port = 1\nhost = "file"\nnamespace = "file"\n')
    environment = {"JOBQUEUE_PORT": "2", "JOBQUEUE_HOST": "environment", "JOBQUEUE_CONFIG": str(file), "HOME": "/"}
    chosen = load({"port": 3, "host": None}, None, environment)
    assert (chosen.port, chosen.host, chosen.namespace) == (3, "environment", "file")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"JOBQUEUE_PROT": "1"}, "prot that there is not; did you mean port?"),
        ({"JOBQUEUE_PORT": "many"}, "port in the environment: Expected `int`"),
        ({"JOBQUEUE_PORT": "70000"}, "port in the environment: Expected `int` <= 65535"),
        ({"JOBQUEUE_LOG_LEVEL": "loud"}, "log_level in the environment"),
        ({"JOBQUEUE_NAMESPACE": "a b"}, "namespace in the environment"),
        ({"JOBQUEUE_CONFIG": "/nowhere.toml"}, "/nowhere.toml cannot be read"),
    ],
)
def test_a_wrong_setting_is_told_with_its_name_and_source(environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as told:
        load({}, None, environment)
    assert words in str(told.value)


def test_the_links_that_kubernetes_sets_for_a_service_of_our_name_are_no_settings() -> None:
    links = {
        "JOBQUEUE_SERVICE_HOST": "10.0.0.1",
        "JOBQUEUE_PORT": "tcp://10.0.0.1:8000",
        "JOBQUEUE_PORT_8000_TCP_ADDR": "10.0.0.1",
    }
    assert load({}, None, links) == Settings()


def test_where_the_command_line_finds_a_service_is_no_setting() -> None:
    assert load({}, None, {"JOBQUEUE_URL": "http://127.0.0.1:8000"}) == Settings()


def test_a_default_ttr_that_no_job_may_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="default_ttr_s must be 0"):
        load({}, None, {"JOBQUEUE_DEFAULT_TTR_S": "0.01"})


def test_a_file_that_is_not_toml_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("port = \n")
    with pytest.raises(SettingsError, match=r"bad\.toml is not TOML.*line 1"):
        load({}, str(file), {})
