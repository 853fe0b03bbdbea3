"""The URL of a Redis: its servers, and how connections to them are made.

    redis://, rediss:// (TLS), unix://            one server
    redis+sentinel://h1,h2:26379,h3/name          the master of this name, according to the Sentinels at h1, h2, h3
    redis+cluster://h1,h2:6379,h3                 a Cluster, found through some of its servers

`rediss+sentinel://` and `rediss+cluster://` are the same over TLS. User, password and parameters (`?ssl_ca_certs=…`)
are those of redis-py, which makes the connections; Sentinels have their own (`?sentinel_username=…`,
`?sentinel_password=…`).

With TLS, all connections of a URL share one context, which is created again when its files change. redis-py would
create one for each connection, which holds up the event loop for some 50 ms, and would trust the system's authorities
in addition to those that the URL names.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

_Stamps = tuple[object, ...]


class Contexts:
    """The TLS context of a URL's connections, made from the parameters that redis-py read (`ssl_ca_certs` and
    others)."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._stamps: _Stamps = ()

    def give(self, connection: Any) -> None:
        """Make a redis-py connection, not open yet, use the context. If the files do not load, the previous context
        stays in use; if there is none, raises OSError."""
        options = getattr(connection, "ssl_context", None)
        if options is None:  # no TLS
            return
        stamps = tuple(map(_stamp, (options.ca_certs, options.certfile, options.keyfile)))
        if self._context is None or stamps != self._stamps:
            self._renew(options, stamps)
        options.context = self._context

    def _renew(self, options: Any, stamps: _Stamps) -> None:
        try:
            self._context = _made(options)
            self._stamps = stamps
        except OSError as error:  # includes ssl's errors
            if self._context is None:
                files = ", ".join(filter(None, (options.ca_certs, options.certfile, options.keyfile)))
                why = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else error
                raise OSError(f"the TLS files do not load ({files}): {why}") from None


def _stamp(path: str | None) -> object:
    """A value that changes when a file changes."""
    try:
        found = Path(path).stat() if path else None
    except OSError:
        return None
    return found and (found.st_mtime_ns, found.st_ino, found.st_size)


def _made(options: Any) -> ssl.SSLContext:
    """A context according to the parameters. The system's authorities count only if the URL names none."""
    folder = getattr(options, "ca_path", None)  # older versions of redis-py lack this option and the password
    context = ssl.create_default_context(cafile=options.ca_certs, capath=folder, cadata=options.ca_data)
    context.check_hostname = options.check_hostname
    context.verify_mode = options.cert_reqs
    for flag in options.include_verify_flags or ():
        context.verify_flags |= flag
    for flag in options.exclude_verify_flags or ():
        context.verify_flags &= ~flag
    if options.certfile or options.keyfile:
        # Without this, OpenSSL would ask on the terminal for the password of an encrypted key.
        password = getattr(options, "password", None) or ""
        context.load_cert_chain(options.certfile or options.keyfile, options.keyfile, password)
    if options.min_version is not None:
        context.minimum_version = options.min_version
    if options.ciphers is not None:
        context.set_ciphers(options.ciphers)
    return context


Kind = Literal["standalone", "sentinel", "cluster"]

_URL = re.compile(r"(rediss?)\+(sentinel|cluster)://(?:([^/?#]*)@)?([^/?#@]*)(?:/([^?#]*))?(\?[^#]*)?")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_PORTS = {"sentinel": 26379, "cluster": 6379}
_FORMS = "it must begin with redis://, rediss:// or unix://, or be redis+sentinel://host,host/name or redis+cluster://host,host"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Url:
    """A parsed URL. `addresses`: the addresses of the Sentinels, or of some servers of the Cluster."""

    kind: Kind
    addresses: tuple[Address, ...]
    master: str
    """The name of the master, with Sentinels."""
    _maker: Any = field(repr=False)  # redis-py's, untyped; this field and the next contain passwords
    _for_sentinels: dict[str, Any] = field(repr=False)
    _contexts: Contexts = field(default_factory=Contexts, repr=False, compare=False)

    def connection(self, address: Address | None = None) -> Any:
        """A redis-py connection, not yet open, to an address, or to the only server. Raises OSError if the TLS files do
        not load."""
        return self._made({} if address is None else address._asdict())

    def sentinel_connection(self, address: Address) -> Any:
        """As `connection`, but to a Sentinel."""
        return self._made({"username": None, "password": None, "db": 0, **self._for_sentinels, **address._asdict()})

    def _made(self, other: dict[str, Any]) -> Any:
        connection = self._maker.connection_class(**self._maker.connection_kwargs | other)
        self._contexts.give(connection)
        # Redis 7.0 does not know CLIENT SETINFO, or an ACL that allows it.
        if not _NO_DRIVER:
            connection.lib_name = connection.lib_version = None
        return connection


def read_url(url: str, timeout_s: float) -> Url:
    """Parse a URL. An invalid URL raises ValueError or TypeError, whose message may contain its password."""
    if "+" not in url.partition("://")[0]:
        return _checked(Url("standalone", (), "", _maker(url, timeout_s), {}))
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError(_FORMS)
    tls, kind, user, hosts, path, parameters = found.groups(default="")
    name = unquote(path.strip("/"))
    if bool(name) != (kind == "sentinel"):
        wanted = "the name of its master: redis+sentinel://host,host/name" if kind == "sentinel" else "its last host"
        raise ValueError(f"a URL of this kind ends with {wanted}")
    addresses = tuple(_address(host, _PORTS[kind]) for host in hosts.split(","))
    maker = _maker(f"{tls}://{f'{user}@' if user else ''}{addresses[0]}{parameters}", timeout_s)
    own = {
        name: maker.connection_kwargs.pop(f"sentinel_{name}", None) for name in ("username", "password")
    }  # also for a Cluster, which has no Sentinels: redis-py does not know these parameters
    if kind == "cluster" and maker.connection_kwargs.get("db"):
        raise ValueError("a Cluster has only database 0")
    return _checked(Url("sentinel" if kind == "sentinel" else "cluster", addresses, name, maker, own))


def _address(text: str, port: int) -> Address:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < int(found[2] or port) < 65536:
        raise ValueError(
            "each of its hosts must be a name or an address, with or without a port: host:6379, [::1]:6379"
        )
    return Address(found[1].strip("[]"), int(found[2] or port))


# Without this option, each connection reads the metadata of redis-py's package, which takes longer than connecting.
# Older releases of redis-py do not have the option.
_NO_DRIVER = {"driver_info": None} if "driver_info" in signature(AbstractConnection.__init__).parameters else {}


def _maker(url: str, timeout_s: float) -> Any:
    pool: Any = ConnectionPool.from_url(
        url,
        protocol=2,
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        client_name="jobqueue",
    )
    # A URL may set these options, but we depend on our values.
    pool.connection_kwargs.update(decode_responses=False, protocol=2, socket_timeout=None, **_NO_DRIVER)
    return pool


def _checked(url: Url) -> Url:
    """Raise the error for an unknown or wrong parameter now, not at the first connection."""
    try:
        url.connection(url.addresses[0] if url.addresses else None)
    except OSError:
        pass  # TLS files that do not load yet
    except RedisError as error:
        raise ValueError(str(error)) from None
    return url
