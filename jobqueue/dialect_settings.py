"""The settings of the dialects, one table `[protocols.<name>]` for each. Without its table, a dialect is off and costs
nothing. docs/protocols/ says what each setting means to its clients."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from jobqueue.access.secret_values import read_secret, refuse_both
from jobqueue.errors import SettingsError
from jobqueue.schema import fields
from jobqueue.schema.mistakes import Misfit, hint, misfit

_Text = Annotated[str, Meta(max_length=255)]
_Prefix = Annotated[str, Meta(pattern=rf"^(?:{fields.NAME_PATTERN})?\Z")]
_TokenName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,40}\Z")]
_Path = Annotated[str, Meta(pattern=r"^(?:|/|(?:/[A-Za-z0-9._-]+)+)\Z")]
_Port = Annotated[int, Meta(ge=0, le=65535)]
_Tries = Annotated[int, Meta(ge=0, le=65535)]
_Level = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class DialectSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that all dialects have."""

    port: _Port = 0
    """The dialect's own port, on `host`, or 0 for none."""
    prefix: _Prefix = ""
    """Begins the names of all topics of the dialect."""
    allow: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """The networks that may connect."""
    token: _Text = ""
    """Required of each client that can send a token, or empty to require none."""
    act_as: _TokenName = ""
    """If the service requires tokens: the name of the token whose rights and topics apply to clients that send no token
    of their own, or empty to refuse these clients."""
    token_file: str = ""
    """A file that holds the token."""

    def __repr__(self) -> str:
        """Without the token, which is a secret."""
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "token"]
        return f"{type(self).__name__}({', '.join(shown)})"


class HttpDialectSettings(DialectSettings, frozen=True, kw_only=True):
    """Additional settings of the dialects over HTTP."""

    path: _Path = ""
    """The path below which the dialect is also on the service's own port: `/` for its root, or empty if it is not
    there."""


class SocketDialectSettings(DialectSettings, frozen=True, kw_only=True):
    """Additional settings of the dialects over TCP, which have no TLS."""

    allow_plain: bool = False
    """True to listen beyond loopback although the service has TLS."""


class Camellia(HttpDialectSettings, frozen=True, kw_only=True):
    """camellia's delay queue server."""

    ttl_s: fields.Ttl = 3600.0
    max_retry: Annotated[int, Meta(ge=0)] = 10
    ack_timeout_s: Annotated[float, Meta(ge=fields.SHORTEST_TTR_S, le=fields.DAY_S)] = 30.0
    retention_s: fields.Retention = 300.0
    long_polling_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    namespaces: dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")], _Prefix] = {}
    """The prefix of topics, by the first segment of the path."""


class Mykit(HttpDialectSettings, frozen=True, kw_only=True):
    """mykit-delay."""

    clear_all: bool = False


class Lmstfy(HttpDialectSettings, frozen=True, kw_only=True):
    """lmstfy."""

    ttl_s: Annotated[float, Meta(ge=0, le=fields.TEN_YEARS_S)] = 86_400.0
    """0 for no TTL."""
    tries: Annotated[int, Meta(ge=1, le=65535)] = 1
    ttr_s: Annotated[float, Meta(ge=1, le=fields.DAY_S)] = 120.0


class QueueServer(SocketDialectSettings, frozen=True, kw_only=True):
    """queue_server."""

    node_id: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1
    udp: bool = True
    advertise: _Text = ""
    """The host that clients are asked to connect to, or empty for the address that they reached."""


class Beanstalkd(SocketDialectSettings, frozen=True, kw_only=True):
    """beanstalkd."""

    max_job_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] = 65_535
    levels: Annotated[tuple[_Level, ...], Meta(min_length=9, max_length=9)] = (
        *(0, 1, 9, 99, 1023, 65_535, 1_048_575, 2_147_483_647, 4_294_967_294),
    )
    """The upper ends of the priorities that become 9, 8, … 1; higher numbers become 0."""


KINDS: dict[str, type[DialectSettings]] = {
    "camellia": Camellia,
    "mykit": Mykit,
    "queue_server": QueueServer,
    "beanstalkd": Beanstalkd,
    "lmstfy": Lmstfy,
}
"""The struct of each table."""
_AT_START = ("port", "udp")
"""Settings that open a port, and so are only read when the service starts."""


