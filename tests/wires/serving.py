"""A service that speaks all protocols, each on a port of its own, and the drivers for it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tests.acceptance.test_fsck import fsck
from tests.kit.ports import free_ports
from tests.kit.service import ServiceProcess
from tests.wires.drivers import Driver
from tests.wires.drivers.beanstalkd import Beanstalkd
from tests.wires.drivers.camellia import Camellia
from tests.wires.drivers.lmstfy import Lmstfy
from tests.wires.drivers.mykit import Mykit
from tests.wires.drivers.native import Native
from tests.wires.drivers.queue_server import QueueServer, QueueServerDatagrams

DRIVERS: Sequence[type[Driver]] = (Native, Beanstalkd, Camellia, Lmstfy, Mykit, QueueServer, QueueServerDatagrams)
POPPERS = [each for each in DRIVERS if each.POPS]
_DIALECTS = ("beanstalkd", "camellia", "lmstfy", "mykit", "queue_server")
Kind = TypeVar("Kind", bound=Driver)
LEASE_S = 4.0
"""Of the jobs that come without one: mykit's. Far longer than a client needs to finish what it popped."""


class Wires:
    """A service with all dialects. `start` and `kill` it, or use `serving`. It keeps its ports."""

    def __init__(
        self,
        redis_flags: Sequence[str],
        folder: Path,
        *,
        workers: int = 1,
        more: str = "",
        prefixes: Mapping[str, str] | None = None,
    ) -> None:
        self._redis_flags = redis_flags
        native, *others = free_ports(1 + len(_DIALECTS))
        self._ports = dict(zip(_DIALECTS, others, strict=True)) | {"native": native}
        config = folder / "wires.toml"
        tables = "".join(f"[protocols.{name}]\nport = {self._ports[name]}\n" for name in _DIALECTS)
        for name, prefix in (prefixes or {}).items():
            tables = tables.replace(f"[protocols.{name}]\n", f'[protocols.{name}]\nprefix = "{prefix}"\n')
        config.write_text(f"default_ttr_s = {LEASE_S}\n{more}{tables}")
        self.log = folder / "service.log"
        flags = (*redis_flags, "--config", str(config))
        self.service = ServiceProcess(*flags, port=native, log=self.log, workers=workers)

    def port(self, name: str) -> int:
        return self._ports[name]

    def driver(self, kind: type[Kind], *, ttr_s: float = 60.0) -> Kind:
        """A client of that kind."""
        return kind(self.port(kind.NAME.partition(" ")[0]), ttr_s=ttr_s)

    def native(self, *, ttr_s: float = 60.0) -> Native:
        return Native(self.port("native"), ttr_s=ttr_s)

    def popper(self, kind: type[Driver], *, ttr_s: float = 60.0) -> Driver:
        """A client that pops what the other adds: of its kind, or a native one."""
        return self.driver(kind if kind.POPS else Native, ttr_s=ttr_s)

    async def check_books(self) -> None:
        """Fail unless fsck finds nothing wrong."""
        code, said, complaint = await fsck(*self._redis_flags)
        assert code == 0 and "all is well" in said, said + complaint

    def check_log(self) -> None:
        """Fail if the service reported a bug."""
        log = self.log.read_text()
        assert not any(word in log for word in ("Traceback", "command.failed", "request.failed", "task.ended")), log


@asynccontextmanager
async def serving(
    redis_url: str, *, workers: int = 1, more: str = "", prefixes: Mapping[str, str] | None = None
) -> AsyncIterator[Wires]:
    """Starts it on a Redis; at the end its log and the books are checked. `more`: further settings; `prefixes`: some
    dialects'."""
    with tempfile.TemporaryDirectory(prefix="jq-wires-") as folder:
        wires = Wires(("--redis", redis_url), Path(folder), workers=workers, more=more, prefixes=prefixes)
        async with wires.service:
            yield wires
            await wires.check_books()
        wires.check_log()
