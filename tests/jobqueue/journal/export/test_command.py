"""`jobqueue journal export` as it is typed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobqueue.cli.main import main
from tests.jobqueue.journal.export.exporting import lives
from tests.jobqueue.journal.filling import DAY, DAY_MS, fill, found, position_of

ROOT = Path(__file__).parents[4]


def cli(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["journal", "export", *arguments], env=environment)


def test_the_command_tells_what_it_wrote(sqlite_url: str, tmp_path: Path) -> None:
    asyncio.run(found(sqlite_url))
    asyncio.run(fill(sqlite_url, events=lives(2, DAY), positions=[position_of(DAY + 2 * DAY_MS)]))
    ran = cli("--out", str(tmp_path / "out"), "--what", "events,deliveries", JOBQUEUE_JOURNAL=sqlite_url)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "events: 8; new files: 1; days closed: 1",
        "deliveries: 2; new files: 1; days closed: 1",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "x"], "name the journal by --from, --from-file or JOBQUEUE_JOURNAL"),
        (["--from", "sqlite:///x.db", "--from-file", "f", "--out", "x"], "--from and --from-file exclude each other"),
        (["--from", "sqlite:////no/such/file", "--out", "x"], "there is no file /no/such/file"),
        (["--from", "redis://:s3cret@h", "--out", "x"], "not the URL of a journal"),
        (
            ["--from", "sqlite:///x.db", "--out", "x", "--what", "events,all"],
            "'events,all' is not one or more of events,",
        ),
        (["--from", "sqlite:///x.db", "--out", "x", "--since", "yesterday"], "'yesterday' does not match"),
    ],
)
def test_what_cannot_begin_ends_with_code_2_and_a_sentence(arguments: list[str], words: str) -> None:
    ran = cli(*arguments)
    assert ran.exit_code == 2
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr and "s3cret" not in ran.stderr


def test_without_pyarrow_the_extra_is_named(sqlite_url: str) -> None:
    without = (
        "import sys; from jobqueue.cli.main import main; import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name: None if name == 'pyarrow' else find(name); main()"
    )
    program = [sys.executable, "-c", without, "journal", "export", "--from", sqlite_url, "--out", "x"]
    ran = subprocess.run(program, check=False, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 2
    assert "Error: the export needs the library pyarrow: install the extra [journal-parquet] of" in ran.stderr
    assert "pip install 'pyarrow>=18'\n" in ran.stderr
