"""Pops that wait for jobs: entries in a table here, without a task or a Redis connection of their own, until the
notifier rings for them.

A ring wakes as many pops as there are jobs, first come, first served; a pop that leaves more jobs behind wakes the next
one. Since pub/sub may lose messages, a pop looks once more after it is parked and once at the end of its wait, and
after a reconnect one pop of each topic looks again. A pop that waits for long also looks once a minute.

The timers of this process hand jobs that fall due to sleeping pops (`sleepers`), without a ring and a look.

One timer of the event loop (`LookTimes`) serves all pops that look without a ring: a timer for each would take more
memory than the pop itself.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from buckets.errors import JobQueueError, Unavailable
from buckets.job import Job
from buckets.pool.limits import Closed
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Ask, Popped, ask_for
from buckets.pool.sleepers import LOOKING, OFFERED, OVER, SLEEPING, Done, Offered, Sleepers, Waiter
from buckets.waiting.notifier import Listener, Notifier

_FEW = 100  # ended pops that may stay in the heap


class LookTimes:
    """The waiting pops, in the order of their next looks."""

    def __init__(self, look: Callable[[Waiter], None]) -> None:
        self._look = look
        self._waiters: list[Waiter] = []  # a heap, which may include ended pops
        self._over = 0  # how many of them are ended
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiter: Waiter, time: float) -> None:
        """Make a pop look at this time of the loop. It must not have a time already."""
        waiter.look_at = time
        heapq.heappush(self._waiters, waiter)
        if self._waiters[0] is waiter:
            self._set_timer()

    def discard(self, waiter: Waiter) -> None:
        """Note that a pop has ended."""
        if waiter.look_at < inf:
            self._over += 1
            if self._over > _FEW and 2 * self._over > len(self._waiters):
                self._waiters = [each for each in self._waiters if each.state != OVER]
                self._over = 0
                heapq.heapify(self._waiters)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._waiters[0].look_at, self._reach)

    def _reach(self) -> None:
        """Make the pops look whose time has come."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._waiters and self._waiters[0].look_at <= now:
                waiter = heapq.heappop(self._waiters)
                waiter.look_at = inf
                if waiter.state == OVER:
                    self._over -= 1
                else:
                    self._look(waiter)
        finally:
            if self._waiters:
                self._set_timer()


LOOK_S = 60.0  # after which a waiting pop looks again, in case a message was lost


