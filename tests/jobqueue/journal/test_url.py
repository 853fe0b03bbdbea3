"""The URLs of journals."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest

from jobqueue.journal.url import Refused, address, has_password, without_password


@pytest.mark.parametrize(
    ("url", "kind", "name"),
    [
        ("sqlite:///journal.db", "sqlite", "journal.db"),
        ("sqlite:////data/a%20b.db", "sqlite", "/data/a b.db"),
        ("postgresql://u:p@h:5433/db?sslmode=require", "postgresql", "db"),
        ("mariadb://u@h/db%2F1", "mysql", "db/1"),
        ("mysql://h/db", "mysql", "db"),
        ("postgresql://h1:1,h2:2/db", "postgresql", "db"),
    ],
)
def test_a_url_names_a_kind_of_database_and_one_of_them(url: str, kind: str, name: str) -> None:
    found = address(url)
    assert (found.kind, found.path) == (kind, name)


def test_another_url_is_refused_without_its_password(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("", "it is empty"),
        ("journal.db", "there are sqlite:///PATH, postgresql://HOST/DATABASE, mariadb://HOST/DATABASE"),
        ("redis://localhost", "not the URL of a journal: redis:***"),
        ("oracle://u:secret@h/db", "not the URL of a journal: oracle:***"),
        ("jdbc:postgresql://u:secret@h/db", "not the URL of a journal: jdbc:***"),
        ("postgresql:/u:secret@h/db", "not the URL of a journal: postgresql:***"),
        ("u:secret@h/db", "not the URL of a journal: u:***"),
        ("secret@h/db", "not the URL of a journal: ***"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///a.db?mode=ro", "names no file"),
        ("sqlite://host/a.db", "names no file"),
        ("postgresql://host", "names no database"),
        ("mariadb://u:secret@host/", "mariadb://u:***@host/ names no database"),
        ("mariadb://u:secret/x@host/db", "the host or the port of mariadb://… cannot be read"),
        ("mysql://u:p@host:secret/db", "the host or the port of mysql://… cannot be read"),
        ("postgresql://u:secret]@host/db", "the host or the port of postgresql://… cannot be read"),
    ]
    for url, said in cases:
        with subtests.test(url=url, said=said):
            with pytest.raises(Refused) as refused:
                address(url)
            assert said in str(refused.value)
            assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "missing", "extra"),
    [
        ("sqlite:///a.db", "aiosqlite", "journal"),
        ("sqlite:///a.db", "sqlalchemy", "journal"),
        ("postgresql://h/db", "asyncpg", "journal,journal-postgresql"),
        ("mariadb://h/db", "asyncmy", "journal,journal-mysql"),
        ("mysql://h/db", "sqlalchemy", "journal,journal-mysql"),
    ],
)
def test_a_missing_library_is_refused_with_the_command_that_installs_it_here(
    monkeypatch: pytest.MonkeyPatch, url: str, missing: str, extra: str
) -> None:
    there = importlib.util.find_spec

    def found(name: str) -> ModuleSpec | None:
        return None if name == missing else there(name)

    monkeypatch.setattr("jobqueue.journal.url.find_spec", found)
    with pytest.raises(Refused, match=rf"{missing}: install the extra \[{extra}\] of jobqueue: ") as refused:
        address(url)
    program, _, libraries = str(refused.value).rpartition(" install ")
    assert sys.executable in program
    assert missing in libraries and "sqlalchemy[asyncio]" in libraries and "jobqueue" not in libraries


def test_passwords_are_not_shown(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:a@b/c#d?e@h/db", "postgresql://u:***@h/db"),  # what should be encoded
        ("postgresql://:p@h/db", "postgresql://:***@h/db"),
        ("postgresql:///db?host=h&password=p&user=u", "postgresql:///db?host=h&password=***&user=u"),
        ("postgresql:///db?host=h&pass=p", "postgresql:///db?host=h&pass=***"),
        ("mysql://u@x:p@h/db", "mysql://u@x:***@h/db"),
        ("jdbc:postgresql://u:p@h/db", "jdbc:***"),
        ("postgresql:/u:p@h/db", "postgresql:***"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://u@[::1]:5432/db", "postgresql://u@[::1]:5432/db"),
        ("sqlite:////data/journal.db", "sqlite:////data/journal.db"),
        ("sqlite:////data/a:b@c.db", "sqlite:////data/a:b@c.db"),
    ]
    for url, shown in cases:
        with subtests.test(url=url, shown=shown):
            assert without_password(url) == shown
            assert has_password(url) is (url != shown)


@pytest.mark.parametrize("url", ["redis://localhost", "journal.db", ""])
def test_a_url_of_something_else_is_no_reason_to_warn_of_a_password(url: str) -> None:
    assert not has_password(url)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("ssl_ca=/nowhere.pem", "/nowhere.pem: a file of TLS cannot be read: No such file"),
        ("ssl_cert=/nowhere.pem", "/nowhere.pem: a file of TLS cannot be read: No such file"),
        ("ssl=false", "ssl=false is unknown"),
    ],
)
async def test_tls_that_cannot_be_is_refused_and_not_waited_for(query: str, said: str) -> None:
    mysql = pytest.importorskip("jobqueue.journal.stores.mysql")
    with pytest.raises(Refused, match=said):
        await mysql.connect(address(f"mariadb://u@127.0.0.1:1/db?{query}"))
