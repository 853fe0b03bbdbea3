"""The settings of the dialects, a table `[protocols.<name>]` each. Without its table a dialect is off and costs
nothing. docs/protocols/ says what each setting means to its clients."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from jobqueue.schema import fields

_Text = Annotated[str, Meta(max_length=255)]
_Prefix = Annotated[str, Meta(pattern=rf"^(?:{fields.NAME_PATTERN})?\Z")]
_Path = Annotated[str, Meta(pattern=r"^(?:|/|(?:/[A-Za-z0-9._-]+)+)\Z")]
_Port = Annotated[int, Meta(ge=0, le=65535)]
_Tries = Annotated[int, Meta(ge=0, le=65535)]
_Level = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class DialectSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all of them have."""

    port: _Port = 0
    """Of its own, on `host`; 0: none."""
    prefix: _Prefix = ""
    """Stands before the names of its topics."""
    allow: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """The networks that may connect."""
    token: _Text = ""
    """Asked of each client that can send one; empty: none."""


class HttpDialectSettings(DialectSettings, frozen=True, kw_only=True):
    """What those over HTTP have besides."""

    path: _Path = ""
    """Also on the service's own port, below this path; `/`: at its root; empty: not there."""


class Camellia(HttpDialectSettings, frozen=True, kw_only=True):
    """camellia's delay queue server."""

    ttl_s: fields.Ttl = 3600.0
    max_retry: Annotated[int, Meta(ge=0)] = 10
    ack_timeout_s: fields.Ttr = 30.0
    retention_s: fields.Retention = 300.0
    long_polling_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    namespaces: dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")], _Prefix] = {}
    """The prefix by the first segment of the path."""


class Mykit(HttpDialectSettings, frozen=True, kw_only=True):
    """mykit-delay."""

    clear_all: bool = False


class Lmstfy(HttpDialectSettings, frozen=True, kw_only=True):
    """lmstfy."""

    ttl_s: Annotated[float, Meta(ge=0, le=fields.TEN_YEARS_S)] = 86_400.0
    """0: none."""
    tries: Annotated[int, Meta(ge=1, le=65535)] = 1
    ttr_s: Annotated[float, Meta(ge=1, le=fields.DAY_S)] = 120.0


class QueueServer(DialectSettings, frozen=True, kw_only=True):
    """queue_server."""

    node_id: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1
    udp: bool = True
    advertise: _Text = ""
    """The host that clients are told to connect to; empty: the address that they reached."""


class Beanstalkd(DialectSettings, frozen=True, kw_only=True):
    """beanstalkd."""

    max_job_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] = 65_535
    levels: Annotated[tuple[_Level, ...], Meta(min_length=9, max_length=9)] = (
        *(0, 1, 9, 99, 1023, 65_535, 1_048_575, 2_147_483_647, 4_294_967_294),
    )
    """The upper ends of the priorities that become 9, 8, … 1; those above are 0."""


class Dialects(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tables `[protocols.<name>]`."""

    camellia: Camellia | None = None
    mykit: Mykit | None = None
    queue_server: QueueServer | None = None
    beanstalkd: Beanstalkd | None = None
    lmstfy: Lmstfy | None = None