class Waiting:
    """The waiting pops of this process."""

    def __init__(self, pool: Pool, notifier: Notifier) -> None:
        self._pool = pool
        self.notifier = notifier
        self._waiters: dict[str, dict[Waiter, None]] = {}  # by topic
        self._of_worker: dict[str, set[Waiter]] = {}
        self._of_owner: dict[str, set[Waiter]] = {}
        self._sleepers = Sleepers()
        self._look_times = LookTimes(self._look_unrung)
        self._woken: list[Waiter] = []  # these look on the next turn of the loop
        self._passed_on: dict[str, int] = {}  # by topic: how many other pops must look then
        self._is_waking = False  # whether `_look_all` is about to be called
        self._openings: dict[str, asyncio.TimerHandle] = {}  # by topic: when its pause ends, or a limit opens
        self._closed = False
        self.parked = 0
        """How many pops wait."""
        notifier.register(
            Listener(ready=self._hear_ready, leave=self._dismiss, subscribed=self._subscribed, lost=self._lose)
        )

    def begin(self, ask: Ask, count: int, wait_s: float, done: Done, owner: str = "") -> Waiter:
        """Begin a pop that waits up to `wait_s` seconds for a job: not at all (0), or without end (`math.inf`). `done`
        is called once, later, unless the pop is cancelled before: with the jobs, or with none at the end of the wait,
        when the worker leaves, or after `close`. `owner`: the owner of the pop, if any: see `end_owned`."""
        waiter = Waiter(ask, count, asyncio.get_running_loop().time() + wait_s, done)
        waiter.leaving = wait_s <= 0
        if owner:
            waiter.owner = owner
            self._of_owner.setdefault(owner, set()).add(waiter)
        if ask.worker and not waiter.leaving:  # from its first look on, as the worker may leave during it
            self._of_worker.setdefault(ask.worker, set()).add(waiter)
        self._look(waiter)
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Cancel a pop whose client is gone: nothing is reserved for it from now on, and a job on its way is returned.
        Does nothing for a pop that was answered."""
        if waiter.state == OVER:
            return
        was_called = waiter.is_parked and (waiter.rung or waiter.state == LOOKING)
        self._remove(waiter)
        if was_called:
            self._pass_on(Popped(), waiter.ask.topics)

    def waits_of(self, owner: str) -> int:
        """How many pops of an owner wait here."""
        return len(self._of_owner.get(owner, ()))

    def end_owned(self, owner: str, error: JobQueueError, reaches: Callable[[str], bool] | None = None) -> None:
        """End the waiting pops of an owner with an error, now. Nothing is reserved for them from now on, and a job on
        its way is returned. With `reaches`, only the pops that ask for a topic for which `reaches` returns False are
        ended."""
        for waiter in list(self._of_owner.get(owner, ())):
            if reaches is None or not all(map(reaches, waiter.ask.topics)):
                self.cancel(waiter)
                self._tell(waiter, error)

    async def pop(
        self, topics: Sequence[str], count: int, wait_s: float, *, worker: str = "", owner: str = "", **options: Any
    ) -> Popped:
        """As `Pool.pop`, waiting as `begin` does."""
        if wait_s <= 0:
            return await self._pool.pop(topics, count, worker=worker, **options)
        ask = ask_for(topics, worker=worker, **options)
        answer: asyncio.Future[Popped | JobQueueError] = asyncio.get_running_loop().create_future()
        waiter = self.begin(ask, count, wait_s, partial(self._resolve, answer, ask), owner)
        try:
            outcome = await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self.cancel(waiter)
            else:
                self._give_back(answer.result(), ask)  # the result arrived on the turn of the cancellation
            raise
        if isinstance(outcome, JobQueueError):
            raise outcome
        return outcome

    def _resolve(
        self, answer: asyncio.Future[Popped | JobQueueError], ask: Ask, outcome: Popped | JobQueueError
    ) -> None:
        if answer.cancelled():
            self._give_back(outcome, ask)
        else:
            answer.set_result(outcome)

    def _look(self, waiter: Waiter) -> None:
        waiter.state = LOOKING
        waiter.rung = False
        waiter.last = waiter.leaving
        waiter.forgives, waiter.early = waiter.early and not waiter.last, False
        self._pool.look(waiter.ask, waiter.count, partial(self._looked, waiter))

    def _looked(self, waiter: Waiter, outcome: Popped | JobQueueError) -> None:
        if waiter.state == OVER:
            self._give_back(outcome, waiter.ask)
            return
        if waiter.forgives and isinstance(outcome, Unavailable):
            outcome = Popped()
        if isinstance(outcome, Popped) and outcome.limited:
            self._ring_when_open(outcome.limited)
        if isinstance(outcome, JobQueueError):
            self._answer(waiter, outcome, pass_on=waiter.is_parked)
        elif outcome.jobs or waiter.last or self._closed:
            self._answer(waiter, outcome, pass_on=waiter.is_parked and self._leaves_more(waiter, outcome))
        elif waiter.is_parked:
            self._fall_asleep(waiter, outcome.opens_us)
        else:
            self._park(waiter)
            self._look(waiter)

    def _leaves_more(self, waiter: Waiter, popped: Popped) -> bool:
        """Whether other pops may have to look for jobs for which this one was woken, or which it left."""
        if waiter.rung or popped.left:
            return True
        return bool(popped.jobs) and self._may_be_more(waiter.ask.topics)

    def _may_be_more(self, topics: Sequence[str]) -> bool:
        """Whether a pop that found jobs may also have been woken for other jobs that it did not see, in another topic
        or shard."""
        if len(self._pool.keys) == 1:
            return len(topics) > 1
        return any(map(self._pool.ready_shards.expected, topics))

    def _answer(self, waiter: Waiter, outcome: Popped | JobQueueError, *, pass_on: bool) -> None:
        self._remove(waiter)
        if pass_on:
            self._pass_on(outcome if isinstance(outcome, Popped) else Popped(), waiter.ask.topics)
        if isinstance(outcome, Popped):
            self._pool.report_delivered(outcome.jobs)
        self._tell(waiter, outcome)

    def _tell(self, waiter: Waiter, outcome: Popped | JobQueueError) -> None:
        try:
            waiter.done(outcome)
        except Exception as error:  # the others must still be answered
            asyncio.get_running_loop().call_exception_handler({"message": "a pop's answer", "exception": error})

    def _give_back(self, outcome: Popped | JobQueueError, ask: Ask) -> None:
        """Return jobs whose pop was cancelled, and then make other pops look for them."""
        if isinstance(outcome, Popped) and outcome.jobs:
            self._pool.unpop_later(outcome.jobs, partial(self._pass_on, Popped(), ask.topics))

    def _pass_on(self, popped: Popped, topics: Sequence[str]) -> None:
        """Make other waiters look for jobs for which this pop was woken, or which it left. Pops that were answered
        together left the same jobs."""
        last = popped.jobs[-1].topic if popped.jobs else None
        closed = {each.topic for each in popped.limited}  # others are rung when these topics open
        for topic in [topic for topic in topics if topic not in closed]:
            number = max(popped.left, 1) if topic == last else 1
            self._passed_on[topic] = max(number, self._passed_on.get(topic, 0))
        self._look_soon()

    def _call_others(self) -> None:
        """Wake the waiters that `_pass_on` asked for. Waiters that are already awake count: otherwise a thousand jobs
        would wake many thousand waiters."""
        passed_on, self._passed_on = self._passed_on, {}
        for topic, number in passed_on.items():
            for waiter in itertools.islice(self._waiters.get(topic, ()), number):
                self._call(waiter)

    def _park(self, waiter: Waiter) -> None:
        for topic in waiter.ask.topics:
            self._waiters.setdefault(topic, {})[waiter] = None
        waiter.is_parked = True
        self.parked += 1
        self._plan_look(waiter)

    def _remove(self, waiter: Waiter) -> None:
        """Forget a pop that is answered or cancelled."""
        waiter.state = OVER
        if waiter.ask.worker:
            _discard(self._of_worker, waiter.ask.worker, waiter)
        if waiter.owner:
            _discard(self._of_owner, waiter.owner, waiter)
        if waiter.is_parked:
            self._unpark(waiter)

    def _unpark(self, waiter: Waiter) -> None:
        waiter.is_parked = False
        self.parked -= 1
        self._sleepers.discard(waiter)
        self._look_times.discard(waiter)
        for topic in waiter.ask.topics:
            waiters = self._waiters.get(topic)
            if waiters is not None:  # a topic may be named twice
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[topic]
                    if topic in self._openings:
                        self._openings.pop(topic).cancel()

    def _fall_asleep(self, waiter: Waiter, opens_us: int | None) -> None:
        if opens_us is not None:
            self._ring_at(asyncio.get_running_loop().time() + opens_us / 1e6, waiter.ask.topics)
        self._sleepers.add(waiter)
        self._sleep(waiter)

    def _sleep(self, waiter: Waiter) -> None:
        """Let a pop sleep, unless it was rung meanwhile."""
        waiter.state = SLEEPING
        if waiter.rung:
            self._wake(waiter)

    def _call(self, waiter: Waiter) -> None:
        """Make a pop look, or look again after the current look or offer."""
        if not waiter.rung:
            waiter.rung = True
            if waiter.state == SLEEPING:
                self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        """Make a pop look on the next turn of the loop; a ring before then is for another pop."""
        self._sleepers.discard(waiter)
        self._woken.append(waiter)
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._look_all)

    def _look_all(self) -> None:
        self._call_others()
        self._is_waking = False
        woken, self._woken = self._woken, []
        for waiter in woken:
            if waiter.state == SLEEPING:
                if self._closed:
                    self._answer(waiter, Popped(), pass_on=False)
                else:
                    self._look(waiter)

    def _hear_ready(self, shard: int, topic: str, jobs: int) -> None:
        self._pool.ready_shards.heard(shard, topic)
        self.ring(topic, jobs)

    def ring(self, topic: str, jobs: int) -> None:
        """Wake as many of the topic's waiters as there are jobs, first come, first served."""
        for waiter in self._waiters.get(topic, ()):
            if jobs <= 0:
                return
            if not waiter.rung:
                self._call(waiter)
                jobs -= 1

    def _subscribed(self, shard: int) -> None:
        """Note that the shard's subscription has begun; its earlier messages are unknown."""
        self._pool.ready_shards.stands(shard)
        self.look_again()

    def look_again(self) -> None:
        """Make one pop of each topic look, as if a ring had been missed; it wakes the next pop if it leaves jobs."""
        for topic in self._waiters:
            self.ring(topic, 1)

    def _lose(self, shard: int) -> None:
        self._pool.ready_shards.lost(shard)

    async def leave(self, worker: str, owner: str | None = None) -> None:
        """End the waiting pops of a worker now, in all processes, with the jobs of one last look, or none. With
        `owner`, only the pops of this owner. Raises Unavailable if the other processes may not have been notified; the
        pops of this process end anyway."""
        await self.notifier.leave(worker, owner)

    def _dismiss(self, worker: str, owner: str | None) -> None:
        for waiter in self._of_worker.get(worker, ()):
            if owner is None or waiter.owner == owner:
                self._end(waiter)

    def _plan_look(self, waiter: Waiter) -> None:
        """Make the waiter look at the end of its wait, or earlier if that is far away."""
        self._look_times.add(waiter, min(waiter.end, asyncio.get_running_loop().time() + LOOK_S))

    def _look_unrung(self, waiter: Waiter) -> None:
        if waiter.end <= asyncio.get_running_loop().time():
            self._end(waiter)
        elif not waiter.leaving:
            waiter.early = True
            self._call(waiter)
            self._plan_look(waiter)

    def _end(self, waiter: Waiter) -> None:
        if not waiter.leaving:  # during its last look only a job may ring it, as the ring is passed on
            waiter.leaving = True
            self._call(waiter)

    def _ring_at(self, time: float, topics: Sequence[str]) -> None:
        """Ring when a pause ends or a limit opens, since no script does. There is one ring for all waiters: thousands
        of simultaneous pops would hold up everything else, and a woken pop wakes the next one."""
        for topic in topics:
            known = self._openings.get(topic)
            if known is None or time < known.when():
                if known:
                    known.cancel()
                self._openings[topic] = asyncio.get_running_loop().call_at(time, self._open, topic)

    def _ring_when_open(self, limited: Sequence[Closed]) -> None:
        """Ring for topics whose limits hold back jobs, when the limits open. If the clock is held, the code that
        advances it rings."""
        if not self._pool.clock.now():
            now = asyncio.get_running_loop().time()
            for topic, _, opens_us in limited:
                self._ring_at(now + opens_us / 1e6, [topic])

    def _open(self, topic: str) -> None:
        del self._openings[topic]
        self.ring(topic, 1)

    def sleepers(self, most: int) -> list[Offered]:
        """Offer up to `most` jobs to sleeping pops. These pops do not look until `settle`, which must follow."""
        return [] if self._closed else self._sleepers.offer(most, self._pool.limits)

    def settle(self, offers: Sequence[Offered], handed: Sequence[Sequence[Job]] | None) -> None:
        """Pass each group of pops the jobs that were handed to it, in order; the other pops continue to sleep.
        `handed`: None if the script failed or takes long; a second call may follow with jobs that it handed out after
        all."""
        for offer, jobs in zip(offers, handed or [()] * len(offers), strict=True):
            for waiter in offer.waiters[len(jobs) :]:
                if waiter.state == OFFERED:
                    self._sleep(waiter)
            for waiter, job in zip(offer.waiters, jobs, strict=False):
                self._hand(waiter, job)

    def _hand(self, waiter: Waiter, job: Job) -> None:
        """Answer a pop with a job that was reserved for it while it slept. If the pop is no longer offered, answer a
        similar one."""
        popped = Popped([job])
        taker = waiter if waiter.state == OFFERED else self._sleepers.alike(waiter)
        if taker:
            self._answer(taker, popped, pass_on=taker.rung)
        else:
            self._give_back(popped, waiter.ask)

    def close(self) -> None:
        """End the wait of all parked pops now."""
        self._closed = True
        for opening in self._openings.values():
            opening.cancel()
        for waiters in self._waiters.values():
            for waiter in waiters:
                self._call(waiter)


def _discard(index: dict[str, set[Waiter]], name: str, waiter: Waiter) -> None:
    """Remove a pop from the pops of a name."""
    waiters = index.get(name)
    if waiters is not None:
        waiters.discard(waiter)
        if not waiters:
            del index[name]
