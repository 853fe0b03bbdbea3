"""The log of actions in Redis."""

from __future__ import annotations

from typing import Any

from buckets.access import OF, Actions
from buckets.pool.pool import Pool
from buckets.redis.client import Redis

_MANY = 11_000


async def test_about_the_last_ten_thousand_entries_are_kept(live_pool: Pool, redis: Redis) -> None:
    actions = Actions(live_pool)
    for first in range(0, _MANY, 500):
        await actions.note([{"action": "run", "id": number} for number in range(first, first + 500)])
    kept = await redis.read("XLEN", "{jq:0}:actions")
    assert 10_000 <= kept < 10_500
    found, more = await actions.page(None, 500)
    while more:
        page, more = await actions.page(more, 500)
        found += page
    assert [each.begun["id"] for each in found] == list(range(_MANY - 1, _MANY - 1 - kept, -1))


async def test_an_outcome_is_found_on_whatever_page_its_action_is(live_pool: Pool) -> None:
    actions = Actions(live_pool)
    names = await actions.note([{"action": "run", "id": number} for number in range(4)])
    await actions.note([{OF: name, "code": "OK"} for name in names[1:]])
    pages: list[Any] = []
    before = None
    while not pages or before:
        page, before = await actions.page(before, 1)
        pages.append([(each.begun["id"], each.outcome and each.outcome["code"]) for each in page])
    assert pages == [[(3, "OK")], [(2, "OK")], [(1, "OK")], [(0, None)]]


async def test_what_is_no_action_is_passed_over(live_pool: Pool, redis: Redis) -> None:
    actions = Actions(live_pool)
    await redis.read("SET", "{jq:0}:actions", "not a stream")
    await actions.note([{"action": "run"}])
    for fields in (("entry", "{"), ("entry", "[]"), ("other", "1"), ("entry", '{"of":[],"action":"x"}')):
        await redis.read("XADD", "{jq:0}:actions", "*", *fields)
    found, more = await actions.page(None, 10)
    assert ([each.begun for each in found], more) == ([{"action": "run"}], None)
