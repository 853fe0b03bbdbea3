"""The schema of settings files: up to date, complete, and in agreement with the service."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from jobqueue.errors import SettingsError
from jobqueue.reference import settings_schema
from jobqueue.settings import File, Settings, load, load_of_console
from tests.jobqueue.test_settings import without_comment_signs
from tests.kit.service import ROOT

SCHEMA = json.loads(settings_schema.text())
VALID = jsonschema_rs.validator_for(SCHEMA)


def takes(values: dict[str, Any]) -> bool:
    """Whether the service takes a settings file."""
    try:
        load({}, File("a.toml", values), {})
    except SettingsError:
        return False
    return True


def settings(table: dict[str, Any], within: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings of a table and of the tables in it, with their places."""
    for name, setting in table["properties"].items():
        yield within + name, setting
        for inner in (setting, setting.get("additionalProperties")):
            if isinstance(inner, dict) and "properties" in inner:
                yield from settings(inner, f"{within}{name}.")


def test_the_file_is_what_the_generator_makes() -> None:
    assert settings_schema.FILE.read_text() == settings_schema.text(), "run `make docs`"


def test_editors_find_the_schema_beside_the_example() -> None:
    example = ROOT / "conf" / "jobqueue.toml"
    directive, path = example.read_text().splitlines()[0].split(" ")
    assert (directive, example.parent / path) == ("#:schema", settings_schema.FILE)


def test_the_schema_is_valid_in_draft_7_and_in_one_piece() -> None:
    assert jsonschema_rs.meta.is_valid(SCHEMA) and isinstance(VALID, jsonschema_rs.Draft7Validator)
    assert "$ref" not in settings_schema.text()


def test_every_setting_has_its_default_and_a_description() -> None:
    assert {name: each["default"] for name, each in SCHEMA["properties"].items()} == tomllib.loads(
        (ROOT / "conf" / "jobqueue.toml").read_text()
    )
    described = {place: each.get("description") for place, each in settings(SCHEMA)}
    assert [place for place, words in described.items() if not words] == []
    assert described["host"] == 'the address to listen on; beyond loopback it needs access = "tokens", or allow_open'


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("redis", "redis+cluster://h1,h2 (docs/reliability.md); empty:"),  # a comment of two lines
        ("topics.ttl_s", "from the due time;"),  # in the commented example
        ("topics.priority", "9 comes first:"),  # of its type
        ("protocols.beanstalkd.token", "stays empty:"),
        ("protocols.mykit.token", "asked of each client"),  # as in the table above
        ("protocols.camellia.namespaces", "the prefix by"),  # of a table
    ],
)
def test_the_words_about_a_setting_are_its_comment(place: str, words: str) -> None:
    assert words in dict(settings(SCHEMA))[place]["description"]


