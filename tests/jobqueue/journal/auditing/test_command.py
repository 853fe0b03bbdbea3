"""`jobqueue audit`, as it is typed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobqueue.cli.main import main
from jobqueue.journal.database import open_store
from tests.jobqueue.journal.auditing.test_questions import delivered
from tests.jobqueue.journal.telling import NOW, Teller
from tests.kit.shell import Shell

SINCE = ("--since", str(NOW // 1000), "--until", str(NOW // 1000 + 3600))


@pytest.fixture
async def url(sqlite_url: str) -> str:
    """A journal with deliveries of two topics."""
    await _filled(sqlite_url)
    return sqlite_url


async def _filled(url: str) -> None:
    store = await open_store(url)
    late = [delivered(f"a{number}", NOW + 9000, 1500, "w1") for number in range(3)]
    await Teller(store).tell(*late, delivered("b", NOW + 9000, 0, topic="=1+2\u202e"))
    await store.close()


async def test_an_answer_is_a_table_json_or_csv(url: str) -> None:
    shell = Shell("", JOBQUEUE_JOURNAL=url)
    ran = await shell.run("audit", "waited", "--over", "1s", *SINCE)
    assert ran.code == 0
    answer = ran.json
    assert answer.pop("notes") and answer.pop("since") == NOW // 1000
    assert answer["rows"][0] == {"topic": "t", "deliveries": 3, "waited": 3, "percent": 100.0, "most_s": 1.5}
    csv = await shell.run("audit", "waited", "--csv", *SINCE)
    assert csv.out.splitlines()[:2] == ["topic,deliveries,waited,percent,most_s", "t,3,3,100.0,1.5"]
    assert "note: the journal goes back to" in csv.err
    shown = await shell.shown("audit", "late", *SINCE)
    assert "late from 2023-11-14 22:13:20.000 to 2023-11-14 23:13:20.000 UTC" in shown
    assert "topic" in shown and "percent" in shown
    assert "=1+2\\u202e" in shown and "\u202e" not in shown
    assert "note: the journal has what was recorded until 2023-11-14 22:13:20.000 UTC" in shown


async def test_options_narrow_the_question(url: str) -> None:
    shell = Shell("")
    ran = await shell.run("audit", "waited", "--by", "worker", "--topic", "t*", "--from", url, *SINCE)
    assert [row["worker"] for row in ran.json["rows"]] == ["w1"]
    assert (await shell.run("audit", "waited", "--from", url)).json["rows"] == []
    assert "nothing" in await shell.shown("audit", "gaps", "--from", url)


async def test_the_journal_is_named_by_the_settings_too(url: str, tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text(f'journal = "{url}"\n')
    ran = await Shell("").run("audit", "volume", "--config", str(config), *SINCE)
    assert [row["topic"] for row in ran.json["rows"]] == ["=1+2\u202e", "t"]


def test_what_goes_wrong_is_told_in_a_sentence_and_by_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBQUEUE_JOURNAL", raising=False)
    url = f"sqlite:///{tmp_path}/journal.db"
    asyncio.run(_filled(url))
    secret = tmp_path / "url"
    secret.write_text(url)
    wrong = [
        (["late", "--over", "2s", "--from", url], 2, "--over is one of 0.0005, 0.001, "),
        (["late", "--over", "soon", "--from", url], 2, "'soon' is not a duration"),
        (["late", "--over", "-1", "--from", url], 2, "--over must be from 0 to ten years"),
        (["waited", "--over", "1e300", "--from", url], 2, "--over must be from 0 to ten years"),
        (["waited", "--since", "-99999999999999999999", "--from", url], 2, "is before 1970"),
        (["late", "--since", "1d", "--until", "2d", "--from", url], 2, "--since must be before --until"),
        (["late", "--since", "2100-01-01", "--from", url], 2, "is not over yet"),
        (["late", "--since", "once", "--from", url], 2, "or how long ago, such as 7d"),
        (["late", "--topic", "a b", "--from", url], 2, "'a b' is no name of a topic"),
        (["late", "--by", "worker", "--from", url], 2, "'worker' is not one of 'topic', 'hour', 'day'"),
        (["late", "--json", "--csv", "--from", url], 2, "--json and --csv exclude each other"),
        (["late"], 2, "the journal is not named: give --from, --from-file, JOBQUEUE_JOURNAL or the setting journal"),
        (["late", "--from", "redis://x"], 2, "not the URL of a journal"),
        (["late", "--from", f"sqlite:///{tmp_path}/none.db"], 2, "there is no file"),
        (["late", "--from", "postgresql://u:geheim@127.0.0.1:1/x"], 2, ""),
        (["late", "--from", url, "--source", "x"], 2, "the journal has no source x; it has jq"),
        (["late", "--from", url, "--from-file", str(secret)], 2, "--from and --from-file exclude each other"),
        (["late", "--from-file", str(secret)], 0, ""),
        (["nothing"], 2, "No such command 'nothing'"),
    ]
    for arguments, code, words in wrong:
        ran = CliRunner().invoke(main, ["audit", *arguments])
        said = " ".join(ran.output.split())
        assert ran.exit_code == code, (arguments, ran.output)
        assert words in said, (arguments, said)
        if "geheim" in "".join(arguments):
            assert "everybody on this machine can see the password" in said
            assert "geheim" not in said
