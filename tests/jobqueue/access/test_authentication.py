"""jobqueue.access.authentication: from what a request shows to what it may do, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from buckets import Members, Notifier, Popped, Waiting
from buckets.access import Entry, Tokens
from buckets.errors import Unavailable
from buckets.pool.pool import Pool
from jobqueue.access.authentication import Authentication, credential, digest_of
from jobqueue.access.grants import OPEN, Grant
from jobqueue.access.issuing import Issued, Issuing
from jobqueue.access.token_table import Table
from jobqueue.access.tokens import Token, as_json
from jobqueue.errors import Forbidden, Unauthorized
from jobqueue.schema import params
from tests.kit.waiting import until


class Door:
    """The authentication of a process, whose table is read when a test says so."""

    def __init__(self, pool: Pool, processes: int = 1) -> None:
        notifier = Notifier(pool)
        self.redis = pool.redis
        self.tokens = Tokens(pool)
        self.issuing = Issuing(self.tokens)
        self.waiting = Waiting(pool, notifier)
        self.table = Table(self.tokens, Members(pool, notifier), notifier)
        self.authentication = Authentication(self.table, self.waiting, processes=lambda: processes)
        self.table.on_change.append(self.authentication.renew)
        self.table.before_report.append(self.authentication.note_uses)
        self._changes = 0
        self._popping: list[asyncio.Task[Popped]] = []

    async def token(self, name: str, *rights: str, **fields: Any) -> Issued:
        """A new token, which the table has."""
        issued = await self.issuing.create({"name": name, "rights": [*rights], **fields}, "the test")
        await self.read()
        return issued

    async def read(self) -> None:
        """Read the table."""
        self.table.heard()
        await self.table.tick()

    async def change(self, issued: Issued, **fields: Any) -> None:
        """Change the record of a token."""
        self._changes += 1
        record = msgspec.structs.replace(issued.record, changed=issued.record.changed + self._changes, **fields)
        await self.tokens.write([Entry(record.id, record.changed, as_json(record))])
        await self.read()

    def enter(self, issued: Issued) -> Grant:
        """What a request may do that shows this token."""
        return self.authentication.grant(digest_of(issued.token.text))

    async def park(self, grant: Grant, *topics: str) -> asyncio.Task[Popped]:
        """A pop that waits."""
        parked = self.waiting.parked
        pop = asyncio.create_task(self.waiting.pop(topics, 1, 60.0, owner=grant.owner))
        self._popping.append(pop)
        await until(lambda: self.waiting.parked > parked)
        return pop

    async def close(self) -> None:
        """End the pops that still wait."""
        for pop in self._popping:
            pop.cancel()
        await asyncio.gather(*self._popping, return_exceptions=True)


@pytest.fixture
async def door(live_pool: Pool) -> AsyncIterator[Door]:
    opened = Door(live_pool)
    yield opened
    await opened.close()


async def used(door: Door) -> list[str]:
    """The tokens that were used since the last time this was asked."""
    await door.table._report()
    stored = await door.tokens.read()
    for token in stored.used:
        await door.redis.read("HDEL", "{jq:0}:tokens", f"used:{token}")
    return list(stored.used)


def test_a_service_without_tokens_lets_everybody_in() -> None:
    authentication = Authentication()
    assert authentication.is_open
    assert authentication.grant(b"") is authentication.grant(digest_of("x")) is authentication.named("a") is OPEN


def test_a_token_is_shown_as_a_bearer_and_what_is_shown_otherwise_is_nobodys() -> None:
    token = Token.make().text
    assert credential(f"Bearer {token}") == credential(f"bearer   {token}") == digest_of(token)
    assert credential("") == b""
    for header in (token, f"Basic {token}", f"Bearer {token} x", f"Bearer\t{token}", "Bearer", f"Bearer {token}\u00fc"):
        assert credential(header) not in (digest_of(token), b"")


async def test_a_token_lets_in_and_the_same_grant_serves_all_its_requests(door: Door) -> None:
    issued = await door.token("a", "produce")
    grant = door.enter(issued)
    assert (grant.name, grant.may("add"), grant.may("pop")) == ("a", True, False)
    assert door.enter(issued) is grant


async def test_an_unknown_token_is_refused_and_may_exist_while_the_table_is_out_of_date(door: Door) -> None:
    with pytest.raises(Unavailable):
        door.authentication.grant(digest_of("x"))
    with pytest.raises(Unavailable):
        door.authentication.named("x")
    with pytest.raises(Unavailable):
        door.authentication.grant(b"", ["x.test"])
    with pytest.raises(Unauthorized) as refused:
        door.authentication.grant(b"")
    assert refused.value.missing
    await door.read()
    for shown in (digest_of("x"), b""):
        with pytest.raises(Unauthorized) as refused:
            door.authentication.grant(shown, () if shown else ["x.test"])
        assert refused.value.missing == (not shown)
    with pytest.raises(Unauthorized):
        door.authentication.named("x")


async def test_a_certificate_stands_for_its_token_where_none_is_shown(door: Door) -> None:
    issued = await door.token("a", "look", certificate="orders.test")
    grant = door.authentication.grant(b"", ["other.test", "orders.test"])
    assert grant.token_id == issued.record.id
    with pytest.raises(Unauthorized):
        door.authentication.grant(digest_of("x"), ["orders.test"])
    await door.issuing.revoke(issued.record.id)
    await door.read()
    with pytest.raises(Unauthorized):
        door.authentication.grant(b"", ["orders.test"])


async def test_a_token_was_used_when_it_let_somebody_in_and_not_when_it_was_changed(door: Door) -> None:
    shown = await door.token("shown", "produce")
    own = await door.token("own", "produce", certificate="orders.test")
    named = await door.token("named", "produce")
    assert await used(door) == []
    for _ in range(2):
        for issued in (shown, own, named):
            if issued is shown:
                door.enter(issued)
            elif issued is own:
                door.authentication.grant(b"", ["orders.test"])
            else:
                door.authentication.named("named")
            assert await used(door) == [issued.record.id]
    await door.change(shown, rights=("look",))
    assert await used(door) == []


@pytest.mark.parametrize(
    ("shown", "wanted", "act_as", "name"),
    [
        (None, "", "clerk", "clerk"),
        ("secret", "secret", "clerk", "clerk"),
        (None, "secret", "clerk", None),
        ("other", "secret", "clerk", None),
        ("other", "", "clerk", None),
        (None, "", "", None),
        ("secret", "secret", "", None),
        ("of a token", "secret", "clerk", "own"),
        ("of a token", "", "", "own"),
    ],
)
async def test_a_dialect_acts_as_a_token_for_those_who_show_its_own_or_need_to_show_none(
    door: Door, shown: str | None, wanted: str, act_as: str, name: str | None
) -> None:
    await door.token("clerk", "produce")
    own = await door.token("own", "produce")
    given = own.token.text if shown == "of a token" else shown
    if name:
        assert door.authentication.in_dialect(given, wanted, act_as).name == name
    else:
        with pytest.raises(Unauthorized):
            door.authentication.in_dialect(given, wanted, act_as)


async def test_the_waiting_pops_of_a_revoked_token_end_and_those_of_others_do_not(door: Door) -> None:
    ends, stays = await door.token("a", "consume"), await door.token("b", "consume")
    ending, staying = await door.park(door.enter(ends), "t"), await door.park(door.enter(stays), "t")
    await door.issuing.revoke(ends.record.id)
    await door.read()
    with pytest.raises(Unauthorized):
        await ending
    assert not staying.done()
    with pytest.raises(Unauthorized):
        door.enter(ends)


async def test_the_old_secret_of_a_rotation_ends_alone(door: Door) -> None:
    old = await door.token("a", "consume")
    ending = await door.park(door.enter(old), "t")
    new = await door.issuing.rotate(old.record.id)
    await door.read()
    staying = await door.park(door.enter(new), "t")
    with pytest.raises(Unauthorized):
        await ending
    await door.read()
    assert not staying.done()


async def test_rights_and_topics_that_are_taken_away_end_the_pops_that_need_them(door: Door) -> None:
    issued = await door.token("a", "consume")
    here, there = await door.park(door.enter(issued), "here"), await door.park(door.enter(issued), "here", "there")
    await door.change(issued, topics=("here",))
    with pytest.raises(Forbidden):
        await there
    assert not here.done() and not door.enter(issued).reaches("there")
    await door.change(issued, rights=("produce",))
    with pytest.raises(Forbidden) as ended:
        await here
    assert ended.value.right == "consume" and not door.enter(issued).may("pop")


async def test_what_was_done_with_a_token_before_it_was_changed_is_told_once(door: Door) -> None:
    issued = await door.token("a", "produce")
    await door.enter(issued).checked([params.Stats(), params.Whoami()])
    before = door.enter(issued)
    await door.change(issued, rights=("look",))
    assert door.enter(issued) is not before
    assert door.enter(issued).counts == {"ok": 0, "forbidden": 0, "too_fast": 0}
    told = door.authentication.take_grants()
    assert [(grant.name, grant.requests, grant.counts["forbidden"]) for grant in told] == [("a", 2, 0), ("a", 2, 1)]
    assert len(door.authentication.take_grants()) == 1


@pytest.mark.parametrize(("processes", "share"), [(1, 3), (2, 2), (3, 1), (9, 1)])
async def test_each_process_lets_its_share_of_a_tokens_pops_wait_rounded_up(
    live_pool: Pool, processes: int, share: int
) -> None:
    door = Door(live_pool, processes)
    try:
        grant = door.enter(await door.token("a", "consume", waits=3))
        pop = params.Pop(topic="t", wait=5)
        for _ in range(share):
            assert grant.admits([pop])
            await door.park(grant, "t")
        assert not grant.admits([pop])
        assert grant.admits([params.Pop(topic="t")])
    finally:
        await door.close()
