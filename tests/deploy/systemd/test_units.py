"""The files of deploy/systemd, judged by systemd's own tools and against the settings that they go with."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobqueue import settings
from jobqueue.cli.journal.draining import NOT_BEGUN
from jobqueue.journal.reading.running import STOPPED_S
from tests.deploy.programs import program
from tests.deploy.systemd.unit import FOLDER, Unit
from tests.kit.service import ROOT

UNITS = ("jobqueue.service", "jobqueue-callbacks@.service", "jobqueue-journal.service", "jobqueue-console.service")
INSTALLED = "/opt/jobqueue/bin/jobqueue"
_WORST = 20  # tenths of the exposure that `systemd-analyze security` finds


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("systemd-analyze"), *arguments], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the units, in which the program is one that is there."""
    for name in UNITS:
        text = (FOLDER / name).read_text()
        assert INSTALLED in text
        (tmp_path / name).write_text(text.replace(INSTALLED, sys.executable))
    return tmp_path


@pytest.mark.parametrize("name", UNITS)
def test_systemd_has_nothing_to_say_about_a_unit(name: str, installed: Path) -> None:
    found = analyze("verify", "--man=no", installed / name)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_exposes_little(name: str, installed: Path) -> None:
    found = analyze("security", "--offline=true", f"--threshold={_WORST}", "--no-pager", installed / name)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Overall exposure level" in found.stdout


def test_a_stop_is_given_the_time_that_the_service_takes() -> None:
    """The workers have `grace_s` and 2 s, and a Redis of its own has `grace_s` after that."""
    unit = Unit(FOLDER / "jobqueue.service")
    assert int(unit.one("TimeoutStopSec")) > 2 * settings.load(file=str(FOLDER / "jobqueue.toml")).grace_s + 2
    assert unit.one("KillMode") == "mixed"


def test_a_stop_is_given_the_time_that_the_batch_of_a_journal_takes() -> None:
    unit = Unit(FOLDER / "jobqueue-journal.service")
    assert int(unit.one("TimeoutStopSec")) > STOPPED_S


def test_a_journal_that_could_not_begin_is_not_started_again_and_again() -> None:
    unit = Unit(FOLDER / "jobqueue-journal.service")
    assert unit.one("Restart") == "on-failure" and int(unit.one("RestartPreventExitStatus")) == NOT_BEGUN


def test_a_stop_is_given_the_time_that_callbacks_take() -> None:
    unit = Unit(FOLDER / "jobqueue-callbacks@.service", "example-callback")
    (said,) = re.findall(r"`TimeoutStopSec` must be longer than the (\d+) s", (ROOT / "docs/callbacks.md").read_text())
    assert int(unit.one("TimeoutStopSec")) > int(said)


def test_the_settings_ask_for_tokens_and_name_what_the_unit_gives() -> None:
    unit = Unit(FOLDER / "jobqueue.service")
    chosen = settings.load(file=str(FOLDER / "jobqueue.toml"))
    assert chosen.access == "tokens"
    assert chosen.tokens_file == f"{unit.credentials}/tokens.toml"
    assert chosen.data == f"/var/lib/{unit.one('StateDirectory')}"


def test_every_credential_that_may_be_switched_on_is_named_alike_in_both_files(tmp_path: Path) -> None:
    text = (FOLDER / "jobqueue.service").read_text().replace("\n#LoadCredential", "\nLoadCredential")
    (tmp_path / "jobqueue.service").write_text(text)
    unit = Unit(tmp_path / "jobqueue.service")
    given = {f"{unit.credentials}/{line.partition(':')[0]}" for line in unit.all("LoadCredential")}
    assert given == set(re.findall(r'"(/run/credentials/[^"]+)"', (FOLDER / "jobqueue.toml").read_text()))
    assert len(given) == 3


def test_the_console_reads_its_settings_and_the_unit_gives_what_they_may_name(tmp_path: Path) -> None:
    text = (FOLDER / "jobqueue-console.service").read_text().replace("\n#LoadCredential", "\nLoadCredential")
    (tmp_path / "jobqueue-console.service").write_text(text)
    unit = Unit(tmp_path / "jobqueue-console.service")
    file = (FOLDER / "console.toml").read_text()
    (tmp_path / "console.toml").write_text(file.replace("# console_", "console_"))
    chosen = settings.load_of_console({}, str(tmp_path / "console.toml"), {})
    assert chosen.console_hosts == ("queue-console.internal",)
    given = [f"{unit.credentials}/{line.partition(':')[0]}" for line in unit.all("LoadCredential")]
    assert given == [chosen.console_tls_key]
    assert unit.one("ExecStart").endswith("jobqueue console --config /etc/jobqueue/console.toml")


def test_the_kernel_knows_its_settings() -> None:
    lines = [line for line in (FOLDER / "60-jobqueue.conf").read_text().splitlines() if line and line[0] != "#"]
    names = [line.split(" = ")[0] for line in lines]
    assert names == ["vm.overcommit_memory", "net.core.somaxconn"]
    for name in names:
        assert Path("/proc/sys", *name.split(".")).exists()
