"""A Redis watched by Sentinels: they name the master, which changes in a failover.

The Sentinels are asked for the master twice a second, and the answer with the highest epoch counts: a Sentinel that was
cut off from the others still names the old master. So a master that hangs, or was cut off, is abandoned even if its
connection is still open. If most Sentinels do not answer in time, and the others report a lower epoch, we keep our
master, and believe them only when it can no longer be reached.

Epoch and address come from two commands: during a failover the Sentinel in charge reports the new epoch with the old
address in SENTINEL MASTER, and the promoted replica in GET-MASTER-ADDR-BY-NAME.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import Any

from buckets.errors import Unavailable
from buckets.meter import Meter
from buckets.redis.link import ErrorReply
from buckets.redis.server import Server, Standalone, within
from buckets.redis.url import Address, Url

log = logging.getLogger(__name__)

_EVERY_S = 0.5
_ANSWER_S = 0.4  # time limit of an answer, as the Sentinel may hang


class Sentinels(Standalone):
    """The master with a name. Created in a running event loop."""

    def __init__(self, url: Url, timeout_s: float, meter: Meter) -> None:
        super().__init__(url, timeout_s, meter)
        self._sentinels = [
            Server(f"sentinel {each}", functools.partial(self._reach_sentinel, each), timeout_s, Meter(), loaded=False)
            for each in url.addresses
        ]
        self._master: Address | None = None
        self._epoch = 0
        self._doubted = False  # whether our master was tried once more although the Sentinels name another
        self._watching: asyncio.Task[None] | None = None

    async def _reach_sentinel(self, address: Address) -> Any:
        return self._url.sentinel_connection(address)

    async def _reach(self) -> Any:
        self._watching = self._watching or asyncio.create_task(self._watch())
        epoch, master, by_most = await self._named()
        if self._server.link and not self._server.link.lost:  # so this connection is for channels
            self._follow(epoch, master, by_most)
        elif by_most or epoch >= self._epoch or self._doubted:
            self._epoch, self._master, self._doubted = epoch, master, False
        else:
            self._doubted = True  # the Sentinels may have been cut off when the others chose our master: retry it once
        return self._url.connection(self._master)

    async def _named(self) -> tuple[int, Address, bool]:
        """The epoch, the master, and whether most Sentinels answered. Raises OSError if no Sentinel knows the
        master."""
        answers = await asyncio.gather(*map(self._ask, self._sentinels))
        known = [answer for answer in answers if answer]
        if not known:
            raise OSError(f"no Sentinel names the master {self._url.master}: {self._sentinel_trouble()}")
        epoch, master = max(known, key=lambda answer: answer[0])
        return epoch, master, 2 * len(known) > len(answers)

    def _sentinel_trouble(self) -> str:
        troubles = [f"{each.name}: {each.trouble}" for each in self._sentinels if each.trouble]
        return "; ".join(troubles) or "they answer, but do not know it"

    async def _ask(self, sentinel: Server) -> tuple[int, Address] | None:
        """The epoch and the master according to a Sentinel, or None if it does not answer or does not know."""
        with contextlib.suppress(Unavailable):
            deadline = asyncio.get_running_loop().time() + _ANSWER_S
            link = await sentinel.connected(deadline)
            name = self._url.master
            asked = link.ask(("SENTINEL", "MASTER", name)), link.ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name))
            master, address = [await within(deadline, each) for each in asked]
            if isinstance(master, ErrorReply) or not address:
                sentinel.trouble = str(master)
                return None
            fields = dict(zip(master[::2], master[1::2], strict=False))
            return int(fields[b"config-epoch"]), Address(address[0].decode(), int(address[1]))
        return None

    async def _watch(self) -> None:
        """Abandon a server that is no longer the master, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                self._follow(*await self._named())
            except OSError:
                pass  # no Sentinel answers: the last answers still hold
            except Exception:
                log.exception("sentinels.unreadable")

    def _follow(self, epoch: int, master: Address, by_most: bool) -> None:
        if epoch < self._epoch and not by_most:
            self._doubted = False
            return  # these Sentinels may have been cut off when the others chose our master
        self._epoch = epoch
        if self._master and master != self._master:
            log.warning("redis.moved", extra={"server": str(self._master), "now": str(master)})
            self._master = master  # logged once, even while it cannot be reached yet
            self._server.leave_behind()

    async def close(self) -> None:
        """Hang up."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await super().close()
        await asyncio.gather(*(each.close() for each in self._sentinels))
