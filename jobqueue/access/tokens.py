"""Tokens: their form, their records, and their rights.

A token is `jqt_`, 8 characters of id, 43 of secret, and 6 of checksum, in base 62. The prefix and the checksum let
scanners find a token that leaked, and clients find a typing error. The secret has 256 random bits, so it is safe to
store a plain SHA-256 of the whole token.

A record never holds the token itself. Redis keeps records as JSON, a file keeps them as TOML tables. The fields of a
record from a user or a file are checked one by one. Those from Redis are not: another version may have written them,
and fields that this version does not know grant nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import string
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta, Struct

from jobqueue.errors import BadField
from jobqueue.schema import commands, fields, inner
from jobqueue.schema.mistakes import hint
from jobqueue.schema.params import OF_TESTS

_ROWS = commands.COMMANDS | commands.OF_TESTS
OF_COMMANDS: dict[str, tuple[str, ...]] = {
    right: tuple(name for name, row in _ROWS.items() if right in row.rights)
    for right in ("produce", "consume", "look", "operate", "admin")
}
"""The commands that each right allows; `admin` also allows those of all other rights."""
BODIES = "bodies"
METRICS = "metrics"
ADMIN = "admin"
ACTOR = "actor"
OF_NOTHING_ELSE = (BODIES, METRICS, ACTOR)
"""Rights that allow no command: to see the bodies of jobs, to read /metrics, to name the person who acts."""
SPARED = frozenset(name for name, row in _ROWS.items() if row.is_spared)
"""Commands that no rate refuses."""
_OPEN_TO_ALL = tuple(name for name, row in _ROWS.items() if not row.rights)

_NAMES: dict[type[Any], str] = {kind: name for name, kind in inner.BY_NAME.items()} | {
    inner.Names: "topics",
    inner.Counter: "stats",
    inner.Restore: "kick",
}
_NAMES |= {row.kind: name for name, row in _ROWS.items()}
SHOWING = tuple(kind for kind, name in _NAMES.items() if _ROWS[name].shows_bodies)
"""The structs of commands whose answers have bodies of jobs; their field `body` says whether the request asks for the
bodies."""
COMMANDS = tuple(sorted(_ROWS))
"""The names of all commands, each of which is a right of its own."""
RIGHTS = (*OF_COMMANDS, *OF_NOTHING_ELSE)
"""The rights that have names of their own."""
WORDS = frozenset((*RIGHTS, *COMMANDS)) - commands.OF_TESTS.keys()
"""The rights that a token may have. On a test service, `admin` also allows the test commands."""


def name_of(command: Any) -> str:
    """The name of a command as used by rights: a dialect's command has the name of the native one."""
    return _NAMES[type(command)]


def commands_of(rights: tuple[str, ...]) -> frozenset[str]:
    """The names of the commands that rights allow."""
    if ADMIN in rights:
        return frozenset(COMMANDS)
    allowed = {name for right in rights for name in OF_COMMANDS.get(right, (right,) if right in COMMANDS else ())}
    return frozenset((*allowed, *_OPEN_TO_ALL))


def kinds_of(names: frozenset[str]) -> frozenset[type[Any]]:
    """The structs of commands with these names."""
    return frozenset(kind for kind, name in _NAMES.items() if name in names)


def right_for(name: str) -> str:
    """The right that a refusal names for a command: the first of those that allow it."""
    row = _ROWS.get(name)
    return row.rights[0] if row and row.rights else name


MOST = 10_000
"""The most live tokens in a namespace."""
KEPT_S = 7 * fields.DAY_S
"""How long the record of a token that was revoked or has expired is kept."""
DEFAULT_LIFE_S = 90 * fields.DAY_S
NEVER = "never"
LEAST_BURST = 10
_LAST = 100_000_000_000  # unix seconds
_is_digest = re.compile("[0-9a-f]{64}").fullmatch
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", extra={"words": "a SHA-256 in 64 digits of 0-9 a-f"})]
_Moment = Annotated[float, Meta(ge=0, extra={"words": "a time, such as 2026-11-23T09:00:00Z"})]
_By = Annotated[str, Meta(max_length=200, extra={"words": "a string of at most 200 characters"})]


