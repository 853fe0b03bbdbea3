"""Sessions and their ends; and how often an address may show a wrong token."""

from __future__ import annotations

from jobqueue_client.access import Access

from jobqueue.cli.client import Client
from jobqueue.console import sessions
from jobqueue.console.sessions import Attempts, Sessions


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Kept(Sessions):
    """Sessions on a clock of the test, and the keys that have ended."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.ended: list[str] = []
        super().__init__(self.ended.append, self.clock)

    async def signed_in(self, key: str = "k") -> str:
        client = await Client("http://127.0.0.1:1", Access()).__aenter__()
        return await self.begin(client, {"name": "a"}, key)

    async def holds(self, secret: str, *, is_use: bool = True) -> bool:
        return await self.find(secret, is_use=is_use) is not None


async def test_a_session_ends_half_an_hour_after_its_last_use() -> None:
    kept = Kept()
    secret = await kept.signed_in()
    for _ in range(3):
        kept.clock.now += sessions.IDLE_S - 1
        assert await kept.holds(secret)
    kept.clock.now += sessions.IDLE_S
    assert not await kept.holds(secret)
    await kept.close()


async def test_a_page_that_refreshes_itself_is_no_use() -> None:
    kept = Kept()
    secret = await kept.signed_in()
    for _ in range(30):
        kept.clock.now += 60
        await kept.holds(secret, is_use=False)
    assert not await kept.holds(secret)
    await kept.close()


async def test_a_session_ends_after_twelve_hours_whatever_its_use() -> None:
    kept = Kept()
    secret = await kept.signed_in()
    while kept.clock.now < 1000 + sessions.LONGEST_S - 600:
        kept.clock.now += 600
        assert await kept.holds(secret)
    kept.clock.now += 600
    assert not await kept.holds(secret)
    await kept.close()


async def test_what_was_signed_out_or_never_was_is_no_session() -> None:
    kept = Kept()
    secret = await kept.signed_in()
    await kept.end(secret)
    assert not await kept.holds(secret)
    assert await kept.find(None, is_use=True) is None
    assert not await kept.holds("\udcff")
    assert len(secret) == 43


async def test_the_secret_itself_is_not_kept() -> None:
    kept = Kept()
    secret = await kept.signed_in()
    assert secret not in repr(vars(kept))
    await kept.close()


async def test_answers_are_forgotten_when_nobody_shows_their_token_any_more() -> None:
    kept = Kept()
    one, other = await kept.signed_in("a"), await kept.signed_in("a")
    await kept.end(one)
    assert kept.ended == []
    await kept.end(other)
    assert kept.ended == ["a"]


async def test_of_too_many_sessions_the_one_unused_longest_ends(monkeypatch: object) -> None:
    kept = Kept()
    secrets = []
    for _ in range(sessions.MOST):
        secrets.append(await kept.signed_in())
        kept.clock.now += 0.1
    await kept.holds(secrets[0])
    secrets.append(await kept.signed_in())
    assert len(kept) == sessions.MOST
    assert await kept.holds(secrets[0])
    assert not await kept.holds(secrets[1])
    await kept.close()


def test_an_address_may_show_five_wrong_tokens_a_minute() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    assert [attempts.begin("a") for _ in range(6)] == [True] * 5 + [False]
    assert attempts.begin("b")
    clock.now += 60
    assert attempts.begin("a")


def test_a_right_token_takes_no_attempt_away() -> None:
    attempts = Attempts(Clock())
    for _ in range(20):
        assert attempts.begin("a")
        attempts.succeed("a")
