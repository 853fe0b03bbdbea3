"""buckets.scripts: the heads of the scripts are true, and Python passes arguments by their names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import buckets
from buckets.job import MOVES, State
from buckets.redis.client import Redis
from buckets.scripts import SCRIPTS, load

LUA = Path(buckets.__file__).parent / "lua"
FILES = {str(path.relative_to(LUA)): path.read_text() for path in sorted(LUA.rglob("*.lua"))}
SOURCES = {Path(name).stem: text for name, text in FILES.items() if not name.startswith("include/")}
READERS = (
    *(
        "get",
        "explain",
        "stats",
        "peek",
        "peek_ready",
        "peek_blocked",
        "audit",
        "find_orphans",
        "read_workers",
        "check_leases",
    ),
    *("read_instances", "read_number", "read_stream", "walk", "totals", "known", "read_schedules", "count_live"),
    *("audit_schedules", "read_figures", "read_operations", "count_topics", "count_due", "lacking"),
)
TAKE_ROOM = (
    *("add", "import", "import_schedules", "rewrite", "define", "occur", "put_schedule", "add_figures"),
    "plan_operation",
)
NOT_REPEATABLE = (
    *("pop", "pop_by_priority", "pop_limited", "due", "take", "release", "bury", "kick", "run", "note_actions"),
    *("undefine", "forget_occurrences", "add_figures", "change_operation", "apply_operation"),
)
OWN_KEY = re.compile(
    r"(JOB|BUCKET|SLICE|READY|HOLDERS|BLOCKED|DEAD|COUNTS|DUE|LOCK|PAUSED|PERMITS|WORKERS|ALIAS|OCCURRENCES|FIGURES|"
    r"OPERATION) \.\. |"
    r"(TOPICS|ASIDE|EVENTS|BELL|BARRIER|MEMBERS|CARDS|COUNTER|TOKENS|ACTIONS|SCHEDULES|FIGURED|OPERATIONS|"
    r"meta|list|set|slices|source\.(?:set|slices)|suspect|hash|key|counts|unpack\((?:lists|locks|keys|records|gone)|"
    r"(?:headers|tombs|ends)\[at\]|locks\[number\])$"
)
HEAD = re.compile(
    r"""\#!lua(?:\ flags=(?P<flags>[a-z,-]+))?\n
    --\ [A-Z].*\.\n                      # one sentence
    --\ arrows:\ .+\n(?:--\ \ \ .+\n)*
    --\ returns:\ .+\n(?:--\ \ \ .+\n)*
    --\ fails:\ .+\n(?:--\ \ \ .+\n)*
    --\ repeat:\ (?:yes|no)\n
    (?:--\ include:\ .+\n)?
    (?:local\ \w+\ =\ .*\b(?:KEYS|ARGV)\b.*\ \ --\ (?:string|integer|hash|none|strings):\ .+\n)+""",
    re.X,
)


def test_the_arrows_of_the_scripts_are_the_table_of_moves() -> None:
    states = {
        None if name == "none" else name for pairs in SCRIPTS.values() for arrow in pairs.arrows for name in arrow
    }
    assert states <= {None, *(state.word for state in State)}
    arrows: dict[tuple[State | None, State], set[str]] = {}
    for script in SCRIPTS.values():
        assert len(set(script.arrows)) == len(script.arrows), f"{script.name} names an arrow twice"
        for before, after in script.arrows:
            start = None if before == "none" else State[before.upper()]
            arrows.setdefault((start, State[after.upper()]), set()).add(script.name)
    assert arrows == MOVES


def test_every_file_is_loaded_under_its_name() -> None:
    scripts = [name for name in FILES if not name.startswith("include/")]
    assert sorted(SCRIPTS) == sorted(Path(name).stem for name in scripts)
    assert all(name == script.name for name, script in SCRIPTS.items())


def test_a_head_has_all_its_lines_in_their_order(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            assert HEAD.match(SOURCES[script.name]), f"{script.name}.lua"


def test_every_script_declares_meta_and_the_key_that_is_never_there(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            assert script.keys == ("meta", "never")
            assert "never" not in re.sub(r"--.*", "", script.text.split("local never")[1].partition("\n")[2])


def test_arguments_are_read_in_the_head_and_nowhere_below(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            lines = script.text.splitlines()
            uses = [number for number, line in enumerate(lines) if re.search(r"\b(KEYS|ARGV)\b", line)]
            assert uses == list(range(uses[0], uses[0] + len(script.keys + script.args) + (script.rest is not None)))
            positions = re.findall(r"\bARGV(?:\[|, )(\d+)", script.text)
            assert positions == [str(n) for n in range(1, len(positions) + 1)]


def test_every_script_but_those_that_take_room_may_run_when_memory_is_full(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            found = HEAD.match(SOURCES[script.name])
            flags = found and found["flags"]
            assert flags == (
                None if script.name in TAKE_ROOM else "no-writes" if script.name in READERS else "allow-oom"
            )


def test_a_script_is_repeatable_unless_it_hands_out_or_finds_its_own_work_done(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            assert script.repeatable == (script.name not in NOT_REPEATABLE)


def test_no_script_reads_the_clock_but_through_the_one_place(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            assert "'TIME'" not in SOURCES[script.name]
            assert ("now" in script.args) == ("'TIME'" in script.text)


def test_a_wrong_name_is_an_error_that_says_what_the_script_takes() -> None:
    with pytest.raises(TypeError, match=r"get.lua takes 'id', not meta, never, now, within, name"):
        SCRIPTS["get"].arguments({"meta": "m", "never": "n", "now": "", "within": "", "name": "a"}, [])
    with pytest.raises(TypeError, match=r"get.lua takes meta, never, now, id, within, not meta, never, now$"):
        SCRIPTS["get"].arguments({"meta": "m", "never": "n", "now": ""}, [])
    with pytest.raises(TypeError, match=r"get.lua takes"):
        SCRIPTS["get"].arguments({"meta": "m", "never": "n", "now": "", "within": "", "id": "a", "more": 1}, [])


def test_a_script_without_a_list_takes_none() -> None:
    with pytest.raises(TypeError, match=r"get.lua takes"):
        SCRIPTS["get"].arguments({"meta": "m", "never": "n", "now": "", "within": "", "id": "a"}, ["more"])


def test_arguments_go_in_the_order_of_the_head_whatever_their_order_in_python() -> None:
    arguments = SCRIPTS["due"].arguments({"page": 5, "never": "n", "by": "w", "bucket": 1, "now": "", "meta": "m"}, [])
    assert arguments == [2, "m", "n", "", "w", 1, 5]


def test_a_script_that_uses_its_arguments_further_down_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "bad.lua"
    path.write_text(SOURCES["get"] + "\nreturn ARGV[2]\n")
    with pytest.raises(ValueError, match=r"bad.lua uses KEYS or ARGV below its arguments"):
        load(path)


async def test_every_file_parses_by_itself(subtests: pytest.Subtests, redis: Redis) -> None:
    for name, source in FILES.items():
        with subtests.test(name=name):
            text = re.sub(r"^#!.*", "", source)
            assert await redis.read("EVAL", "local _, fault = loadstring(ARGV[1]) return fault", 0, text) is None


def test_a_script_gets_each_include_once_and_behind_those_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "twice.lua"
    path.write_text(
        SOURCES["get"].replace("-- include: clock record", "-- include: leased_job record clock leased_job")
    )
    defined = re.findall(r"^local function (read_leased|parse|whole)\b|^local (now_ms) =", load(path).text, re.M)
    assert ["".join(each) for each in defined] == ["now_ms", "whole", "parse", "read_leased"]


def code(source: str) -> str:
    return re.sub(r"--.*|'[^'\n]*'", "", source)


def named(source: str, which: str) -> set[str]:
    return {name for line in re.findall(rf"^ *-- {which}: (.*)$", source, re.M) for name in line.split()}


def defined(source: str) -> set[str]:
    """What an include defines for others."""
    lines = re.findall(r"^local (?:function )?([\w, ]+)", code(source), re.M)
    return {name for line in lines for name in re.findall(r"\w+", line)}


INCLUDES = {Path(name).stem: text for name, text in FILES.items() if name.startswith("include/")}
DEFINED_IN = {name: include for include, text in INCLUDES.items() for name in defined(text)}


def test_a_file_names_each_include_that_it_uses_and_no_others(subtests: pytest.Subtests) -> None:
    for name, source in FILES.items():
        with subtests.test(name=name):
            patterns = (r"\blocal (?:function )?([\w, ]+)", r"\bfunction \w*\(([\w, ]*)\)", r"\bfor ([\w, ]+)")
            lists = " ".join(names for pattern in patterns for names in re.findall(pattern, code(source)))
            declared = set(re.findall(r"\w+", lists))
            words = set(re.findall(r"(?<![.\w])\w+", code(source))) - declared
            assert {DEFINED_IN[word] for word in words & DEFINED_IN.keys()} == named(source, "include")


def test_a_script_without_an_argument_that_an_include_reads_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "bad.lua"
    path.write_text(re.sub(r"local now = .*\n", "", SOURCES["get"]))
    with pytest.raises(ValueError, match=r"bad.lua lacks arguments that its includes read: now"):
        load(path)


async def test_redis_compiles_every_script_and_calls_it_by_the_same_hash(
    subtests: pytest.Subtests, redis: Redis
) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            assert (await redis.read("SCRIPT", "LOAD", script.text)).decode() == script.sha
            assert hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest() == script.sha


def test_scripts_touch_only_keys_of_their_own_shard(subtests: pytest.Subtests) -> None:
    """No script spells out a key: each is built from a prefix, and keys.py alone defines these."""
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            # `index` wraps a call of Redis; within it, the key is its caller's.
            text = re.sub(r"local function index\(.*?\nend\n", "", script.text, flags=re.S)
            subcommand = r"(?:(?<='XINFO', )'(?:GROUPS|STREAM)', |(?<='XGROUP', )'CREATE', |(?<='MEMORY', )'USAGE', )?"
            called = re.findall(rf"(?:redis\.p?call|index|read)\('[A-Z]+', {subcommand}([^,)]+)", text)
            assert all(OWN_KEY.match(key) for key in called), called


def test_no_script_leaves_a_global_behind(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS.values():
        with subtests.test(script=script.name):
            assert not re.search(r"^(?!local\b)[a-zA-Z_]\w* = ", script.text, re.M)
