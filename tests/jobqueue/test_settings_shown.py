"""The command settings: what is in force, where it came from, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from buckets import Pool
from jobqueue.commands.answers import settings_in_force
from jobqueue.dialect_settings import Dialects, Lmstfy
from jobqueue.schema import params
from jobqueue.settings import Loaded, Settings, TopicSettings, load_with_sources
from tests.jobqueue.test_commands import answers, engine_on


def shown(loaded: Loaded, *topics: str) -> dict[str, Any]:
    """The answer as it travels; with `topics`, for one who reaches no others."""
    answer: dict[str, Any] = json.loads(
        json.dumps(settings_in_force(loaded, lambda topic: not topics or topic in topics))
    )
    return answer


def rows(loaded: Loaded) -> dict[str, tuple[Any, str]]:
    """Values and sources by name."""
    return {each["name"]: (each["value"], each["source"]) for each in shown(loaded)["settings"]}


def test_each_setting_is_shown_with_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text("grace_s = 5\ndefault_backoff_s = [1, 2]\n[protocols.lmstfy]\npath = '/l'\n")
    environment = {"JOBQUEUE_PORT": "2", "JOBQUEUE_ALLOWED_HOSTS": "a,b"}
    told = rows(load_with_sources({"namespace": "ns"}, str(file), environment))
    assert told["namespace"] == ("ns", "flag")
    assert told["port"] == (2, "environment")
    assert told["allowed_hosts"] == (["a", "b"], "environment")
    assert told["grace_s"] == (5.0, "file")
    assert told["default_backoff_s"] == ([1.0, 2.0], "file")
    assert told["host"] == ("127.0.0.1", "default")
    assert told["protocols.lmstfy.path"] == ("/l", "file")
    assert told["protocols.lmstfy.tries"] == (1, "default")
    others = {*Settings.__struct_fields__} - {"topics", "virtual_topics", "protocols", "console_roles"}
    assert others == {name for name in told if not name.startswith("protocols.")}


@pytest.mark.parametrize(
    "url",
    [
        "redis://:MARKED@h",
        "redis://user:MARKED@h:1/0",
        "redis://MARKED:x@h",
        "redis://:MAR@KED/MARKED?MARKED#MARKED@h",
        "redis://h?password=MARKED",
        "rediss://h/0?ssl_keyfile=MARKED",
        "unix:///MARKED?password=MARKED",
        "redis+sentinel://:MARKED@a,b/MARKED",
        "postgresql://u:MARKED@h/d?sslpassword=MARKED",
        "MARKED",
        ":MARKED:",
        "MARKED\n@\x1b[2J",
    ],
)
@pytest.mark.parametrize("name", ["redis", "journal"])
def test_of_a_url_only_whether_it_is_set_is_shown(name: str, url: str) -> None:
    given: dict[str, Any] = {name: url}
    loaded = Loaded(Settings(**given), {name: "environment"})
    assert rows(loaded)[name] == ("set", "environment")
    assert "MARKED" not in json.dumps(shown(loaded))


def test_of_a_secret_in_a_file_and_of_the_token_of_a_dialect_only_whether_they_are_set_is_shown(tmp_path: Path) -> None:
    url, token, file = tmp_path / "url", tmp_path / "token", tmp_path / "jobqueue.toml"
    url.write_text("redis://:MARKED@h\n")
    token.write_text("MARKED\n")
    file.write_text(
        f"redis_file = '{url}'\n[protocols.lmstfy]\npath = '/l'\ntoken_file = '{token}'\n"
        "[protocols.camellia]\npath = '/c'\ntoken = 'MARKED'\n"
    )
    loaded = load_with_sources({}, str(file), {})
    told = rows(loaded)
    assert (told["redis"], told["redis_file"]) == (("set", "file"), (str(url), "file"))
    assert told["protocols.lmstfy.token"] == told["protocols.camellia.token"] == ("set", "file")
    assert told["journal"] == ("not set", "default")
    assert "MARKED" not in json.dumps(shown(loaded))


def test_a_secret_that_is_not_set_and_the_redis_that_comes_along_are_not_set() -> None:
    worker = Loaded(Settings(redis="unix:///data/redis.sock", protocols=Dialects(lmstfy=Lmstfy(path="/l"))), {})
    told = rows(worker)
    assert told["redis"] == ("not set", "default")
    assert told["protocols.lmstfy.token"] == ("not set", "default")


_TOPICS = {"mine": TopicSettings(ttr_s=5.0, backoff_s=(), rate=2.0), "theirs": TopicSettings(max_dead=3)}
_VIRTUAL = {"all": ("mine", "theirs"), "others": ("theirs",)}


def test_the_policies_in_force_are_those_of_the_topic_and_else_the_defaults() -> None:
    loaded = Loaded(Settings(default_tries=3, topics=_TOPICS, virtual_topics=_VIRTUAL), {"topics": "file"})
    mine, theirs = shown(loaded)["policies"]
    assert (mine["topic"], mine["own"]) == ("mine", ["ttr_s", "backoff_s", "rate"])
    assert (mine["ttr_s"], mine["backoff_s"], mine["rate"], mine["tries"]) == (5.0, [], 2.0, 3)
    assert (theirs["topic"], theirs["own"]) == ("theirs", ["max_dead"])
    assert (theirs["ttr_s"], theirs["ttl_s"], theirs["max_dead"], theirs["concurrency"]) == (60.0, None, 3, None)
    assert theirs["backoff_s"] == list(Settings().default_backoff_s)
    assert theirs["per_key"] == {"concurrency": 1, "rate": None}
    assert shown(loaded)["virtual_topics"] == {"all": ["mine", "theirs"], "others": ["theirs"]}


def test_topics_out_of_reach_are_not_shown() -> None:
    told = shown(Loaded(Settings(topics=_TOPICS, virtual_topics=_VIRTUAL), {}), "mine", "all")
    assert [each["topic"] for each in told["policies"]] == ["mine"]
    assert told["virtual_topics"] == {"all": ["mine"]}
    assert "theirs" not in json.dumps(told)


async def test_the_command_tells_those_that_hold_when_it_is_asked(pool: Pool) -> None:
    engine, loaded = engine_on(pool), [Loaded(Settings(default_tries=1), {"default_tries": "flag"})]
    engine.settings = lambda: loaded[0]

    async def tries() -> tuple[int, str]:
        (answer,) = await answers(engine, params.Settings())
        assert answer["success"]
        (row,) = [each for each in answer["settings"] if each["name"] == "default_tries"]
        return row["value"], row["source"]

    assert await tries() == (1, "flag")
    loaded[0] = Loaded(Settings(default_tries=2), {"default_tries": "file"})
    assert await tries() == (2, "file")
