"""`jobqueue restore`, as it is typed: its options, what it tells, its exit codes, and draining by itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from buckets.access import Actions
from buckets.events.switch import switch_off
from buckets.job import NewJob
from buckets.pool.pool import Pool
from jobqueue.access.grants import operator
from jobqueue.cli.journal import restoring
from jobqueue.cli.main import main
from jobqueue.journal.restoring.reading import Progress, Sums
from tests.buckets.jobs import add, delete, finish, get, pop_one, state
from tests.jobqueue.journal.restoring.lost import World, world_of
from tests.jobqueue.journal.restoring.under_load import process
from tests.kit import forked
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

HOUR = 3_600_000


class Command:
    """Runs `jobqueue restore` on the tests' Redis and a journal."""

    def __init__(self, redis: str, journal: str) -> None:
        self._redis, self._journal = redis, journal

    async def __call__(self, *arguments: str, journal: str | None = None) -> tuple[int, str, str]:
        environment = {**os.environ, "JOBQUEUE_REDIS": self._redis, "JOBQUEUE_JOURNAL": journal or self._journal}
        return await forked.ran(("restore", *arguments), environment)


@pytest.fixture
def restore(world: World, redis_server: RedisServer, sqlite_url: str) -> Command:
    return Command(redis_server.url, sqlite_url)


async def lose(world: World) -> None:
    await world.drained()
    await world.lose()


async def test_what_came_back_is_told_in_words_and_as_json(world: World, restore: Command) -> None:
    await add(world.pool, "lives")
    await add(world.pool, "later", "u", delay_ms=HOUR)
    await lose(world)
    assert await restore("--all", "--dry-run") == (0, "2 looked at, 2 would come back (1 overdue)\n", "")
    code, out, err = await restore("--topic", "t*", "--json")
    assert (code, err) == (0, "")
    counts = {"looked": 1, "put": 1, "overdue": 1}
    assert json.loads(out) == {"run": 1, "counts": counts, "left": {}, "older": [], "stopped": None}
    told = "2 looked at, 1 came back\n1 known to Redis, which keeps what it has\n"
    assert await restore("--all") == (0, told, "")
    assert await state(world.pool, "later") == "delayed"


async def test_what_changes_something_is_in_the_log_of_actions_with_who_did_it_and_how_many_came_back(
    world: World, restore: Command
) -> None:
    for name in ("a", "b", "c"):
        await add(world.pool, name, "t" if name == "a" else "u", delay_ms=HOUR)
    await lose(world)
    for arguments in (["--all", "--dry-run"], ["--forgotten"]):
        assert (await restore(*arguments))[0] == 0
    for arguments in (["--topic", "t"], ["b", "--ended"], ["--all"], ["--tokens"], ["nobody"]):
        await restore(*arguments)
    actions, _ = await Actions(world.pool).page(None, 10)
    assert {action.begun["actor"] for action in actions} == {operator()}
    told = [{**action.begun, **(action.outcome or {})} for action in reversed(actions)]
    assert [[each.get(name) for name in ("action", "name", "topic", "id", "code", "done")] for each in told] == [
        ["restore", "restore:1", "t", None, "OK", 1],
        ["restore ended", "restore:2", None, "b", "OK", 1],
        ["restore", "restore:3", None, None, "OK", 1],
        ["restore tokens", "restore:4", None, None, "OK", 0],
        ["restore", "restore:5", None, "nobody", "OK", 0],
    ]


async def test_ids_that_nobody_knows_are_told(world: World, restore: Command) -> None:
    await add(world.pool, "a")
    await lose(world)
    code, out, _ = await restore("a", "nobody")
    assert code == 1 and "left: 1 known to neither Redis nor the journal: nobody" in out
    assert await state(world.pool, "a") == "ready"


async def test_a_job_that_ended_comes_back_by_its_id_as_a_new_one(world: World, restore: Command) -> None:
    await add(world.pool, "ended")
    await finish(world.pool, "ended", (await pop_one(world.pool)).lease)
    await add(world.pool, "lost", delay_ms=HOUR)
    await lose(world)
    code, out, err = await restore("ended", "lost", "--ended")
    assert (code, out) == (0, "2 looked at, 2 came back\n"), err
    assert (await state(world.pool, "ended"), await state(world.pool, "lost")) == ("ready", "delayed")


async def test_an_earlier_time_is_restored_or_refused(world: World, restore: Command) -> None:
    await add(world.pool, "a", delay_ms=HOUR, retention_ms=0)
    then = await world.pool.now_us()
    await delete(world.pool, "a")
    await lose(world)
    code, _, err = await restore("--all", "--as-of", "1600000000")
    assert code == 2 and "the journal's events go back to 20" in err
    code, out, _ = await restore("--all", "--as-of", f"{then / 1e6:.6f}")
    assert (code, out) == (0, "1 looked at, 1 came back\n")
    assert await state(world.pool, "a") == "delayed"


async def test_forgotten_moves_are_told_where_there_were_none(restore: Command) -> None:
    assert await restore("--forgotten") == (0, "0 looked at, 0 would come back\n", "")
    assert await restore("--forgotten", "--apply") == (0, "0 looked at, 0 came back\n", "")


async def test_a_source_that_the_journal_does_not_have_is_refused_with_those_that_it_has(restore: Command) -> None:
    code, _, err = await restore("--all", "--source", "other")
    assert code == 2 and "the journal has nothing of the source other: it has jq; --source names one" in err