class Record(Struct, frozen=True, kw_only=True):
    """One token. Times are unix seconds by Redis's clock."""

    id: str
    name: str
    digest: str
    """SHA-256 of the token, in hexadecimal digits."""
    rights: tuple[str, ...]
    topics: tuple[str, ...] = ()
    """Patterns, or empty for all topics."""
    created: float
    created_by: str = ""
    expires: float | None = None
    rate: int | None = None
    """Commands per second."""
    burst: int | None = None
    """Commands at once; set whenever `rate` is."""
    waits: int | None = None
    """Pops that may wait at once."""
    own_ids: bool = False
    certificate: str = ""
    previous: str = ""
    """The digest of the secret before a rotation."""
    previous_until: float = 0
    revoked: float = 0
    changed: int
    """When it was last changed, in us. Of two records of one token, the one changed later counts."""
    bytes: int | None = None
    """Bytes of bodies that it may send per second."""

    def is_live(self, now: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return not self.revoked and (self.expires is None or now < self.expires)

    def is_forgotten(self, now: float) -> bool:
        """Whether it ended so long ago that its record is no longer needed."""
        ends = [moment for moment in (self.revoked, self.expires) if moment]
        return bool(ends) and min(ends) + KEPT_S < now


class Wish(Struct, frozen=True, kw_only=True):
    """The fields that the creator of a token chooses. Made by `_checked`."""

    name: fields.TokenName
    rights: fields.TokenRights
    topics: fields.TokenTopics = []
    expires: fields.TokenExpires | None = None
    rate: fields.TokenRate | None = None
    burst: fields.TokenBurst | None = None
    waits: fields.TokenWaits | None = None
    own_ids: fields.TokenOwnIds = False
    certificate: fields.TokenCertificate | None = None
    bytes: fields.TokenBytes | None = None


class _Filed(Wish, frozen=True, kw_only=True):
    """The fields that a table of the file of tokens may have."""

    id: fields.TokenId
    digest: _Digest
    created: _Moment = 0.0
    created_by: _By = ""
    previous: _Digest | None = None
    previous_until: _Moment = 0.0


_AnyStruct = TypeVar("_AnyStruct", bound=Struct)
_JSON = msgspec.json.Decoder(Record)


def from_json(raw: bytes) -> Record | None:
    """The record that Redis keeps as this JSON, or None if it cannot be read."""
    try:
        record = _JSON.decode(raw)
    except msgspec.DecodeError:
        return None
    return record if all(map(_is_digest, (record.digest, record.previous or record.digest))) else None


def as_json(record: Record) -> bytes:
    """The record as Redis keeps it."""
    return msgspec.json.encode(record)


def granted(values: Mapping[str, Any], now: float, latest: float | None = None) -> dict[str, Any]:
    """The fields of a record that its creator chooses, checked and with their defaults. Without `expires`, the token
    ends after 90 days, or at `latest` if that is earlier. `now`: unix seconds. Raises BadField, which names the field
    and what it may be."""
    wish = _checked(values, Wish)
    if wish.expires is None:
        usual = now + DEFAULT_LIFE_S
        return _granted(wish) | {"expires": usual if latest is None else min(usual, latest)}
    return _granted(wish) | {"expires": expiry(wish.expires, now)}


def from_table(values: Mapping[str, Any]) -> Record:
    """The record in a table of the file. Raises BadField, which names the field and what it may be."""
    filed = _checked({name: _plain(value) for name, value in values.items()}, _Filed)
    if filed.expires is None:
        raise BadField(f'expires is missing: give a time, or "{NEVER}"', field="expires")
    own = {name: getattr(filed, name) for name in ("id", "digest", "created", "created_by", "previous_until")}
    expires = None if filed.expires == NEVER else _moment(filed.expires)  # a file stays valid when a token expires
    return Record(**{**_granted(filed), "expires": expires}, **own, previous=filed.previous or "", changed=0)


def as_table(record: Record) -> str:
    """The record as a table of the file."""
    values = {
        name: value
        for name in _Filed.__struct_fields__
        if (value := getattr(record, name)) not in (None, (), "", 0, False)
    }
    times = {name: _time(values[name]) for name in ("created", "expires", "previous_until") if name in values}
    lines = {name: json.dumps(value) for name, value in values.items()} | times
    lines.setdefault("expires", json.dumps(NEVER))
    return "".join(["[[token]]\n", *(f"{name} = {line}\n" for name, line in lines.items())])


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(int(unix_s), UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """A TOML time as unix seconds; any other value unchanged."""
    return value.timestamp() if isinstance(value, datetime) and value.tzinfo else value


def _checked(values: Mapping[str, Any], kind: type[_AnyStruct]) -> _AnyStruct:
    types = {field.name: field for field in msgspec.structs.fields(kind)}
    unknown = next((name for name in values if name not in types), None)
    if unknown is not None:
        raise BadField(f"a token has no field {unknown[:40]}{hint(unknown, tuple(types))}", field=unknown)
    given = {name: value for name, value in values.items() if value is not None}
    missing = next((name for name, field in types.items() if field.required and name not in given), None)
    if missing is not None:
        raise BadField(f"{missing} is missing", field=missing)
    return kind(**{name: _converted(name, value, types[name].type) for name, value in given.items()})


def _converted(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise BadField(f"{name} must be {fields.expected(kind)}", field=name) from None


def _granted(wish: Wish) -> dict[str, Any]:
    """All fields except `expires`, which the caller sets; checked."""
    given = {name: getattr(wish, name) for name in Wish.__struct_fields__}
    unknown = next((word for word in wish.rights if word not in WORDS), None)
    if unknown in OF_TESTS:
        raise BadField(
            f"no token has the right {unknown}: only a test service (serve --test) has that command, and admin"
            " allows it there",
            field="rights",
        )
    if unknown is not None:
        words = fields.expected(fields.TokenRights)
        raise BadField(f"rights must be {words}{hint(unknown, tuple(WORDS))}", field="rights")
    if wish.burst is not None and wish.rate is None:
        raise BadField("burst needs a rate", field="burst")
    burst = wish.burst if wish.rate is None else wish.burst or max(wish.rate, LEAST_BURST)
    return given | {
        "rights": tuple(dict.fromkeys(wish.rights)),
        "topics": tuple(dict.fromkeys(wish.topics)),
        "burst": burst,
        "certificate": wish.certificate or "",
    }


def expiry(given: float | str, now: float) -> float | None:
    """When a token expires, in Unix seconds; None for `never`. Raises BadField."""
    if given == NEVER:
        return None
    end = _moment(given)
    if not now < end <= now + fields.TEN_YEARS_S:
        raise BadField(f"expires must be {fields.expected(fields.TokenExpires)}, and not in the past", field="expires")
    return end


def _moment(given: float | str) -> float:
    """Unix seconds, given as such or as an RFC 3339 time with its offset. Raises BadField."""
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else None
        end = float(given) if moment is None else moment.timestamp() if moment.tzinfo else 0.0
        if 0 < end <= _LAST:
            return end
    except (ValueError, OverflowError):
        pass
    raise BadField(f"expires must be {fields.expected(fields.TokenExpires)}", field="expires")


PREFIX = "jqt_"
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 8, 43, 6
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{ID_LENGTH + SECRET_LENGTH + CHECKSUM_LENGTH}}}")


class Token:
    """A token in clear text, as only its bearer has it. Its repr hides the secret, so that it is not shown by
    accident."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def make(cls, token_id: str = "") -> Self:
        """A new token. `token_id`: the id of the token whose secret is replaced."""
        secret = _base62(secrets.randbits(256), SECRET_LENGTH)
        body = f"{PREFIX}{token_id or new_id()}{secret}"
        return cls(body + _checksum(body))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The token with this text, or None if its form or its checksum is wrong."""
        body, checksum = text[:-CHECKSUM_LENGTH], text[-CHECKSUM_LENGTH:]
        return cls(text) if _FORM.fullmatch(text) and _checksum(body) == checksum else None

    @property
    def id(self) -> str:
        """The id that names the token in answers, logs and records."""
        return self.text[len(PREFIX) : len(PREFIX) + ID_LENGTH]

    @property
    def digest(self) -> str:
        """The digest that is stored instead of the token, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode("ascii")).hexdigest()

    def __repr__(self) -> str:
        return f"Token({self.id}…)"


def new_id() -> str:
    """An id for a new token."""
    return "".join(secrets.choice(_DIGITS) for _ in range(ID_LENGTH))


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii", "replace")), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    """A number in digits of base 62, the highest first."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