def examples() -> dict[str, str]:
    """All settings in the repository, by where they are: files, and examples in documents that name a setting."""
    found = {"conf, all lines": without_comment_signs()}
    for file in (*ROOT.glob("conf/*.toml"), *ROOT.glob("deploy/**/*.toml")):
        found[str(file.relative_to(ROOT))] = file.read_text()
    for document in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")):
        for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```$", document.read_text(), re.M | re.S)):
            if not tomllib.loads(text).keys().isdisjoint(Settings.__struct_fields__):
                found[f"{document.relative_to(ROOT)}, {number}"] = text
    return found


def test_all_settings_in_the_repository_are_valid() -> None:
    found = examples()
    assert len(found) > 20
    faults = {where: [str(fault) for fault in VALID.iter_errors(tomllib.loads(text))] for where, text in found.items()}
    assert {where: each for where, each in faults.items() if each} == {}


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("", True),
        ("prot = 8000", False),
        ("port = 8000", True),
        ("port = 0", True),
        ("port = -1", False),
        ("port = 65535", True),
        ("port = 65536", False),
        ('port = "8000"', False),
        ("port = true", False),
        ("port = 1.5", False),
        ("host = 1", False),
        ("host = []", False),
        ("grace_s = 5", True),
        ("grace_s = 0.1", True),
        ("grace_s = 0.05", False),
        ('grace_s = "5"', False),
        ("allow_open = true", True),
        ("allow_open = 1", False),
        ('allow_open = "true"', False),
        ('log_level = "warning"', True),
        ('log_level = "WARNING"', False),
        ('tls_min = "1.1"', False),
        ('namespace = "a.b"', True),
        ('namespace = "a b"', False),
        ('namespace = "a\\n"', False),
        (f'namespace = "{"a" * 33}"', False),
        (f'console_title = "{"a" * 60}"', True),
        (f'console_title = "{"a" * 61}"', False),
        ("default_ttr_s = 0", True),
        ("default_ttr_s = 0.05", False),
        ("default_backoff_s = []", True),
        ("default_backoff_s = [1, 2.5]", True),
        ('default_backoff_s = "1,5"', False),
        ('default_backoff_s = ["1"]', False),
        ("default_backoff_s = [-1]", False),
        (f"default_backoff_s = {[1] * 33}", False),
        ('open_paths = ["/metrics"]', True),
        ('open_paths = ["metrics"]', False),
        ('allowed_origins = ["https://queue.example:8443", "http://[::1]:3000"]', True),
        ('allowed_origins = ["https://queue.example:443"]', False),
        ('allowed_origins = ["http://queue.example:443"]', True),
        ('allowed_origins = ["https://Queue.example"]', False),
        ('allowed_origins = ["https://queue.example/"]', False),
        ('allowed_hosts = ["Queue.example"]', True),
        ('allowed_hosts = ["queue.example:80"]', False),
        ('console_base_path = "/queue/"', True),
        ('console_base_path = "queue"', False),
        ('console_user_header = ""', True),
        ('console_user_header = "X User"', False),
        ("console_roles = {}", True),
        ("console_roles = {a = 1}", False),
        ("topics = 1", False),
        ("[topics.a]\ntries = 5\nttr_s = 0\nrate = 0.5\nbackoff_s = [1]", True),
        ("[topics.a]\ntires = 5", False),
        ("[topics.a]\ntries = 65536", False),
        ("[topics.a]\nttr_s = 0.05", False),
        ("[topics.a]\nbackoff_s = [-1]", False),
        ("[topics]\na = 1", False),
        ('[topics."a b"]\ntries = 5', False),
        ('[topics."a%20b"]\ntries = 5', True),
        ('[virtual_topics]\na = ["b", "c"]', True),
        ("[virtual_topics]\na = []", False),
        (f"[virtual_topics]\na = {[f't{n}' for n in range(33)]}", False),
        ('[virtual_topics]\na = ["b c"]', False),
        ("[protocols.mykit]\nport = 1", True),
        ("[protocols.mykit]\nport = 65536", False),
        ("[protocols.mykit]\nport = 1\nprot = 2", False),
        ("[protocols.mykt]\nport = 1", False),
        ("[protocols]\nmykit = 1", False),
        ("[protocols.beanstalkd]\nport = 1\npath = '/b'", False),
        ("[protocols.beanstalkd]\nport = 1\nlevels = [1]", False),
        ("[protocols.mykit]\npath = '/x'\nprefix = ''\nallow = ['10.0.0.0/8']", True),
        ("[protocols.mykit]\npath = '/x/'", False),
        ("[protocols.mykit]\nport = 1\nprefix = 'a b'", False),
        ("[protocols.mykit]\nport = 1\nallow = '10.0.0.0/8'", False),
        (f"[protocols.mykit]\nport = 1\ntoken = '{'a' * 256}'", False),
        ("[protocols.mykit]\nport = 1\nact_as = 'a/b'", False),
        ("[protocols.camellia]\nport = 1\nnamespaces = {im = 'im.'}", True),
        ("[protocols.camellia]\nport = 1\nnamespaces = {'i/m' = 'im.'}", False),
        ("[protocols.camellia]\nport = 1\nnamespaces = {im = 'i m'}", False),
    ],
)
def test_it_accepts_what_the_service_accepts(text: str, good: bool) -> None:
    values = tomllib.loads(text)
    assert VALID.is_valid(values) is good
    assert takes(values) is good


@pytest.mark.parametrize(
    "text",
    [
        "port = 8000.0",
        'tls_key = "key.pem"',
        'redis = "redis://a"\nredis_file = "url"',
        'trusted_proxies = ["10.0.0.1/8"]',
        'console_hosts = ["queue.example:80"]',
        "[protocols.mykit]",
        "[protocols.beanstalkd]\nport = 1\ntoken = 'a'",
        f"[protocols.beanstalkd]\nport = 1\nlevels = {[0] * 9}",
    ],
)
def test_what_only_the_service_can_check(text: str) -> None:
    values = tomllib.loads(text)
    assert VALID.is_valid(values) and not takes(values)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('console_title = "production"\nhost = "0.0.0.0"\nredis_file = "/absent"', True),
        ("console_titel = 'production'", False),
        ("console_port = '8080'", False),
        ("console_colour = 'pink'", False),
    ],
)
def test_it_holds_for_the_file_of_a_console(text: str, good: bool, tmp_path: Path) -> None:
    assert VALID.is_valid(tomllib.loads(text)) is good
    file = tmp_path / "console.toml"
    file.write_text(text)
    try:
        load_of_console(file=str(file), environment={})
    except SettingsError:
        assert not good
    else:
        assert good
