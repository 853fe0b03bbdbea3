"""The settings: data with defaults, overridden by a file (TOML), then the environment (`JOBQUEUE_…`), then flags.

Only this module reads the environment, except that `workers.notify` reads what the service manager sets there, and
`secret_values` reads the variables that files name as `${NAME}`. Only this module and `secret_values` read files.
`jobqueue healthcheck` has no time to load this module, and reads a few settings by the same rules. conf/jobqueue.toml
lists every setting with its default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from jobqueue import dialect_settings
from jobqueue.access.secret_values import read_secret, refuse_both, without_secret
from jobqueue.dialect_settings import Dialects
from jobqueue.errors import SettingsError
from jobqueue.schema import fields
from jobqueue.schema.mistakes import hint, misfit

MOST_WORKERS = 64
SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it too

Seconds = Annotated[float, Meta(ge=0)]
_Path = Annotated[str, Meta(pattern=r"^/[!-~]*\Z")]
_HOST_NAME = r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?"
_HOST = _HOST_NAME.replace("a-z", "A-Za-z")
_OWN_PORT = r"http:.*:80\Z|https:.*:443\Z"  # browsers leave it out
_ORIGIN = rf"(?!{_OWN_PORT})[a-z][a-z0-9+.-]*://(?:{_HOST_NAME}|\[[0-9a-f:.]+\])(?::[1-9][0-9]{{0,4}})?"
_BASE_PATH = r"(?:/[A-Za-z0-9._~-]+)*/?"
_HEADER = r"[A-Za-z0-9-]*"


def _described(pattern: str) -> Meta:
    """A pattern for the schema of settings files only: the service has better words than msgspec for a misfit."""
    return Meta(extra_json_schema={"pattern": rf"^(?:{pattern})\Z"})


_Origin = Annotated[str, _described(_ORIGIN)]
_Host = Annotated[str, _described(_HOST)]
_BasePath = Annotated[str, _described(_BASE_PATH)]
_Header = Annotated[str, _described(_HEADER)]
Ladder = Annotated[tuple[fields.Delay, ...], Meta(max_length=fields.MOST_STEPS)]
Rate = Annotated[float, Meta(ge=0.001, le=100_000)]
Concurrency = Annotated[int, Meta(ge=1)]
DeadAgeS = Annotated[float, Meta(ge=1, le=fields.TEN_YEARS_S)]


class PerKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of each key of a topic. A job keeps those with which it was added."""

    concurrency: Annotated[int, Meta(ge=1, le=65_535, description="the most jobs of a key that run at a time")] = 1
    # A timer makes the next delivery possible, to the millisecond.
    rate: Annotated[float, Meta(ge=0.001, le=1_000, description="the most deliveries of a key a second")] | None = None


class TopicSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one topic; for unset ones, the settings of all topics apply."""

    ttr_s: fields.Ttr | None = None
    tries: fields.Tries | None = None
    backoff_s: Ladder | None = None
    ttl_s: fields.Ttl | None = None
    retention_s: fields.Retention | None = None
    priority: fields.Priority | None = None
    max_pending: Annotated[int, Meta(ge=0)] = 0
    max_dead: Annotated[int, Meta(ge=0)] = 0
    dead_age_s: DeadAgeS | None = None
    rate: Rate | None = None
    concurrency: Concurrency | None = None
    per_key: PerKey = PerKey()


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator may set. Units are in the names."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    socket: str = ""
    access: Literal["open", "tokens"] = "open"
    allow_open: bool = False
    tokens_file: str = ""
    open_paths: tuple[_Path, ...] = ()
    allowed_origins: tuple[_Origin, ...] = ()
    allowed_hosts: tuple[_Host, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tls_client: Literal["none", "optional", "required"] = "none"
    tls_min: Literal["1.2", "1.3"] = "1.2"
    workers: Annotated[int, Meta(ge=0, le=MOST_WORKERS)] = 0
    redis: str = ""
    redis_file: str = ""
    redis_timeout_s: Annotated[float, Meta(ge=0.1, le=60)] = 5.0
    clock_limit_s: Annotated[float, Meta(ge=0.01, le=86_400)] = 1.0
    allow_eviction: bool = False
    durability: Literal["local", "replicated", "fsynced"] = "local"
    replicas: Annotated[int, Meta(ge=1, le=100)] = 1
    durability_timeout_s: Annotated[float, Meta(ge=0.001, le=30)] = 1.0
    data: str = "jobqueue-data"
    redis_server: str = ""
    namespace: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,32}\Z")] = "jq"
    shards: Annotated[int, Meta(ge=0, le=fields.MOST_SHARDS)] = 0
    buckets: Annotated[int, Meta(ge=0, le=64)] = 0
    timer_awake_share: Annotated[float, Meta(ge=0, le=1)] = 0.1
    grace_s: Annotated[float, Meta(ge=0.1, le=600)] = 10.0
    client_timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    max_connections: Annotated[int, Meta(ge=1)] = 10_000
    max_request_bytes: Annotated[int, Meta(ge=1024)] = 16 << 20
    max_body_bytes: Annotated[int, Meta(ge=1)] = 256 << 10
    default_ttr_s: fields.Ttr = 60.0
    default_tries: fields.Tries = 16
    default_backoff_s: Ladder = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
    default_retention_s: fields.Retention = 60.0
    default_priority: fields.Priority = 4
    default_dead_age_s: DeadAgeS = 2_592_000.0
    idle_topic_s: Annotated[float, Meta(ge=0.1, le=fields.TEN_YEARS_S)] = 3600.0
    metrics_topics: Annotated[int, Meta(ge=0, le=10_000)] = 100
    history_hours: Annotated[int, Meta(ge=0, le=168)] = 48
    journal: str = ""
    journal_file: str = ""
    journal_run: bool = False
    events_max_mb: Annotated[int, Meta(ge=1, le=1 << 20)] = 256
    console_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    console_host: str = "127.0.0.1"
    console_hosts: tuple[str, ...] = ()
    console_title: Annotated[str, Meta(max_length=60)] = "jobqueue"
    console_colour: Literal["grey", "blue", "green", "amber", "red", "purple"] = "grey"
    console_base_path: _BasePath = "/"
    console_read_only: bool = False
    console_bodies: Literal["shown", "hidden"] = "shown"
    console_tls_cert: str = ""
    console_tls_key: str = ""
    trusted_proxies: tuple[str, ...] = ()
    console_user_header: _Header = ""
    console_groups_header: _Header = ""
    console_roles: dict[str, str] = {}
    log_body_views: bool = False
    traces: Literal["off", "otlp"] = "off"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"
    topics: dict[fields.Name, TopicSettings] = {}
    virtual_topics: dict[fields.Name, Annotated[tuple[fields.Name, ...], Meta(min_length=1, max_length=32)]] = {}
    protocols: Dialects = Dialects()

    def __repr__(self) -> str:
        """Without secrets."""
        return f"Settings({', '.join(f'{name}={value}' for name, value in self.shown().items())})"

    def shown(self) -> dict[str, str]:
        """Each setting as text, without the user, the password and the parameters of the URLs of Redis and the journal,
        and without the tokens of the dialects."""
        values = {name: getattr(self, name) for name in self.__struct_fields__} | {"redis": without_secret(self.redis)}
        values["journal"] = without_secret(self.journal) if self.journal else ""
        return {name: repr(value) for name, value in values.items()}

    def numbers(self, is_cluster: bool) -> tuple[int, int]:
        """The number of shards of a new namespace, and of buckets in each: two buckets are enough on a Cluster, where
        every shard has timers."""
        shards, buckets = (16, 2) if is_cluster else (1, 8)
        return self.shards or shards, self.buckets or buckets

    def unlike(self, others: Settings) -> list[str]:
        """The names of the settings that differ from those of `others`."""
        return [name for name in self.__struct_fields__ if getattr(self, name) != getattr(others, name)]

    def reloaded(self, later: Settings) -> Settings:
        """These settings, with those of `later` that SIGHUP applies."""
        taken = {name: getattr(later, name) for name in _RELOADED}
        return msgspec.structs.replace(self, **taken, protocols=self.protocols.reloaded(later.protocols))

    def need_restart(self, later: Settings) -> list[str]:
        """The names of the changed settings in `later` that SIGHUP does not apply."""
        names = [name for name in later.unlike(self) if name not in _RELOADED and name != "protocols"]
        return names + self.protocols.need_restart(later.protocols)


class File(NamedTuple):
    """The contents of a file, unchecked."""

    path: str
    values: dict[str, Any]


Sources = dict[str, str]
"""Where settings came from, by name: `file`, `environment` or `flag`. All other settings have their defaults."""


class Loaded(NamedTuple):
    """Settings, and where they came from."""

    settings: Settings
    sources: Sources

    def reloaded(self, later: Loaded) -> Loaded:
        """These settings, with those of `later` that SIGHUP applies."""
        kept = {name: source for name, source in self.sources.items() if name not in _RELOADED}
        taken = {name: source for name, source in later.sources.items() if name in _RELOADED}
        return Loaded(self.settings.reloaded(later.settings), kept | taken)


_RELOADED = {"topics", "virtual_topics", *(name for name in Settings.__struct_fields__ if name.startswith("default_"))}

# The settings of a real service that a test service does not use.
_ELSEWHERE = {
    *("host", "port", "workers", "redis", "redis_file", "data"),
    *("shards", "buckets", "durability", "replicas", "protocols"),
    *("journal", "journal_file", "journal_run", "console_port"),
    *("socket", "tls_cert", "tls_key", "tls_client_ca", "tls_client", "tls_min"),
}

# The settings that a console reads if it runs by itself.
_OF_CONSOLE = {
    *("trusted_proxies", "log_level", "log_format"),
    *(name for name in Settings.__struct_fields__ if name.startswith("console_")),
}

PREFIX = "JOBQUEUE_"
_ENVIRONMENT = "the environment"
URLS = ("redis", "journal")
"""Each may contain a password, and has a twin that names a file with the URL."""
TABLES = ("topics", "virtual_topics", "protocols", "console_roles")
"""These can only be set in a file."""
_LISTS = ("default_backoff_s", "open_paths", "allowed_origins", "allowed_hosts", "console_hosts", "trusted_proxies")
_CONFIG = "CONFIG"  # JOBQUEUE_CONFIG names the file
# JOBQUEUE_URL is where the command line finds a service, and JOBQUEUE_TOKEN the token that it and the clients send; the
# secret is that of `jobqueue callbacks`, the outbox the database of `jobqueue outbox`.
_NOT_SETTINGS = {
    f"{PREFIX}{name}"
    for name in (
        _CONFIG,
        "URL",
        "TOKEN",
        "TOKEN_FILE",
        "CA_FILE",
        "CERT_FILE",
        "KEY_FILE",
        "CALLBACK_SECRET",
        "CALLBACK_SECRET_FILE",
        "OUTBOX",
    )
}


def load(
    flags: Mapping[str, Any] | None = None, file: str | File | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings from all sources. Raises SettingsError with a sentence that names the setting and its source.

    `file`: its path or its contents, or None for the file that JOBQUEUE_CONFIG names.
    """
    return load_with_sources(flags, file, environment).settings