async def test_a_journal_that_is_no_journal_is_refused(restore: Command, tmp_path: Path) -> None:
    code, _, err = await restore("--all", journal=f"sqlite:///{tmp_path}/other.db")
    assert code == 2 and "there is no file" in err
    code, _, err = await restore("--all", journal="oracle://host/db")
    assert code == 2 and "postgresql://" in err
    code, _, err = await restore("--all", "--from", "postgresql://u:secret@127.0.0.1:1/db")
    assert code == 2 and "use --from-file" in err and "secret" not in err


async def test_a_namespace_that_is_not_there_is_not_founded(world: World, restore: Command) -> None:
    code, _, err = await restore("--all", "--namespace", "other", "--source", "jq")
    assert code == 2 and "there is no namespace other in this Redis" in err
    assert await world.pool.redis.read("EXISTS", "{other:0}:meta") == 0


async def test_a_redis_whose_events_are_off_is_refused(world: World, restore: Command) -> None:
    await add(world.pool, "a")
    await lose(world)
    await switch_off(world.pool, 0)
    code, _, err = await restore("--all")
    assert code == 2 and "events are off in shard 0" in err and "journal on" in err
    code, out, err = await restore("--all", "--stale")
    assert (code, out) == (0, "1 looked at, 1 came back (1 overdue)\n"), err


async def test_it_drains_by_itself_where_nobody_does(
    live_pool: Pool, redis_server: RedisServer, sqlite_url: str
) -> None:
    await live_pool.add([NewJob(f"j{n}", "t", b"1", retention_ms=0) for n in range(200)])
    async with world_of(live_pool, redis_server.url, sqlite_url) as world:
        await world.drained()
    jobs = (await live_pool.pop(["t"], 100)).jobs
    await live_pool.finish([(job.id, job.lease) for job in jobs])  # which nobody has read
    lost = [f"j{n}" for n in range(200) if f"j{n}" not in {job.id for job in jobs}][:50]
    await live_pool.redis.read("DEL", *(live_pool.keys[0].job(name) for name in lost))
    code, out, err = await Command(redis_server.url, sqlite_url)("--all", "--json")
    assert code == 0, err
    assert json.loads(out)["counts"] == {"looked": 100, "known": 50, "put": 50, "overdue": 50}
    assert (await get(live_pool, lost[0])).attempts == 0


def test_options_that_do_not_go_together_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[str], str]] = [
        ([], "say which jobs"),
        (["a", "--all"], "exclude each other"),
        (["--topic", "t", "--all"], "exclude each other"),
        (["a b"], "cannot be an id"),
        (["--topic", "a b"], "no name of a topic"),
        (["a", "--dead"], "come back in any state"),
        (["--all", "--ended"], "--ended goes with ids"),
        (["a", "--ended", "--as-of", "1"], "--ended goes with ids"),
        (["--all", "--apply"], "--apply goes with --forgotten"),
        (["--forgotten", "--all"], "goes without --all"),
        (["--resume", "--overdue", "skip"], "goes without --overdue"),
        (["--tokens", "--topic", "t"], "--tokens goes without --topic"),
        (["--tokens", "--forgotten"], "exclude each other"),
        (["--all", "--spread", "1h", "--overdue", "dead"], "--spread"),
        (["--all", "--spread", "soon"], "is not a duration"),
        (["--all", "--state", "dead"], "--dead is for dead letters"),
        (["--all", "--rate", "0"], "--rate"),
        (["--all", "--rate", "nan"], "--rate"),
        (["--all", "--as-of", "-1e30"], "is before 1970"),
        (["--all", "--as-of", "tomorrow"], "is not a time"),
        (["--all", "--as-of", "tomorrow 09:00"], "is not over yet"),
        (["--resume", "--dry-run"], "--dry-run"),
    ]
    for arguments, why in cases:
        with subtests.test(arguments=arguments, why=why):
            result = CliRunner().invoke(main, ["restore", *arguments])
            assert result.exit_code == 2 and why in result.output, result.output


def test_without_a_journal_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQUEUE_JOURNAL", raising=False)
    result: Any = CliRunner().invoke(main, ["restore", "--all"])
    assert result.exit_code == 2 and "the journal is not named: give --from" in result.output


async def test_a_run_that_was_interrupted_is_resumed(
    world: World, restore: Command, redis_server: RedisServer, sqlite_url: str
) -> None:
    await world.pool.add([NewJob(f"{topic}{n}", topic, b"1") for topic in "abcd" for n in range(100)])
    await lose(world)
    arguments = ("restore", "--all", "--rate", "100")
    for number in (signal.SIGKILL, signal.SIGINT):
        before = len(await world.records())
        async with process(*arguments, redis=redis_server.url, journal=sqlite_url) as run:
            await until(partial(_there_are, world, before + 100), 30.0, every_s=0.05)
            run.send_signal(number)
            assert await run.wait() == (1 if number == signal.SIGINT else -number)
        arguments = ("restore", "--resume", "--rate", "100")
    code, out, err = await restore("--resume", "--json")
    told = json.loads(out)
    assert (code, err, told["run"], told["stopped"]) == (0, "", 1, None)
    assert told["counts"]["put"] + told["counts"].get("known", 0) >= 400 and told["counts"]["looked"] < 700
    assert len(await world.records()) == 400
    code, _, err = await restore("--resume")
    assert code == 2 and "nothing to resume" in err


async def _there_are(world: World, jobs: int) -> bool:
    return len(await world.records()) >= jobs


def test_on_a_terminal_a_line_a_second_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sums = Sums()
    sums.counts.update(looked=1_200, put=1_000, known=150, ended=50)
    report = restoring.progress()
    report(Progress(sums, 5_000))
    report(Progress(sums, 5_000))  # within the same second
    assert capsys.readouterr().err == ("looked at 1,200, put 1,000, known 150, ended 50, without a body 0, of 5,000\n")
