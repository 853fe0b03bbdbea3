"""The service: everything is built here, started from top to bottom, and stopped in the reverse order."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buckets import (
    About,
    Awake,
    Candidates,
    Card,
    CarryingOut,
    Durable,
    Figures,
    Locks,
    Members,
    Notifier,
    Occurrences,
    Operations,
    Planner,
    Pollers,
    Pool,
    Redis,
    Runner,
    Schedules,
    Slicing,
    Sweep,
    Timer,
    Topics,
    Waiting,
    Walk,
)
from buckets.access import Actions, Tokens
from buckets.errors import Unfit
from jobqueue import __version__
from jobqueue.access.authentication import Authentication, Entry
from jobqueue.access.browsers import Browsers
from jobqueue.access.connections import ConnectionLimits, most_connections
from jobqueue.access.issuing import Issuing
from jobqueue.access.modes import warn_where_open
from jobqueue.access.rates import Quotas
from jobqueue.access.tls import Tls
from jobqueue.access.token_table import Table, TokensFile
from jobqueue.access.unix_socket import UnixSocket
from jobqueue.commands.actions import note_reload
from jobqueue.commands.carrying_out import Commands
from jobqueue.engine.engine import Engine
from jobqueue.engine.figures import Past
from jobqueue.engine.new_jobs import Policies
from jobqueue.engine.schedules.scheduling import Planning
from jobqueue.errors import SettingsError, missing_library
from jobqueue.health.service import Health
from jobqueue.health.start import check_may_start
from jobqueue.journal.explainer import Explainer
from jobqueue.journal.restorer import Restorer
from jobqueue.logs import Sparing
from jobqueue.loops import Loop, checks, running
from jobqueue.metrics.history import History
from jobqueue.metrics.process import Metrics, Punctuality
from jobqueue.metrics.scrape import Scrape, Totals, leave
from jobqueue.process import Lifecycle
from jobqueue.protocols import Dialect, Tools, load_dialect
from jobqueue.protocols.command.protocol import CommandProtocol
from jobqueue.redis_server.opening import NO_SUBSCRIPTION, redis_at, service_redis
from jobqueue.settings import Loaded, Settings, shared_metrics_folder
from jobqueue.web.answering import Guard
from jobqueue.web.ports import Ports
from jobqueue.web.site import Web

if TYPE_CHECKING:
    from jobqueue.commands.spans import CommandSpans

_NEW_OBJECTS = 20_000  # before the cycle collector runs; some 5 MB
_REDIS_QUIET_S = 3.0  # without an answer for this long, Redis counts as gone
_FIRST = 1  # the number of the worker that does what must happen once per service


class Service(Lifecycle):
    """One running service.

    `worker`: the number of this process if several processes share a port, otherwise None. Their supervisor has then
    already started and checked the Redis whose URL is in the settings, and holds the port; `unix` is the supervisor's
    Unix socket.
    """

    protocol: type[CommandProtocol] = CommandProtocol
    holds_time = False
    """True if the clock stands still; figures then include everything counted so far."""

    def __init__(self, settings: Settings, worker: int | None = None, unix: socket.socket | None = None) -> None:
        super().__init__()
        self._unix = unix
        self._tls: Tls | None = None
        self._settings = settings
        self._worker = worker
        self._policies = Policies(settings)
        self._engine: Engine | None = None
        self._tokens: Table | None = None
        self._dialects: dict[str, Dialect[Any]] = {}
        self._refuses_jobs = False
        self._noting: set[asyncio.Task[None]] = set()

    def reload(self, later: Loaded) -> None:
        """Apply those of the `later` settings that SIGHUP reloads, from now on, and read certificates and tokens again.
        Raises SettingsError for settings that this service cannot use."""
        before, taken = self._settings, self._loaded().reloaded(later)
        policies = Policies(taken.settings)
        if self._engine and (fault := policies.fault(self._engine.shards)):
            raise SettingsError(fault)
        (self._settings, self.sources), self._policies = taken, policies
        if self._engine:
            self._engine.policies = self._policies
            if self._worker in (None, _FIRST):
                self._note_reload(self._engine.actions, self._settings.unlike(before))
        if self._tokens:
            self._tokens.reload_file()
        if self._tls:
            self._tls.reload()
        for name, options in self._settings.protocols.open():
            if name in self._dialects:
                self._dialects[name].options = options

    def _loaded(self) -> Loaded:
        """The settings in force, and where they came from."""
        return Loaded(self._settings, self.sources)

    def _note_reload(self, actions: Actions, changed: list[str]) -> None:
        noting = asyncio.create_task(note_reload(actions, changed), name="reload")
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)

    async def _noted(self) -> None:
        await asyncio.gather(*self._noting)

    def refuse_jobs(self) -> None:
        """Accept no more jobs over the protocols whose original servers have a drain mode."""
        self._refuses_jobs = True
        for dialect in self._dialects.values():
            dialect.refuses_jobs = True

    def kill(self) -> None:
        """Do nothing: all parts of a service end with its process, except its embedded Redis, which the next start
        takes over."""

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        if not self._worker:
            await check_may_start(settings)  # before a Redis is started
            await warn_where_open(settings)
        spans = self._spans()  # first, so that the last commands have theirs, and nothing at a stop waits for it
        folder = shared_metrics_folder()
        metrics = self._metrics(folder)
        tls = self._tls = Tls(settings, metrics) if settings.tls_cert else None
        url = settings.redis if self._worker else await stack.enter_async_context(self._redis())
        redis = redis_at(url, settings.redis_timeout_s, metrics)
        stack.push_async_callback(redis.close)
        pool = await self._pool(redis)
        stack.push_async_callback(pool.close)
        stack.push_async_callback(self._noted)
        notifier = Notifier(pool)
        waiting = Waiting(pool, notifier)
        topics = Topics(pool)
        durable = self._durable(redis_at(url, settings.redis_timeout_s, metrics), pool)
        members = Members(pool, notifier, settings.clock_limit_s)
        pollers = Pollers(pool, notifier, members.token)
        engine = self._engine = Engine(
            pool, topics, Walk(pool), waiting, pollers, self._policies, durable, self._settings.durability
        )
        self._read_journal(engine, pool, pollers)
        scrape = Scrape(metrics, topics, waiting, pollers, Totals(settings.namespace, folder), folder)
        limits = ConnectionLimits(settings.client_timeout_s, most_connections(settings.max_connections))
        locks = [Locks(pool, notifier, members, shard) for shard in range(len(pool.keys))]
        card = Card(pool, members, locks, About(socket.gethostname(), os.getpid(), self._worker, __version__))
        events_bytes = settings.events_max_mb << 20
        sweeps = [Sweep(topics, lock, engine.bounds, settings.idle_topic_s, events_bytes) for lock in locks]
        tokens = self._table_of_tokens(pool, members, notifier)
        authentication = self._authentication(tokens, pool, waiting, members, metrics)
        engine.issuing = Issuing(Tokens(pool), lambda: tokens.filed, self._acted_as) if tokens else None
        # Every loop of a service. Rows start from top to bottom and stop from bottom to top; the loops of one row start
        # and stop together.
        table = (
            self._history_loops(engine, pool, metrics, pollers),
            [Loop("metrics", scrape.run)] if folder else [],
            [Loop("connections", limits.run)],
            [Loop("tls", tls.run)] if tls else [],
            [Loop("notifier", notifier.run, "bell", works=lambda: notifier.hears)],
            [Loop("pollers", pollers.run)],
            [Loop("card", card.run)],
            [Loop("tokens", tokens.run, "tokens", works=lambda: tokens.was_read)] if tokens else [],
            [Loop("operations", _runner(pool, notifier, locks[0], metrics).run)],
            *self._timer_loops(pool, waiting, members, locks, sweeps, Planning(lambda: engine.policies).plan),
        )
        for row in table:
            await stack.enter_async_context(running(*row))
        await self._subscribed(notifier)
        loops = [loop for row in table for loop in row]
        readiness = partial(_readiness, members, locks, loops)
        self._show_itself(engine, pool, readiness)
        refusals = Sparing("access.refused")
        entry = Entry(authentication, metrics, refusals)
        site_web = Web(engine, settings, readiness, metrics, scrape, entry, self.protocol, spans)
        _spare_collections()
        dialects = self._dialects = self._made_dialects(
            engine, metrics, limits, entry, lambda: all(readiness().values()), members.redis_s, spans
        )
        guard = Guard(Browsers(settings.allowed_origins, settings.allowed_hosts), metrics, refusals)
        ports = Ports(settings, limits, guard, tls, shared=self._worker is not None)
        self._open_unix_socket()
        stack.push_async_callback(ports.close, site_web, dialects.values(), waiting)
        self.url = await ports.open(site_web, dialects, self._unix)
        pollers.instance = _instance(self.url, self._worker)
        card.rename(pollers.instance)

    def _acted_as(self) -> set[str]:
        """The names of the tokens that the dialects currently act as."""
        return {dialect.options.act_as for dialect in self._dialects.values()}

    def _open_unix_socket(self) -> None:
        """Open the Unix socket of a service without a supervisor; a supervisor would share its own."""
        if self._settings.socket and not self._worker:
            unix = UnixSocket(self._settings.socket)
            self._stack.callback(unix.close)
            self._unix = unix.socket

    def _show_itself(self, engine: Engine, pool: Pool, readiness: Callable[[], dict[str, bool]]) -> None:
        """Let the engine report the health and the settings of the whole service."""
        engine.examines = Health(engine, pool, self._loaded, readiness)
        engine.settings = self._loaded

    def _read_journal(self, engine: Engine, pool: Pool, pollers: Pollers) -> None:
        """Let the engine explain jobs, with the journal if there is one, and restore jobs if there is a journal."""
        url, source = self._settings.journal, self._settings.namespace
        explainer = Explainer(pool, pollers, engine.bounds, url, source)
        self._stack.push_async_callback(explainer.close)
        engine.explains = explainer
        engine.restores = Restorer(pool, url, source) if url else None

    def _redis(self) -> AbstractAsyncContextManager[str]:
        """Yields the URL of the service's Redis, which is usable until the context is left."""
        return service_redis(self._settings)

    async def _pool(self, redis: Redis) -> Pool:
        shards, buckets = self._settings.numbers(redis.is_cluster)
        pool = await Pool.open(redis, self._settings.namespace, shards=shards, buckets=buckets)
        pool.instance = f"{pool.instance}:{self._worker or 0}"
        if fault := self._policies.fault(len(pool.keys)):
            raise Unfit(fault)
        return pool

    def _timer_loops(
        self,
        pool: Pool,
        waiting: Waiting,
        members: Members,
        locks: list[Locks],
        sweeps: list[Sweep],
        plan: Planner,
    ) -> list[list[Loop]]:
        """The rows of the timers and sweeps, and of the locks and members, which decide where they run."""
        awake = Awake(self._settings.timer_awake_share)
        occurrences = Occurrences(Schedules(pool), plan)
        self._stack.push_async_callback(occurrences.close)
        timers = [
            Loop(f"timer {lock.shard}/{bucket}", Timer(pool, waiting, lock, bucket, awake, occurrences).run, "timers")
            for lock in locks
            for bucket in range(pool.buckets)
        ]
        return [
            [Loop(f"locks {lock.shard}", lock.run, "timers") for lock in locks],
            timers,
            [Loop(f"sweep {shard}", sweep.run, "timers") for shard, sweep in enumerate(sweeps)],
            [Loop("slicing", partial(Slicing(pool).run, [lock.held[0] for lock in locks]), "timers")],
            [Loop("members", members.run, "timers")],  # stops first, so that others take the released locks
        ]

    def _history_loops(self, engine: Engine, pool: Pool, metrics: Metrics, pollers: Pollers) -> list[Loop]:
        """The row of the history, or an empty row if none is kept. It stops last, so that the history includes
        everything that was counted until the end."""
        hours = self._settings.history_hours
        if not hours:
            return []
        figures = Figures(pool, hours, self._settings.metrics_topics)
        history = History(metrics, figures)
        engine.past = Past(figures, pollers, metrics.has_own, history.tick if self.holds_time else None)
        return [Loop("history", history.run)]

    def _metrics(self, folder: Path | None) -> Metrics:
        """The metrics of this process. Raises Unfit if the shared folder for metrics cannot be created."""
        if folder is None:
            return Metrics(self._settings.metrics_topics)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unfit(f"PROMETHEUS_MULTIPROC_DIR cannot be used as the folder for metrics: {error}") from None
        metrics = Metrics(self._settings.metrics_topics, folder)
        self._stack.callback(leave, metrics, folder)
        return metrics

    def _authentication(
        self, tokens: Table | None, pool: Pool, waiting: Waiting, members: Members, metrics: Metrics
    ) -> Authentication:
        """Decides who has access: everybody, unless there are tokens."""
        if tokens is None:
            return Authentication()
        quotas = Quotas(pool, self._settings.max_body_bytes, metrics.tokens.leases.add)
        authentication = Authentication(tokens, waiting, quotas.of, lambda: len(members.living))
        tokens.on_change.append(authentication.renew)
        tokens.before_report.append(authentication.note_uses)
        metrics.tokens.used, metrics.tokens.live = authentication.take_grants, tokens.live
        return authentication

    def _table_of_tokens(self, pool: Pool, members: Members, notifier: Notifier) -> Table | None:
        """The table of tokens, or None if requests need no token."""
        if self._settings.access == "open":
            return None
        file = TokensFile(self._settings.tokens_file) if self._settings.tokens_file else None
        self._tokens = Table(Tokens(pool), members, notifier, file)
        return self._tokens

    def _durable(self, redis: Redis, pool: Pool) -> Durable:
        """Makes durable changes in the same shards, over a separate connection that opens at its first use."""
        own = type(pool)(redis, pool.namespace, len(pool.keys), pool.buckets, pool.clock)
        own.ready_shards = pool.ready_shards  # jobs added over `own` are ready in `pool`, too
        own.instance = pool.instance
        self._stack.push_async_callback(redis.close)
        self._stack.push_async_callback(own.close)
        return Durable(own, self._settings.replicas, self._settings.durability_timeout_s)

    def _spans(self) -> CommandSpans | None:
        """Makes the spans of commands, or None if the settings turn them off."""
        if self._settings.traces == "off":
            return None
        instance = f"{socket.gethostname()}:{os.getpid()}"
        try:
            made: CommandSpans = importlib.import_module("jobqueue.commands.spans").CommandSpans(instance)
        except ImportError:
            raise Unfit(missing_library('traces = "otlp"', "opentelemetry-sdk", "traces")) from None
        except ValueError as error:
            raise Unfit(f"the variables of OpenTelemetry, OTEL_…: {error}") from None
        self._stack.push_async_callback(made.close)
        return made

    async def _subscribed(self, notifier: Notifier) -> None:
        """Wait until all subscriptions are active. Raises Unfit if Redis does not allow them."""
        try:
            async with asyncio.timeout(self._settings.redis_timeout_s):
                await notifier.connected.wait()
        except TimeoutError:
            raise Unfit(NO_SUBSCRIPTION) from None

    def _made_dialects(
        self,
        engine: Engine,
        metrics: Metrics,
        limits: ConnectionLimits,
        entry: Entry,
        is_ready: Callable[[], bool],
        redis_s: Callable[[], float],
        spans: CommandSpans | None,
    ) -> dict[str, Dialect[Any]]:
        """The dialects that the settings open, by name."""
        settings = self._settings
        made = {}
        for name, options in settings.protocols.open():
            commands = Commands(engine, metrics, settings.redis_timeout_s, name, spans=spans)
            tools = Tools(commands, settings, limits, engine.give_back, entry, is_ready, redis_s)
            made[name] = load_dialect(name)(tools, options)
            made[name].refuses_jobs = self._refuses_jobs
        return made


def _runner(pool: Pool, notifier: Notifier, locks: Locks, metrics: Metrics) -> Runner:
    """The runner of operations; it works while this process holds the lock of the first timer."""
    punctuality = Punctuality()
    metrics.ears.append(punctuality)
    operations, candidates = Operations(pool), Candidates(Topics(pool), Walk(pool))
    carrying_out = CarryingOut(operations, candidates, punctuality.is_late)
    return Runner(operations, notifier, locks.held[0], carrying_out)


def _instance(url: str, worker: int | None) -> str:
    """The name of this instance for people: its host, its port and, if several processes share the port, its number."""
    name = f"{socket.gethostname()}:{url.rpartition(':')[2]}"
    return name if worker is None else f"{name}/{worker}"


def _spare_collections() -> None:
    """Exempt the objects that exist at the start from cycle collection, and collect the rest less often: requests leave
    hardly any cycles behind, and collection took a fifth of their time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def _readiness(members: Members, locks: list[Locks], loops: list[Loop]) -> dict[str, bool]:
    last_answer = max(members.last_answer, *(lock.last_answer for lock in locks))
    return {"redis": asyncio.get_running_loop().time() - last_answer < _REDIS_QUIET_S, **checks(loops)}
