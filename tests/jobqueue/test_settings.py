"""Settings: file < environment < flags, and a clear sentence for each mistake."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobqueue.dialect_settings import KINDS, Dialects, Mykit
from jobqueue.errors import SettingsError
from jobqueue.settings import Loaded, Settings, load, load_with_sources
from tests.kit.service import ROOT


def test_the_file_in_conf_has_every_setting_with_its_default_and_a_comment() -> None:
    text = (ROOT / "conf/jobqueue.toml").read_text()
    assert tomllib.loads(text) == msgspec.json.decode(msgspec.json.encode(Settings()))
    assert list(tomllib.loads(text)) == list(Settings.__struct_fields__)
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    assert all("#" in line for line in lines)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text('port = 1\nhost = "file"\nnamespace = "file"\n')
    environment = {"JOBQUEUE_PORT": "2", "JOBQUEUE_HOST": "environment", "JOBQUEUE_CONFIG": str(file), "HOME": "/"}
    chosen = load({"port": 3, "host": None}, None, environment)
    assert (chosen.port, chosen.host, chosen.namespace) == (3, "environment", "file")


def test_it_is_known_where_each_setting_came_from(tmp_path: Path) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text('port = 1\nhost = "file"\ngrace_s = 5\n[topics.t]\ntries = 1\n')
    environment = {"JOBQUEUE_PORT": "2", "JOBQUEUE_HOST": "environment"}
    settings, sources = load_with_sources({"port": 3, "data": None}, str(file), environment)
    assert (settings.port, settings.host, settings.grace_s) == (3, "environment", 5.0)
    assert sources == {"port": "flag", "host": "environment", "grace_s": "file", "topics": "file"}


def test_a_secret_came_from_where_its_file_was_named_and_hides_one_that_came_earlier(tmp_path: Path) -> None:
    file, secret = tmp_path / "jobqueue.toml", tmp_path / "url"
    file.write_text('redis = "redis://a"\n')
    secret.write_text("redis://b\n")
    settings, sources = load_with_sources({}, str(file), {"JOBQUEUE_REDIS_FILE": str(secret)})
    assert (settings.redis, sources) == ("redis://b", {"redis": "environment", "redis_file": "environment"})
    _, sources = load_with_sources({"redis": "redis://c"}, str(file), {"JOBQUEUE_REDIS_FILE": str(secret)})
    assert sources == {"redis": "flag"}


def test_a_reload_takes_over_sources_with_their_settings() -> None:
    begun = Loaded(Settings(port=1, default_tries=2), {"port": "flag", "default_tries": "environment"})
    later = Loaded(Settings(port=9, default_ttr_s=3.0), {"port": "file", "default_ttr_s": "file"})
    taken = begun.reloaded(later)
    assert (taken.settings.port, taken.settings.default_tries, taken.settings.default_ttr_s) == (1, 16, 3.0)
    assert taken.sources == {"port": "flag", "default_ttr_s": "file"}


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"JOBQUEUE_PROT": "1"}, "unknown setting JOBQUEUE_PROT in the environment; did you mean JOBQUEUE_PORT?"),
        ({"JOBQUEUE_PORT": "many"}, "JOBQUEUE_PORT in the environment: Expected `int`"),
        ({"JOBQUEUE_PORT": "70000"}, "JOBQUEUE_PORT in the environment: Expected `int` <= 65535"),
        ({"JOBQUEUE_LOG_LEVEL": "loud"}, "JOBQUEUE_LOG_LEVEL in the environment"),
        ({"JOBQUEUE_NAMESPACE": "a b"}, "JOBQUEUE_NAMESPACE in the environment"),
        ({"JOBQUEUE_NAMESPACE": "a\n"}, "JOBQUEUE_NAMESPACE in the environment"),
        ({"JOBQUEUE_DEFAULT_BACKOFF_S": "1,soon"}, "JOBQUEUE_DEFAULT_BACKOFF_S in the environment: Expected `float`"),
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


def test_where_the_command_line_finds_a_service_and_what_it_shows_are_no_settings() -> None:
    assert load({}, None, {"JOBQUEUE_URL": "http://127.0.0.1:8000", "JOBQUEUE_TOKEN": "jqt_x"}) == Settings()


def test_a_default_ttr_that_no_job_may_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="default_ttr_s must be 0"):
        load({}, None, {"JOBQUEUE_DEFAULT_TTR_S": "0.01"})


def test_a_service_that_is_to_write_a_journal_must_know_where() -> None:
    with pytest.raises(SettingsError, match="journal_run goes with journal"):
        load({}, None, {"JOBQUEUE_JOURNAL_RUN": "true"})
    assert load({}, None, {"JOBQUEUE_JOURNAL_RUN": "true", "JOBQUEUE_JOURNAL": "sqlite:///j.db"}).journal_run


def test_a_file_that_is_not_toml_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("port = \n")
    with pytest.raises(SettingsError, match=r"bad\.toml is not TOML.*line 1"):
        load({}, str(file), {})


@pytest.mark.parametrize(
    "text", ['port = "8000"', 'allow_open = "true"', 'default_backoff_s = "1,5"', 'open_paths = "/a"']
)
def test_only_the_environment_has_numbers_and_lists_as_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"jobqueue\.toml: Expected .*got `str`"):
        load_file(tmp_path, text)


def load_file(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "jobqueue.toml"
    file.write_text(text)
    return load({}, str(file), {})


def without_comment_signs() -> str:
    """The file in conf with its example of policies and protocols."""
    plain, example = (ROOT / "conf/jobqueue.toml").read_text().split("\n#\n", 1)
    plain = "\n".join(
        line for line in plain.splitlines() if not line.startswith(("topics =", "virtual_topics =", "protocols ="))
    )
    return plain + "\n" + re.sub(r"^# ?", "", example, flags=re.MULTILINE)


def test_the_example_of_policies_in_conf_holds_when_its_comment_signs_are_taken_away(tmp_path: Path) -> None:
    settings = load_file(tmp_path, without_comment_signs())
    assert settings.topics["example-poll-payment"].backoff_s == (15, 15, 30, 180)
    assert all(
        getattr(settings.topics["example-poll-payment"], name) is not None
        for name in settings.topics["example-poll-payment"].__struct_fields__
    )
    assert settings.virtual_topics == {"paid": ("invoice", "mail")}
    dialects = dict(settings.protocols.open())
    assert list(dialects) == list(KINDS)
    assert {name: options.port for name, options in dialects.items()} == {
        **{"camellia": 8080, "mykit": 6355, "queue_server": 1111, "beanstalkd": 11300, "lmstfy": 7777}
    }
    own: dict[str, Any] = {"camellia": {"namespaces": {"im": "im."}}}
    for name, options in dialects.items():  # the rest are the defaults
        assert options == KINDS[name](port=options.port, **own.get(name, {}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[topics.a]\nmax_pendin = 3\n", "jobqueue.toml: unknown setting max_pendin; did you mean max_pending?"),
        ("[topics.b]\ntries = 7\n[topics.a]\ntries = 70000\n", "topics.a.tries in the file"),
        ("[topics.a]\ntries = 70000\n", "jobqueue.toml: Expected `int` <= 65535"),
        ('[topics."a b"]\ntries = 7\n', "topics.a b in the file"),
        (
            '[topics."a b"]\ntries = 7\n',
            "jobqueue.toml: the name of a topic must be a string of 1 to 255 characters",
        ),
        ("topics = 7\n", "jobqueue.toml: Expected `object`, got `int`"),
        ("[topics]\na = 7\n", "topics.a in the file"),
        ('[virtual_topics]\na = ["b", "c d"]\n', "virtual_topics.a[1] in the file"),
        ("[topics.a]\nttr_s = 0.05\n", "topics.a.ttr_s must be 0 (at most once) or"),
        (f"[topics.a]\nbackoff_s = {[1] * 33}\n", "topics.a.backoff_s in the file"),
        (f"default_backoff_s = {[1] * 33}\n", "default_backoff_s in the file"),
        ("default_backoff_s = [-1]\n", "default_backoff_s in the file"),
        ("default_backoff_s = [315360001]\n", "default_backoff_s in the file"),
        ("[virtual_topics]\na = []\n", "virtual_topics.a in the file"),
        ('[virtual_topics]\na = ["b", "b"]\n', "virtual_topics.a names a topic twice"),
        ('[virtual_topics]\na = ["b"]\nb = ["c"]\n', "virtual_topics.a names b, which is virtual itself"),
        ('[virtual_topics]\na = ["a"]\n', "virtual_topics.a names a, which is virtual itself"),
        ('[virtual_topics]\na = ["b"]\n[topics.a]\ntries = 3\n', "the topic a is virtual"),
    ],
)
def test_a_wrong_policy_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as told:
        load_file(tmp_path, text)
    assert words in str(told.value)


@pytest.mark.parametrize(("text", "steps"), [("1,5.5, 15", (1, 5.5, 15)), ("7", (7,)), ("", ())])
def test_the_environment_has_the_steps_of_a_ladder_between_commas(text: str, steps: tuple[float, ...]) -> None:
    assert load({}, None, {"JOBQUEUE_DEFAULT_BACKOFF_S": text}).default_backoff_s == steps


def test_policies_come_from_a_file_only() -> None:
    with pytest.raises(SettingsError, match="JOBQUEUE_TOPICS can only be set in a file"):
        load({}, None, {"JOBQUEUE_TOPICS": "{}"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[protocols.camelia]\nport = 1\n", "protocols.camelia in the file"),
        ("[protocols.camelia]\nport = 1\n", "unknown protocol; did you mean camellia?"),
        ("[protocols.camellia]\nprot = 1\n", "jobqueue.toml: unknown setting prot; did you mean port?"),
        ("[protocols.beanstalkd]\npath = '/b'\n", "jobqueue.toml: unknown setting path"),
        ("[protocols.mykit]\nport = 70000\n", "protocols.mykit.port in the file"),
        ("protocols = 7\n", "protocols in the file"),
        ("[protocols]\nmykit = 7\n", "protocols.mykit in the file"),
        ("[protocols.mykit]\npath = 'x'\n", "protocols.mykit.path in the file"),
        ("[protocols.mykit]\npath = '/x/'\n", "must be empty, / or a path such as /queue"),
        (
            "[protocols.mykit]\nport = 1\nprefix = 'a b'\n",
            "jobqueue.toml: a prefix must be empty or a string of 1 to 255",
        ),
        ("[protocols.beanstalkd]\nport = 1\ntoken = 'a'\n", "protocols.beanstalkd.token: its clients cannot send"),
        ("[protocols.camellia]\nport = 1\nack_timeout_s = 0\n", "protocols.camellia.ack_timeout_s in the file"),
        (
            "[protocols.camellia]\nport = 1\nnamespaces = {'a/b' = ''}\n",
            "jobqueue.toml: the name of a namespace must be 1 to 64 characters",
        ),
        ("[protocols.mykit]\n", "protocols.mykit must have a port or a path"),
        ("[protocols.beanstalkd]\nport = 0\n", "protocols.beanstalkd must have a port, or"),
        (
            "[protocols.mykit]\nport = 1\nallow = ['10.0.0.1/8']\n",
            "protocols.mykit.allow: 10.0.0.1/8 has host bits set",
        ),
        ("[protocols.mykit]\nport = 1\nallow = ['here']\n", "protocols.mykit.allow: 'here' does not appear to be"),
        (
            "[protocols.mykit]\nport = 1\n[protocols.lmstfy]\nport = 1\n",
            "protocols.mykit and protocols.lmstfy have the same port, 1",
        ),
        (
            "[protocols.mykit]\npath = '/'\n[protocols.lmstfy]\npath = '/'\n",
            "protocols.mykit and protocols.lmstfy have the same path, /",
        ),
        (
            "port = 7\n[protocols.mykit]\nport = 7\n",
            "protocols.mykit.port is the service's own, 7; `path` opens it there",
        ),
        ("port = 7\n[protocols.beanstalkd]\nport = 7\n", "protocols.beanstalkd.port is the service's own, 7"),
        (f"[protocols.beanstalkd]\nport = 1\nlevels = {[0, 1, 9, 8, 10, 11, 12, 13, 14]}\n", "levels must ascend"),
        ("[protocols.beanstalkd]\nport = 1\nlevels = [1]\n", "protocols.beanstalkd.levels in the file"),
        (
            "[protocols.camellia]\nport = 1\nnamespaces = {a = 'b c'}\n",
            "protocols.camellia.namespaces[...] in the file",
        ),
    ],
)
def test_a_wrong_protocol_is_reported_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as told:
        load_file(tmp_path, text)
    assert words in str(told.value)


def test_settings_that_are_printed_show_no_token() -> None:
    text = repr(Dialects(mykit=Mykit(port=7, token="hush")))  # noqa: S106
    assert "Mykit(port=7, " in text and "clear_all=False" in text and "hush" not in text


def test_protocols_come_from_a_file_only() -> None:
    with pytest.raises(SettingsError, match="JOBQUEUE_PROTOCOLS can only be set in a file"):
        load({}, None, {"JOBQUEUE_PROTOCOLS": "{}"})


def test_a_reload_takes_all_of_a_protocol_but_where_it_listens(tmp_path: Path) -> None:
    before = load_file(tmp_path, "[protocols.mykit]\nport = 1\n[protocols.queue_server]\nport = 2\n")
    after = load_file(
        tmp_path,
        "[protocols.queue_server]\nport = 3\nudp = false\ntoken = 'secret'\n[protocols.lmstfy]\npath = '/'\n",
    )
    reloaded = before.reloaded(after).protocols
    assert reloaded.queue_server and (reloaded.queue_server.port, reloaded.queue_server.udp) == (2, True)
    assert reloaded.queue_server.token.startswith("sec")
    assert reloaded.mykit == before.protocols.mykit and reloaded.lmstfy is None
    assert before.need_restart(after) == [
        *("protocols.lmstfy", "protocols.mykit", "protocols.queue_server.port", "protocols.queue_server.udp")
    ]
    assert before.need_restart(before) == []
