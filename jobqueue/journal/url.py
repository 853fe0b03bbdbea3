"""The URL of a journal: which databases it may name, and which parts of it may be shown. Needs no database library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from jobqueue.errors import missing_library

SCHEMES = ("sqlite", "postgresql", "mariadb", "mysql")
FORMS = "sqlite:///PATH, postgresql://HOST/DATABASE, mariadb://HOST/DATABASE, mysql://HOST/DATABASE"
_DRIVERS = {
    "sqlite": ("sqlite", "aiosqlite", ("journal",)),
    "postgresql": ("postgresql", "asyncpg", ("journal", "journal-postgresql")),
    "mariadb": ("mysql", "asyncmy", ("journal", "journal-mysql")),
    "mysql": ("mysql", "asyncmy", ("journal", "journal-mysql")),
}
"""By scheme: the kind of database, its driver, and the extras that install everything it needs."""
# Up to the last @, as a password may contain characters that should be encoded. A SQLite path has no password.
_PASSWORD = re.compile(r"^((?!sqlite:)[^:]*://[^:]*):.*@", re.DOTALL)
_SECRET = re.compile(r"(?i)([?&][^=&#]*(?:pass|pwd)[^=&#]*=)[^&#]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Refused(Exception):
    """A journal that cannot be used. The message says why, and what helps; it never contains a password."""


class Empty(Refused):
    """There is no journal yet: its tables are created when a reader starts."""


class Address(NamedTuple):
    """A URL that names a database whose driver is installed."""

    kind: str
    """sqlite, postgresql, or mysql, which also stands for MariaDB."""
    url: str

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    @property
    def path(self) -> str:
        """The path of a SQLite file."""
        return unquote(urlsplit(self.url).path.removeprefix("/"))

    @property
    def database(self) -> str:
        """The name of the database on a server."""
        return unquote(urlsplit(self.url).path.removeprefix("/"))

    @property
    def options(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))


def address(url: str) -> Address:
    """Read the URL of a journal. Raises Refused."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _DRIVERS:
        raise Refused(f"not the URL of a journal: {without_password(url) or 'it is empty'}; there are {FORMS}")
    kind, driver, extras = _DRIVERS[scheme]
    need(driver, extras=extras, what=f"{scheme}://")
    found = Address(kind, url)
    _check_server(found)
    if kind == "sqlite":
        _check_file(found, rest)
    elif not found.database:
        raise Refused(f"{found.shown} names no database; there are {FORMS}")
    return found


def need(*others: str, extras: Sequence[str] = ("journal",), what: str = "this") -> None:
    """Check that the libraries of the journal are installed, and others that `what` needs. Raises Refused."""
    for name in ("sqlalchemy", "alembic", "greenlet", *others):
        if find_spec(name) is None:
            raise Refused(missing_library(what, name, *extras))


def _check_server(found: Address) -> None:
    try:
        parts = urlsplit(found.url)
        if found.kind == "mysql":  # a PostgreSQL URL may have several ports, which its driver reads
            _ = parts.port
    except ValueError:  # the error may quote the password
        raise Refused(
            f"the host or the port of {found.scheme}://… cannot be read; in a user and a password, "
            "special characters are written as %2F for / and the like"
        ) from None


def _check_file(found: Address, rest: str) -> None:
    if not rest.startswith("/") or not found.path or found.path == ":memory:" or urlsplit(found.url).query:
        raise Refused(f"{found.shown} names no file; sqlite:///journal.db is one here, sqlite:////data/journal.db at /")


def has_password(url: str) -> bool:
    return without_password(url) != url and ("@" in url or "?" in url)


def without_password(url: str) -> str:
    """A URL as it may be shown and logged: without its password, or only its scheme if it is not the URL of a
    journal."""
    if url.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))
    scheme = _SCHEME.match(url)
    return f"{scheme[0] if scheme else ''}***" if url else ""
