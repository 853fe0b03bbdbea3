"""Records whose length is close to the number of bytes that a move reads first."""

from __future__ import annotations

from buckets.job import NewJob, Tag
from buckets.pool.pool import Pool
from tests.buckets.books import check_books


async def test_a_record_that_ends_where_a_move_stops_reading_is_read_whole(pool: Pool) -> None:
    """A move reads 128 bytes first: optional fields of every length around that go through moves that rewrite them."""
    for size in range(40, 100):
        headers = b"h" * size
        await pool.add(
            [NewJob("a", "t", b"1", ttr_ms=60_000, retention_ms=5_000, headers=headers, if_exists="replace")]
        )
        popped = await pool.pop("t", ttr_ms=30_000)
        assert [job.id for job in popped.jobs] == ["a"], size
        await pool.touch("a", None, 20_000)
        await pool.release("a", delay_ms=0, note=b"n" * 9)
        await pool.take("a")
        await pool.bury("a", None, "why", note=b"")
        assert await pool.kick(["a"]) == ["ready"], size
        job = await pool.get("a")
        assert job and (job.optional[Tag.HEADERS], job.own_ttr, job.retention) == (headers, 60_000, 5_000), size
        assert Tag.NOTE not in job.optional
        await check_books(pool.redis, pool)


async def test_a_tombstone_keeps_a_body_wherever_that_begins(pool: Pool) -> None:
    for size in range(40, 100):
        headers = b"h" * size
        await pool.add([NewJob("a", "t", b"1", headers=headers, note=b"n", keeps_body=True, if_exists="replace")])
        assert await pool.delete(["a"]) == ["ready"]
        job = await pool.get("a")
        assert job and (job.body, job.optional[Tag.HEADERS], job.note) == (b"1", headers, b"n"), size
        await check_books(pool.redis, pool)
