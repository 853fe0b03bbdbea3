"""Secrets from files: read whole, never shown, and never given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from buckets.redis.url import read_url
from jobqueue.access.secret_values import read_secret, without_secret
from jobqueue.dialect_settings import Camellia
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, load

URL = "rediss://queue:marked%2Fword@db.internal:6380/2?ssl_keyfile=/etc/key.pem"
TOKEN = "marked-token"  # noqa: S105 - no secret of anybody


@pytest.fixture
def url_file(tmp_path: Path) -> str:
    file = tmp_path / "redis-url"
    file.write_text(URL + "\n")
    return str(file)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_the_line_of_its_file_without_the_newline(tmp_path: Path, end: str) -> None:
    (tmp_path / "secret").write_bytes(f" a word{end}".encode())
    assert read_secret(str(tmp_path / "secret"), "token_file") == " a word"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"marked\nmarked\n", "must hold one line, and nothing else"),
        (b"marked\0", "must hold one line, and nothing else"),
        (b"marked" * 20_000, "must hold one line, and nothing else"),
        (b"marked\xff", "is not text in UTF-8"),
    ],
)
def test_a_file_that_holds_no_secret_is_named_and_its_contents_are_not(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(data)
    with pytest.raises(SettingsError) as told:
        load({"redis_file": str(file)}, None, {})
    assert str(told.value) == f"the file {file} of redis_file {words}"
    assert told.value.__cause__ is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SettingsError) as told:
            load({"redis_file": str(path)}, None, {})
        assert str(told.value) == f"the file {path} of redis_file cannot be read: {why}"
    with pytest.raises(SettingsError, match="redis_file is not text"):
        load({"redis_file": "a\0b"}, None, {})


def test_the_url_of_the_redis_comes_from_its_file_whatever_names_the_file(tmp_path: Path, url_file: str) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text(f'redis_file = "{url_file}"\n')
    assert load({}, str(config), {}).redis == URL
    assert load({}, None, {"JOBQUEUE_REDIS_FILE": url_file}).redis == URL
    assert load({"redis_file": url_file}, None, {}).redis == URL


def test_a_url_and_a_file_of_it_from_one_source_are_refused(tmp_path: Path, url_file: str) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text(f'redis = "{URL}"\nredis_file = "{url_file}"\n')
    with pytest.raises(SettingsError) as told:
        load({}, str(config), {})
    assert str(told.value) == f"redis and redis_file exclude each other: both are set in the file {config}"
    with pytest.raises(SettingsError, match="both are set in the environment"):
        load({}, None, {"JOBQUEUE_REDIS": URL, "JOBQUEUE_REDIS_FILE": url_file})
    with pytest.raises(SettingsError, match="both are set in the flags"):
        load({"redis": URL, "redis_file": url_file}, None, {})


def test_either_overrides_the_other_of_a_weaker_source(tmp_path: Path, url_file: str) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text('redis_file = "/nowhere"\n')
    assert load({"redis": "redis://flag"}, str(config), {}).redis == "redis://flag"
    chosen = load({}, str(config), {"JOBQUEUE_REDIS_FILE": url_file})
    assert (chosen.redis, chosen.redis_file) == (URL, url_file)
    assert load({"redis_file": url_file}, None, {"JOBQUEUE_REDIS": "redis://environment"}).redis == URL


def test_a_dialects_token_comes_from_its_file_and_is_read_again_at_a_reload(tmp_path: Path) -> None:
    secret, config = tmp_path / "token", tmp_path / "jobqueue.toml"
    secret.write_text(TOKEN)
    config.write_text(f'[protocols.lmstfy]\nport = 7777\ntoken_file = "{secret}"\n')
    first = load({}, str(config), {})
    assert first.protocols.lmstfy
    assert first.protocols.lmstfy.token == TOKEN
    secret.write_text("another-token\n")
    later = first.reloaded(load({}, str(config), {}))
    assert later.protocols.lmstfy
    assert later.protocols.lmstfy.token == "another-token"  # noqa: S105 - as above
    assert first.need_restart(later) == []


def test_the_journals_url_is_treated_like_that_of_redis(tmp_path: Path, url_file: str) -> None:
    url = "postgresql://me:marked@db:5432/jobs?sslkey=secret"
    Path(url_file).write_text(url)
    chosen = load({}, None, {"JOBQUEUE_JOURNAL_FILE": url_file})
    assert chosen.journal == url
    assert chosen.shown()["journal"] == "'postgresql://db:5432/jobs'"
    assert "marked" not in repr(chosen) and "sslkey" not in repr(chosen)
    assert load({"journal": "sqlite:///j.db"}, None, {"JOBQUEUE_JOURNAL_FILE": url_file}).journal == "sqlite:///j.db"
    assert load({}, None, {}).shown()["journal"] == "''"
    config = tmp_path / "both.toml"
    config.write_text(f'journal = "{url}"\njournal_file = "{url_file}"\n')
    with pytest.raises(SettingsError) as told:
        load({}, str(config), {})
    assert str(told.value) == f"journal and journal_file exclude each other: both are set in the file {config}"


def test_a_changed_url_in_its_file_needs_a_restart(url_file: str) -> None:
    first = load({"redis_file": url_file}, None, {})
    Path(url_file).write_text("redis://elsewhere")
    assert first.need_restart(load({"redis_file": url_file}, None, {})) == ["redis"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('port = 1\ntoken = "a"\ntoken_file = "/b"\n', "token and token_file exclude each other: both are set in "),
        ('port = 1\ntoken_file = "/nowhere"\n', "the file /nowhere of protocols.mykit.token_file cannot be read"),
        ("port = 1\ntoken_file = 1\n", "protocols.mykit.token_file in the file"),
        ('port = 1\ntoken_file = "%s"\n', "protocols.mykit.token in the file"),
    ],
)
def test_a_wrong_token_file_is_told_with_its_place(tmp_path: Path, table: str, words: str) -> None:
    long, config = tmp_path / "long", tmp_path / "jobqueue.toml"
    long.write_text("marked" * 50)
    config.write_text(f"[protocols.mykit]\n{table.replace('%s', str(long))}")
    with pytest.raises(SettingsError) as told:
        load({}, str(config), {})
    assert words in str(told.value)
    assert "marked" not in str(told.value)


def test_beanstalkds_clients_can_send_no_token_of_a_file_either(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    config = tmp_path / "jobqueue.toml"
    config.write_text(f'[protocols.beanstalkd]\nport = 1\ntoken_file = "{tmp_path}/token"\n')
    with pytest.raises(SettingsError, match="its clients cannot send a token"):
        load({}, str(config), {})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "rediss://db.internal:6380/2"),
        ("redis+sentinel://a:marked@h1,h2/name?sentinel_password=marked", "redis+sentinel://h1,h2/name"),
        ("redis://h?password=marked@", "redis://…"),
        ("redis://a:mar?ked@h", "redis://…"),
        ("redis://a:mar#ked@h", "redis://h"),
        ("redis://a:mar@ked@h", "redis://h"),
        ("marked@h", "…"),
        ("unix:///run/redis.sock?password=marked", "unix:///run/redis.sock"),
        ("", "embedded"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert without_secret(url) == shown


def test_settings_are_shown_without_their_secrets() -> None:
    chosen = Settings(redis=URL, protocols=load({}, None, {}).protocols)
    shown = repr(chosen)
    assert shown == str(chosen)
    assert "marked" not in shown
    assert "redis='rediss://db.internal:6380/2'" in shown
    assert TOKEN not in repr(Camellia(port=1, token=TOKEN))


def test_the_parsed_url_of_a_redis_is_shown_without_its_secrets() -> None:
    for url in (URL, "redis+sentinel://a:marked@h1,h2/name?sentinel_password=marked"):
        assert "marked" not in repr(read_url(url, 1.0))