class Dialects(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The tables `[protocols.<name>]`."""

    camellia: Camellia | None = None
    mykit: Mykit | None = None
    queue_server: QueueServer | None = None
    beanstalkd: Beanstalkd | None = None
    lmstfy: Lmstfy | None = None

    def open(self) -> Iterator[tuple[str, Any]]:
        """The names and settings of the dialects that are on."""
        for name in KINDS:
            options = getattr(self, name)
            if options is not None:
                yield name, options

    def reloaded(self, later: Dialects) -> Dialects:
        """These settings, with those of `later` that SIGHUP applies: neither which dialects are on, nor the settings
        that open a port."""
        tables: dict[str, Any] = {name: _reloaded(options, getattr(later, name)) for name, options in self.open()}
        return Dialects(**tables)

    def need_restart(self, later: Dialects) -> list[str]:
        """The changed settings in `later` that SIGHUP does not apply."""
        mine, theirs, taken = dict(self.open()), dict(later.open()), dict(self.reloaded(later).open())
        names = [f"protocols.{name}" for name in KINDS if (name in mine) != (name in theirs)]
        for name in mine.keys() & theirs.keys():
            names += [
                f"protocols.{name}.{field}"
                for field in theirs[name].__struct_fields__
                if getattr(theirs[name], field) != getattr(taken[name], field)
            ]
        return sorted(names)


def _reloaded(options: DialectSettings, later: DialectSettings | None) -> DialectSettings:
    if later is None:
        return options
    kept = {name: getattr(options, name) for name in _AT_START if name in options.__struct_fields__}
    return msgspec.structs.replace(later, **kept)


def read(tables: Any, source: str) -> Dialects:
    """The settings in the tables of a file. Raises SettingsError with the place and the fault."""
    if not isinstance(tables, dict):
        raise SettingsError(f"protocols in {source}: must be a table")
    read_tables: dict[str, Any] = {name: _table(name, table, source) for name, table in tables.items()}
    return Dialects(**read_tables)


def _table(name: str, table: Any, source: str) -> DialectSettings:
    if name not in KINDS:
        raise SettingsError(f"protocols.{name} in {source}: unknown protocol{hint(name, KINDS)}")
    kind = KINDS[name]
    try:
        return msgspec.convert(_with_token(name, table, source), kind)
    except msgspec.ValidationError as error:
        wrong = misfit(error)
        fault = wrong.fault
        if wrong.unknown:
            fault = f"unknown setting {wrong.unknown}{hint(wrong.unknown, kind.__struct_fields__)}"
        elif "matching regex" in fault:
            fault = _expected(wrong)
        raise SettingsError(f"protocols.{name}{wrong.path} in {source}: {fault}") from None


def _with_token(name: str, table: Any, source: str) -> Any:
    """The table, with the token read from its `token_file`."""
    file = table.get("token_file") if isinstance(table, dict) else None
    if not isinstance(file, str) or not file:
        return table
    refuse_both(table, "token", f"protocols.{name} in {source}")
    return table | {"token": read_secret(file, f"protocols.{name}.token_file")}


def _expected(wrong: Misfit) -> str:
    """What a text must be if it does not match its pattern."""
    if wrong.path == ".path":
        return "must be empty, / or a path such as /queue, without a slash at its end"
    if wrong.path == ".act_as":
        return "must be the name of a token: 1 to 40 characters of A-Z a-z 0-9 . _ -"
    if wrong.is_key:
        return "the name of a namespace must be 1 to 64 characters of A-Z a-z 0-9 . _ -"
    return f"a prefix must be empty or {fields.NAME}"


def check(dialects: Dialects, service_port: int, *, asks_tokens: bool = False) -> None:
    """Raises SettingsError for settings that are allowed alone but not together, and for invalid networks."""
    for name, options in dialects.open():
        if not options.port and not getattr(options, "path", ""):
            ways = "a port or a path" if isinstance(options, HttpDialectSettings) else "a port"
            raise SettingsError(f"protocols.{name} must have {ways}, or it could not be reached")
        _check_networks(name, options.allow)
        if options.act_as and not asks_tokens:
            raise SettingsError(
                f'protocols.{name}.act_as names a token, and the service asks for none: access = "open"'
            )
    if dialects.beanstalkd and dialects.beanstalkd.token:
        raise SettingsError("protocols.beanstalkd.token: its clients cannot send a token; only allow protects it")
    if dialects.beanstalkd and asks_tokens and not dialects.beanstalkd.act_as:
        raise SettingsError('protocols.beanstalkd needs act_as with access = "tokens": its clients can send no token')
    _check_places(dialects, service_port)
    levels = dialects.beanstalkd.levels if dialects.beanstalkd else ()
    if list(levels) != sorted(set(levels)):
        raise SettingsError("protocols.beanstalkd.levels must ascend")


def _check_networks(name: str, networks: tuple[str, ...]) -> None:
    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            raise SettingsError(f"protocols.{name}.allow: {error}") from None


def _check_places(dialects: Dialects, service_port: int) -> None:
    """Raises SettingsError if two dialects have the same port or path, or if one has the port of the service."""
    for setting in ("port", "path"):
        names: dict[Any, str] = {}
        for name, options in dialects.open():
            value = getattr(options, setting, "")
            first = names.setdefault(value, name) if value else name
            if first != name:
                raise SettingsError(f"protocols.{first} and protocols.{name} have the same {setting}, {value}")
    for name, options in dialects.open():
        if options.port and options.port == service_port:
            raise SettingsError(f"protocols.{name}.port is the service's own, {service_port}{_or_path(options)}")


def _or_path(options: DialectSettings) -> str:
    return "; `path` opens it there" if isinstance(options, HttpDialectSettings) else ""


def addresses(dialects: Dialects, host: str) -> dict[str, str]:
    """Where the dialects listen, in words, by name."""
    return {name: _address(options, host) for name, options in dialects.open()}


def _address(options: DialectSettings, host: str) -> str:
    at = f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}"
    own = at if options.port else ""
    if isinstance(options, HttpDialectSettings):
        return " and ".join(filter(None, (own and f"http://{own}", options.path)))
    return f"{own}, also by UDP" if getattr(options, "udp", False) else own
