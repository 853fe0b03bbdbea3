"""The command line from outside: real processes, piped and on a terminal, against a real service."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from aiohttp import web

from buckets.redis.client import Redis
from jobqueue import __version__
from jobqueue.schema import params
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell


@pytest.fixture
def shell(client: Client) -> Shell:
    return Shell(client.url)


async def test_a_worker_may_be_a_script_of_the_shell(shell: Shell) -> None:
    worker = """
        set -e
        jobqueue add orders '{"order": 1}' --id o:1 --delay 0.5 > /dev/null
        job=$(jobqueue pop orders --wait 20 --worker sh)
        id=$(echo "$job" | field id)
        jobqueue finish "$id" --lease "$(echo "$job" | field lease)"
        jobqueue pop orders || echo "$?"
    """
    ran = await shell.script(worker)
    finished, nothing, code = ran.out.splitlines()
    assert json.loads(finished) == {"success": True, "id": "o:1", "state": "finished"}
    assert json.loads(nothing) == {"success": True, "id": None, "value": None}
    assert code == "4"


async def test_each_command_of_the_protocol_answers_as_json_in_a_pipe(shell: Shell) -> None:
    steps: list[tuple[str, dict[str, Any]]] = [
        ("add t 1 --id a --priority 9 --backoff 0,0.1,2 --header k=v --tag x --tag y", {"state": "ready"}),
        ("add t 2 --id b --delay 60 --tries 3 --ttl 90 --retention 5 --if-exists reject --ttr 9", {"state": "delayed"}),
        ("get a", {"value": 1, "backoff": [0.0, 0.1, 2.0], "headers": {"k": "v"}, "tags": ["x", "y"]}),
        ("explain a", {"id": "a", "timeline": None}),
        ("schedule n --topic s --every 1h --start 2030-01-01T00:00:00Z --body [3]", {"next": 1893459600.0}),
        ("schedules n* --no-body", {"cursor": None}),
        ("unschedule n", {"live": 0}),
        ("update b --at 2030-01-01T00:00:00Z --body [3]", {"due": 1893456000.0}),
        ("run b", {"state": "ready"}),
        ("pop none t --ttr 30", {"id": "a", "ttr": 30.0}),
        ("touch a --ttr 50", {"state": "reserved"}),
        ("release a --delay 0 --no-attempt --reason later", {"state": "ready"}),
        ("pop t --count 5", {}),
        ("bury a --reason broken", {"state": "dead"}),
        ("leave web1:412:9f3a", {"worker": "web1:412:9f3a"}),
        ("kick a", {"count": 1}),
        ("finish b", {"state": "finished"}),
        ("delete a", {"state": "deleted", "was": "ready"}),
        ("pause t --seconds 9", {"topic": "t"}),
        ("resume t", {"was_paused": True}),
        ("stats t", {"counts": {"delayed": 0, "ready": 0, "reserved": 0, "dead": 0}}),
        ("figures t --since 90m --step 30m", {"topic": "t", "step": 1800}),
        ("forecast t --hours 2", {"topic": "t", "total": 0, "later": 0}),
        ("peek t --state dead", {"jobs": [], "cursor": None}),
        ("peek t --state delayed --from 2030-01-01T00:00:00Z --no-body", {"jobs": [], "cursor": None}),
        ("find x --topic t", {"jobs": [], "looked": 0, "cursor": None}),
        ("topics t*", {"cursor": None}),
        ("workers t", {"success": True}),
        ("instances", {"success": True, "shards": 1}),
        ("health", {"success": True}),
        ("settings", {"policies": [], "virtual_topics": {}}),
        ("purge t --yes", {"count": 0}),
        ("whoami", {"open": True}),
        ("actions --by nobody", {"actions": [], "cursor": None}),
    ]
    assert {step.split()[0] for step, _ in steps} == set(params.BY_NAME) - {"token", "operation"}
    for step, expected in steps:
        ran = await shell.run(*step.split())
        assert (ran.code, ran.err) == (0, ""), step
        assert ran.json.items() >= ({"success": True} | expected).items(), step


async def test_a_body_is_json_or_text_and_may_come_through_a_pipe(shell: Shell) -> None:
    assert (await shell.run("add", "t", "--id", "a", stdin=b'{"a" :\n [1, 2.50]}\n')).code == 0
    assert '"value":{"a" :  [1, 2.50]},' in (await shell.run("get", "a")).out
    assert (await shell.run("add", "t", "-", "--text", "--id", "b", stdin="ü\n".encode())).code == 0
    assert (await shell.run("get", "b")).json["value"] == "ü\n"
    refused = await shell.run("add", "t", "hello")
    assert (refused.code, refused.out) == (2, "")
    assert "BODY is not JSON" in refused.err
    assert "--text takes it as a string" in refused.err


async def test_a_job_is_moved_without_a_body_and_nothing_is_read_from_standard_input(shell: Shell) -> None:
    await shell.run("add", "t", "1", "--id", "a", "--delay", "5m", "--spread", "1m")
    moved = await shell.run("add", "t", "--id", "a", "--delay", "10m", "--if-exists", "later", stdin=b"7")
    assert (moved.code, moved.json["result"]) == (0, "moved")
    moved = await shell.run("add", "t", "-", "--id", "a", "--if-exists", "sooner", "--delay", "8m", stdin=b"7")
    assert (moved.code, moved.json["result"]) == (0, "moved")
    assert (await shell.run("pop", "t")).code == 4
    assert (await shell.run("get", "a")).json["value"] == 7
    kept = await shell.run("add", "t", "--id", "b", "--if-exists", "later")
    assert (kept.code, kept.err) == (
        1,
        "Error: add b: body is missing, and there is no job whose body could stay (BAD_FIELD)\n",
    )


async def test_what_goes_wrong_is_told_in_a_sentence_and_by_the_exit_code(shell: Shell) -> None:
    wrong = [
        (["get", "nobody"], 1, "Error: get nobody: no such job (NOT_FOUND)"),
        (["get", "a b"], 1, "id must be a string of 1 to 255"),
        (["add", "t", "1", "--delay", "-1"], 1, "delay must be a number of seconds"),
        (["add", "t", "1", "--delay", "soon"], 2, "'soon' is not a duration"),
        (["add", "t", "1", "--header", "k"], 2, "'k' is not of the form name=value"),
        (["add", "t", "1", "--dealy", "1"], 2, "No such option '--dealy'"),
        (["add", "t", "1", "--attempts", "3"], 2, "No such option '--attempts'; did you mean '--tries'?"),
        (["add", "t", "1", "--cron", "0 9 * * *"], 2, "a job that recurs is added by the command 'schedule'"),
        (["add", "1", "--queue", "t"], 2, "No such option '--queue'; did you mean 'TOPIC'?"),
        (["cancel", "a"], 2, "No such command 'cancel'; did you mean 'delete'?"),
        (["add"], 2, "Missing argument 'TOPIC'"),
        (["add", "t"], 2, "nothing came on standard input"),
        (["schedule", "n"], 2, "Missing option '--topic'"),
        (["schedule", "n", "--topic", "t"], 2, "nothing came on standard input"),
        (["schedule", "n", "--topic", "t", "--body", "1", "--every", "often"], 2, "'often' is not a duration"),
        (["schedule", "n", "--topic", "t", "--body", "1"], 1, "schedule takes either every or cron"),
        (["peek", "t", "--count", "0"], 2, "--count must be at least 1"),
        (["stats", "--watch", "t"], 2, "'t' is not a duration"),
        (["kick"], 2, "kick takes either ID or --topic"),
        (["kick", "--topic", "t", "--all", "--count", "3"], 2, "--all and --count exclude each other"),
        (["kick", "--topic", "t", "--all"], 2, "no terminal to ask on: use --yes"),
        (["purge", "t"], 2, "no terminal to ask on: use --yes"),
        (["stats", "--url", "http://127.0.0.1:1"], 3, "no service listens at http://127.0.0.1:1: connection refused"),
        (["stats", "--url", "nonsense"], 3, "that is not a URL such as http://127.0.0.1:8000"),
    ]
    for arguments, code, words in wrong:
        ran = await shell.run(*arguments)
        assert ran.code == code, arguments
        assert words in ran.err, arguments
        assert "Traceback" not in ran.err, arguments


async def test_a_refusal_is_an_answer_in_a_pipe_too(shell: Shell) -> None:
    assert (await shell.run("get", "nobody")).json["code"] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ('{"success":false,"error":"Redis did not answer in time","code":"UNAVAILABLE"}', 1, "in time (UNAVAILABLE)"),
        ("<h1>Service Unavailable</h1>", 3, "is not a job queue: status 503, text/html"),
        ("[]", 3, "is not a job queue"),
    ],
)
async def test_a_service_that_cannot_is_told_from_what_is_none(body: str, code: int, words: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=503, text=body, content_type="text/html")

    application = web.Application()
    application.router.add_post("/command", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    ran = await Shell(f"http://127.0.0.1:{port}").run("stats")
    await runner.cleanup()
    assert (ran.code, words in ran.err) == (code, True), ran


async def test_a_terminal_shows_tables(shell: Shell, client: Client) -> None:
    await client.ask("add", topic="orders", id="o:1", body={"order": 1}, delay=300)
    await client.ask("add", topic="orders", id="o:2", body="x" * 500)
    await client.ask("pause", topic="orders")
    job = await shell.shown("get", "o:1")
    assert [line.split() for line in job.splitlines()][:2] == [["id", "o:1"], ["state", "delayed"]]
    assert "(in 5 min)" in job or "(in 4 min 5" in job
    rows = (await shell.shown("peek", "orders")).splitlines()
    assert [row.split()[:2] for row in rows if "o:" in row] == [["o:1", "delayed"], ["o:2", "ready"]]
    assert all(len(row) <= 120 for row in rows)
    stats = await shell.shown("stats")
    assert "all topics" in stats
    assert "the oldest ready job has waited" in stats
    assert "█" in stats
    assert (await shell.shown("topics")).split()[-1] == "yes"  # paused
    async with shell.terminal("pop", "orders") as terminal:
        assert (await terminal.end(), terminal.text) == (4, "nothing is ready; orders is paused until it is resumed\n")
    assert json.loads(await shell.shown("get", "o:1", "--json"))["value"] == {"order": 1}


async def test_no_character_that_a_terminal_obeys_reaches_it(shell: Shell, client: Client) -> None:
    bad = "\x1b]0;owned\x07\x9b2J\u202e\r"
    await client.ask("add", topic="t", id="a", body={bad: bad}, headers={"h": bad}, tags=[bad])
    await client.ask("pop", topic="t", worker=bad)
    await client.ask("bury", id="a", reason=bad)
    for command in (("get", "a"), ("peek", "t"), ("get", "a", "--json")):
        async with shell.terminal(*command) as terminal:
            assert await terminal.end() == 0
        shown = terminal.text
        assert "owned" in shown
        assert not set(shown) & (set(bad) - set("]0;owned2J")), command


async def test_a_purge_asks_first_and_shows_how_far_it_is(shell: Shell, client: Client) -> None:
    await client.batch([{"command": "add", "topic": "t", "body": 1, "delay": 60 * (n % 2)} for n in range(400)])
    async with shell.terminal("purge", "t") as terminal:
        await terminal.see(r"Delete 400 jobs of t \(200 delayed, 200 ready\)\? \[y/N\]")
        terminal.type("n\n")
        assert await terminal.end() == 1
    async with shell.terminal("purge", "t", "--state", "ready") as terminal:
        await terminal.see(r"Delete 200 jobs of t \(200 ready\)\?")
        terminal.type("y\n")
        assert await terminal.end() == 0
    assert "200/200" in terminal.text
    assert ["count", "200"] in [line.split() for line in terminal.text.splitlines()]
    assert (await client.ask("stats", topic="t"))["counts"]["delayed"] == 200
    assert (await shell.run("purge", "t", "--yes")).json == {"success": True, "topic": "t", "count": 200}


async def test_the_dead_letters_of_a_topic_are_kicked_in_steps_until_done(shell: Shell, client: Client) -> None:
    ids = [f"d:{n}" for n in range(1200)]
    for at in range(0, len(ids), 400):
        some = ids[at : at + 400]
        await client.batch([{"command": "add", "topic": "t", "body": 1, "id": each} for each in some])
        await client.ask("pop", topic="t", count=400)
        await client.batch([{"command": "bury", "id": each} for each in some])
    assert (await shell.run("kick", "--topic", "t")).json["count"] == 1
    async with shell.terminal("kick", "--topic", "t", "--count", "1100") as terminal:
        await terminal.see(r"Kick 1,100 of 1,199 dead letters of t\?")
        terminal.type("y\n")
        assert await terminal.end() == 0
    assert "1100/1100" in terminal.text
    assert (await shell.run("kick", "--topic", "t", "--all", "--yes")).json["count"] == 99


async def test_peek_and_topics_follow_cursors(shell: Shell, client: Client) -> None:
    await client.batch([{"command": "add", "topic": "t", "id": f"{n}", "body": n} for n in range(1000)])
    await client.batch([{"command": "add", "topic": f"t{n}", "body": n} for n in range(250)])
    await client.batch([{"command": "add", "topic": "t", "id": f"{n}", "body": n} for n in range(1000, 1250)])

    async def peeked(*arguments: str) -> list[str]:
        pages = (await shell.run("peek", "t", *arguments)).lines
        return [job["id"] for page in pages for job in page["jobs"]]

    assert await peeked() == [str(n) for n in range(20)]
    assert sorted(await peeked("--all"), key=int) == [str(n) for n in range(1250)]
    assert await peeked("--count", "1100") == [str(n) for n in range(1100)]
    assert "there may be more; --all shows them" in await shell.shown("peek", "t")
    pages = (await shell.run("topics")).lines
    assert len(pages) > 1
    assert len({topic["topic"] for page in pages for topic in page["topics"]}) == 251
    for pattern in ("t24*", "t24"):
        shown = await shell.shown("topics", pattern)
        names = {row.split()[0] for row in shown.splitlines()[3:] if row.strip()}
        assert names == {"t24", *(f"t24{n}" for n in range(10))}
    assert await shell.shown("topics", "nix") == "no topic matches nix*\n"


async def test_empty_topics_do_not_hide_the_others(shell: Shell, client: Client) -> None:
    for name in ("empty", "full"):
        await client.ask("add", topic=name, id=name, body=1, retention=0)
    await client.ask("delete", id="empty")
    shown = await shell.shown("topics")
    assert "full" in shown and "empty topics that are not shown: 1; --all shows them" in shown
    rows = (await shell.shown("topics", "--all")).splitlines()
    assert sorted(row.split()[0] for row in rows[3:] if row.strip()) == ["empty", "full"]


async def test_workers_shows_who_polls_a_topic_and_what_it_has_in_hand(redis_server: RedisServer, redis: Redis) -> None:
    # Of its own: a service remembers who polled it before.
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        shell = Shell(service.url)
        assert await shell.shown("workers") == "no worker polls\n"
        await client.ask("add", topic="t", id="a", body=1)
        await client.ask("pop", topic="t", worker="web1:412")
        row = next(row for row in (await shell.shown("workers")).splitlines() if "web1" in row)
        assert row.split()[:4] == ["web1:412", "t", "busy", "1"]
        assert await shell.shown("workers", "u") == "no worker polls u\n"


async def test_a_watch_shows_what_happens_a_second_until_ctrl_c(shell: Shell, client: Client) -> None:
    async with shell.terminal("stats", "t", "--watch", "0.2") as terminal:
        await terminal.see("Ctrl-C ends")
        await client.ask("add", topic="t", body=1)
        await terminal.see(r"created +1 +[1-9]\d*\.\d")
        terminal.interrupt()
        assert await terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert "Aborted" not in terminal.text


async def test_a_watch_goes_on_when_the_service_was_away(redis_server: RedisServer, redis: Redis) -> None:
    async with (
        ServiceProcess("--redis", redis_server.url) as service,
        Shell(service.url).terminal("stats", "--watch=0.2") as terminal,
    ):
        await terminal.see("Ctrl-C ends")
        await service.stop()
        await terminal.see("no service listens at")
        before = len(terminal.text)
        await service.start()
        await terminal.see("Ctrl-C ends", begin=before)
        terminal.interrupt()
        assert await terminal.end() == 0


async def test_in_a_pipe_a_watch_is_a_line_a_look(shell: Shell) -> None:
    ran = await shell.script("jobqueue stats --watch 0.1 | head -n 3")
    assert [line["topic"] for line in ran.lines] == [None] * 3


async def test_the_version_is_that_of_the_package(shell: Shell) -> None:
    assert (await shell.run("--version")).out == f"jobqueue, version {__version__}\n"


async def test_the_help_lists_each_command_once_in_sections_and_those_for_programs_not_at_all(shell: Shell) -> None:
    ran = await shell.run("--help")
    lines = ran.out.partition("Run a service:")[2].splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    own = [
        "serve",
        "console",
        "callbacks",
        "sizing",
        "config",
        "healthcheck",
        "completion",
        "check",
        "doctor",
        "fsck",
        "move",
        "upgrade",
    ]
    own += ["journal", "restore", "audit", "deliver"]
    assert sorted(listed) == sorted([*own, *(set(params.BY_NAME) - {"leave"})])


async def test_the_help_takes_the_width_of_the_terminal(shell: Shell) -> None:
    lines = (await shell.shown("add", "--help")).splitlines()
    assert 100 < max(map(len, lines)) <= 120


async def test_a_topic_in_place_of_an_id_is_recognised(shell: Shell, client: Client) -> None:
    await client.ask("add", topic="orders", id="a", body=1)
    for command, instead in (("kick", "kick --topic"), ("delete", "purge"), ("get", "peek"), ("explain", "peek")):
        ran = await shell.run(command, "orders")
        first, *hints = ran.err.splitlines()
        assert ran.code == 1 and first.startswith(f"Error: {command} orders: no such job")
        assert hints == [f"orders is a topic; did you mean jobqueue {instead} orders?"]


async def test_several_jobs_are_shown_although_one_does_not_exist(shell: Shell, client: Client) -> None:
    for job_id in ("a", "b"):
        await client.ask("add", topic="t", id=job_id, body=1)
    ran = await shell.run("get", "a", "nobody", "b")
    assert (ran.code, [line["id"] for line in ran.lines]) == (1, ["a", "nobody", "b"])
    assert ran.err == "Error: get nobody: no such job (NOT_FOUND)\n"
    shown = await shell.shown("get", "a", "b")
    assert [line.split() for line in shown.splitlines() if line.startswith("id")] == [["id", "a"], ["id", "b"]]


async def test_times_are_typed_as_people_write_them(shell: Shell, client: Client) -> None:
    now = time.time()
    due = (await shell.run("add", "t", "1", "--id", "a", "--delay", "1h30m")).json["due"]
    assert 5400 <= due - now < 5430
    assert (await shell.run("update", "a", "--at", "2030-01-01T09:00:00+01:00")).json["due"] == 1_893_484_800
    local = time.mktime((2030, 1, 1, 9, 0, 0, 0, 0, -1))
    assert (await shell.run("update", "a", "--at", "2030-01-01 09:00")).json["due"] == local
    assert "2030-01-01 09:00:00 (in " in await shell.shown("update", "a", "--at", "2030-01-01 09:00")
    assert (await shell.run("add", "t", "1", "--id", "b", "--backoff", "15,1m,1h")).code == 0
    assert (await client.ask("get", id="b"))["backoff"] == [15, 60, 3600]


async def test_schedules_are_shown_with_their_next_times(shell: Shell, client: Client) -> None:
    assert await shell.shown("schedules") == "there are no schedules\n"
    night = ("schedule", "nightly", "--topic", "report", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    assert (await shell.run(*night, stdin=b'{"of": "yesterday"}\n')).json["result"] == "created"
    shown = await shell.shown("schedule", "poll", "--topic", "poll", "--every", "10m", "--text", "--body", "all of it")
    assert [line.split()[0] for line in shown.splitlines()] == ["name", "result", "next"]
    assert "(in 10 min)" in shown
    head, _, *rows = [" ".join(line.split()) for line in (await shell.shown("schedules")).splitlines() if line.strip()]
    assert head == "name topic when zone next last"
    assert any(row.startswith("poll poll every 10 min ") for row in rows)
    assert any(row.startswith("nightly report 30 2 * * * Europe/Berlin ") for row in rows)
    bodies = {each["name"]: each["value"] for each in (await client.ask("schedules"))["schedules"]}
    assert bodies == {"nightly": {"of": "yesterday"}, "poll": "all of it"}
    assert "nightly" in await shell.shown("schedules", "night")
    assert await shell.shown("schedules", "month") == "no schedule matches month*\n"
    refused = await shell.run("unschedule", "nobody")
    assert (refused.code, refused.err) == (1, "Error: unschedule: there is no schedule of this name (NOT_FOUND)\n")


async def test_where_there_is_nothing_a_terminal_says_so_in_few_words(shell: Shell, client: Client) -> None:
    unknown = "there is no topic t; those that exist: jobqueue topics\n"
    for command in (("peek", "t"), ("stats", "t"), ("purge", "t", "--yes"), ("kick", "--topic", "t", "--all", "--yes")):
        assert unknown in await shell.shown(*command)
    async with shell.terminal("pop", "t") as terminal:
        assert (await terminal.end(), terminal.text) == (4, f"nothing is ready; {unknown}")
    assert await shell.shown("topics") == "there are no topics yet\n"
    assert await shell.shown("topics", "order") == "no topic matches order*\n"
    assert "0/0" not in await shell.shown("purge", "t", "--yes")
    await client.ask("pause", topic="t")  # now there is such a topic
    assert await shell.shown("peek", "t") == "t has no jobs\n"
    assert await shell.shown("peek", "t", "--state", "dead") == "t has no dead jobs\n"
    assert len((await shell.shown("stats", "t")).splitlines()) < 8
    await client.ask("add", topic="t", body=1, delay=300)
    shown = await shell.shown("stats", "t")
    assert ["created", "1"] in [line.split() for line in shown.splitlines()]
    assert [line.split()[:2] for line in shown.splitlines() if "under" in line] == [["under", "10m"]]