def load_with_sources(
    flags: Mapping[str, Any] | None = None, file: str | File | None = None, environment: Mapping[str, str] | None = None
) -> Loaded:
    """Like `load`, with the sources. A secret that was read from a file has the source that named the file."""
    values: dict[str, Any] = {}
    sources: Sources = {}
    for source, place, found in _given(flags, file, environment):
        checked = _checked(found, place)
        values = _over(values, checked, place)
        sources = {name: each for name, each in sources.items() if name in values} | dict.fromkeys(checked, source)
    for name in URLS:
        if values.get(f"{name}_file"):
            values[name] = read_secret(values[f"{name}_file"], f"{name}_file")
            sources[name] = sources[f"{name}_file"]
    return Loaded(_whole(values), sources)


def load_of_console(
    flags: Mapping[str, Any] | None = None, file: str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of a console that runs by itself; all others have their defaults. Only the names of a service's
    settings are checked, because their values may name files that are not on this machine."""
    values: dict[str, Any] = {}
    for _, place, found in _given(flags, file, environment):
        of_service = set(Settings.__struct_fields__) - _OF_CONSOLE
        values |= _checked({name: value for name, value in found.items() if name not in of_service}, place)
    settings = msgspec.convert(values, Settings)
    _check_console(settings)
    return settings


def _given(
    flags: Mapping[str, Any] | None, file: str | File | None, environment: Mapping[str, str] | None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The kind of each source, its name as used in a sentence, and its values; later sources override earlier ones."""
    environment = os.environ if environment is None else environment
    if not isinstance(file, File):
        path = file_of(file, environment)
        file = read(path) if path else None
    if file:
        yield "file", f"the file {file.path}", file.values
    yield "environment", _ENVIRONMENT, dict(_from_environment(environment))
    yield "flag", "the flags", {name: value for name, value in (flags or {}).items() if value is not None}


def _whole(values: Mapping[str, Any]) -> Settings:
    """The settings of all sources together. Raises SettingsError for settings that do not go together."""
    settings = msgspec.convert(values, Settings)
    _check_ttrs(settings)
    _check_virtual(settings)
    _check_browsers(settings)
    _check_tls(settings)
    if settings.journal_run and not settings.journal:
        raise SettingsError("journal_run goes with journal: the URL of the database that is written to")
    _check_console(settings)
    _check_console_port(settings)
    dialect_settings.check(settings.protocols, settings.port, asks_tokens=settings.access == "tokens")
    return settings


def _over(values: dict[str, Any], checked: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values, overridden by those of a source. Its `redis` also overrides a `redis_file`, and vice versa; the same
    applies to `journal`."""
    kept = dict(values)
    for name in URLS:
        refuse_both(checked, name, source)
        twins = (name, f"{name}_file")
        if any(twin in checked for twin in twins):
            kept = {each: value for each, value in kept.items() if each not in twins}
    return {**kept, **checked}


def file_of(file: str | None, environment: Mapping[str, str] | None = None) -> str | None:
    """The file that the settings are read from, if any."""
    return file or (os.environ if environment is None else environment).get(PREFIX + _CONFIG)


def for_tests(loaded: Loaded, flags: Mapping[str, Any]) -> Loaded:
    """The settings of a test service: those of a real one, except for where it listens and keeps its data. Raises
    SettingsError for flags that a test service cannot have."""
    settings, sources = loaded
    refused = [name for name in ("redis", "redis_file", "data", "workers") if flags.get(name) is not None]
    if refused:
        flag = refused[0].replace("_", "-")
        raise SettingsError(f"--test excludes --{flag}: a test service is one process with a Redis of its own")
    kept = {name: getattr(settings, name) for name in Settings.__struct_fields__ if name not in _ELSEWHERE}
    where = {name: value for name in ("host", "port") if (value := flags.get(name)) is not None}
    told = {name: source for name, source in sources.items() if name in kept or name in where}
    return Loaded(Settings(**{"port": 0, "workers": 1, **kept, **where}), told)


def _check_ttrs(settings: Settings) -> None:
    ttrs = {"default_ttr_s": settings.default_ttr_s} | {
        f"topics.{name}.ttr_s": topic.ttr_s for name, topic in settings.topics.items() if topic.ttr_s is not None
    }
    for name, ttr_s in ttrs.items():
        if not fields.is_ttr(ttr_s):
            raise SettingsError(f"{name} must be {fields.expected(fields.Ttr)}")


def _check_virtual(settings: Settings) -> None:
    virtual = settings.virtual_topics
    for name, targets in virtual.items():
        if name in settings.topics:
            raise SettingsError(f"the topic {name} is virtual, and so cannot have settings of its own")
        if len(set(targets)) < len(targets):
            raise SettingsError(f"virtual_topics.{name} names a topic twice")
        nested = next((target for target in targets if target in virtual), None)
        if nested:
            raise SettingsError(f"virtual_topics.{name} names {nested}, which is virtual itself")


def _check_browsers(settings: Settings) -> None:
    """Raises SettingsError for an origin or a host that no browser sends, and that would therefore never match."""
    for origin in settings.allowed_origins:
        if not re.fullmatch(_ORIGIN, origin):
            raise SettingsError(
                f"allowed_origins: {origin!r} is not an origin such as https://queue.example or http://localhost:3000:"
                " in small letters, without a path, and without the port if it is the scheme's own"
            )
    for host in settings.allowed_hosts:
        if not re.fullmatch(_HOST, host):
            raise SettingsError(f"allowed_hosts: {host!r} is not a host name such as queue.example, without a port")


def _check_tls(settings: Settings) -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError("tls_cert and tls_key go together: a certificate and its key, which may be in one file")
    if (settings.tls_client != "none") != bool(settings.tls_client_ca):
        raise SettingsError('tls_client_ca goes with tls_client = "optional" or "required"')
    if settings.tls_client_ca and not settings.tls_cert:
        raise SettingsError("tls_client_ca goes with tls_cert")


def _check_console_port(settings: Settings) -> None:
    if settings.console_port and settings.console_port == settings.port:
        raise SettingsError(f"console_port is the service's own, {settings.port}")
    if settings.console_port and settings.tls_cert and not settings.socket:
        raise SettingsError(
            "console_port with tls_cert needs socket: the console asks the service over its Unix socket then"
        )


def _check_console(settings: Settings) -> None:
    for host in settings.console_hosts:
        if not (re.fullmatch(_HOST, host) or _is_ipv6(host)):
            raise SettingsError(
                f"console_hosts: {host!r} is not a host such as console.example, without a scheme and a port"
            )
    if not re.fullmatch(_BASE_PATH, settings.console_base_path):
        raise SettingsError(f"console_base_path: {settings.console_base_path!r} is not a path such as /queue")
    if bool(settings.console_tls_cert) != bool(settings.console_tls_key):
        raise SettingsError("console_tls_cert and console_tls_key go together: a certificate and its key")
    _check_sign_on(settings)


def _check_sign_on(settings: Settings) -> None:
    for network in settings.trusted_proxies:
        try:
            ip_network(network)
        except ValueError as error:
            raise SettingsError(f"trusted_proxies: {error}") from None
    headers = {name: getattr(settings, name) for name in ("console_user_header", "console_groups_header")}
    for name, header in headers.items():
        if not re.fullmatch(_HEADER, header):
            raise SettingsError(f"{name}: {header!r} is not the name of a header, such as X-Forwarded-User")
    together = {**headers, "console_roles": settings.console_roles}
    missing = [name for name, value in {**together, "trusted_proxies": settings.trusted_proxies}.items() if not value]
    if any(together.values()) and missing:
        raise SettingsError(
            f"{', '.join(together)} and trusted_proxies go together: {', '.join(missing)} must be set, too"
        )


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def shared_metrics_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder in which processes share their metrics, or None if they do not."""
    path = (os.environ if environment is None else environment).get(SHARED_METRICS)
    return Path(path) if path else None


def read(path: str) -> File:
    """Read a file. Raises SettingsError."""
    try:
        return File(path, tomllib.loads(Path(path).read_text()))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the settings file {path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in _NOT_SETTINGS and not _is_service_link(name, value)
    }


def _is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes or Docker set a variable for a service that is itself called jobqueue, or jobqueue-console."""
    return value.startswith(("tcp://", "udp://")) or re.match(rf"{PREFIX}(CONSOLE_)?(SERVICE|PORT)_", name) is not None


def _checked(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of one source, each converted to the type of its setting."""
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    checked = {}
    for name, value in values.items():
        if name not in types:
            raise SettingsError(_unknown(name, source))
        if source == _ENVIRONMENT and name in TABLES:
            raise SettingsError(f"{_named(name, source)} can only be set in a file")
        if name == "protocols":
            checked[name] = dialect_settings.read(value, source)
            continue
        try:
            given = _items(value) if name in _LISTS and source == _ENVIRONMENT else value
            checked[name] = msgspec.convert(given, types[name], strict=source != _ENVIRONMENT)
        except msgspec.ValidationError as error:
            place, fault = (
                _entry(name, value, types[name]) if isinstance(value, dict) else (_named(name, source), str(error))
            )
            raise SettingsError(f"{place} in {source}: {fault}") from None
    return checked


def _unknown(name: str, source: str) -> str:
    known = tuple(_named(each, source) for each in Settings.__struct_fields__)
    named = _named(name, source)
    return f"unknown setting {named} in {source}{hint(named, known)}"


def _named(name: str, source: str) -> str:
    """A setting as its source spells it."""
    return PREFIX + name.upper() if source == _ENVIRONMENT else name


def _items(text: str) -> list[str]:
    """The items of a list as the environment has them: `1,5,15`."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _entry(name: str, table: Mapping[str, Any], kind: Any) -> tuple[str, str]:
    """The place of the first wrong entry of a table, and what is wrong; msgspec says `[...]` for any key."""
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, kind)
        except msgspec.ValidationError as error:
            wrong = misfit(error)
            fault = wrong.fault
            if wrong.unknown:
                fault = f"unknown setting {wrong.unknown}{hint(wrong.unknown, TopicSettings.__struct_fields__)}"
            elif "matching regex" in fault:  # topic names are the only text in these tables
                fault = f"the name of a topic must be {fields.NAME}"
            return f"{name}.{key}{wrong.path.removeprefix('[...]')}", fault
    return name, "must be a table"
