"""buckets.keys: the names of keys, and the shard of an id; the public names of the engine, loaded when used."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib

import pytest

import buckets
from buckets import public
from buckets.keys import FAMILIES, NAMESPACE, Keys, lua_names, shard_of
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.jobs import add, pop

KEYS = Keys("shop", 3)


def test_the_keys_are_those_of_the_design() -> None:
    assert KEYS.meta == "{shop:3}:meta"
    assert KEYS.job("order:1") == "{shop:3}:j:order:1"
    assert KEYS.bucket(7) == "{shop:3}:b:7"
    assert KEYS.ready(9, "a:b") == "{shop:3}:r:9:a:b"
    assert KEYS.dead("a") == "{shop:3}:d:a"
    assert KEYS.counts("a") == "{shop:3}:c:a"
    assert KEYS.due("a") == "{shop:3}:h:a"
    assert KEYS.topics == "{shop:3}:t"
    assert KEYS.aside == "{shop:3}:x"
    assert KEYS.workers("aa") == "{shop:3}:w:aa"
    assert KEYS.alias(7) == "{shop:3}:alias:7"
    assert KEYS.lock(0) == "{shop:3}:lock:0"


def test_no_two_families_can_build_the_same_key() -> None:
    plain = [name for name in FAMILIES.values() if not name.endswith(":")]
    prefixes = [name for name in FAMILIES.values() if name.endswith(":")]
    assert len(set(FAMILIES.values())) == len(FAMILIES)
    for prefix in prefixes:
        assert not any(other != prefix and other.startswith(prefix) for other in plain + prefixes)


def test_a_namespace_cannot_break_the_hash_tag(subtests: pytest.Subtests) -> None:
    for bad in ("", "a b", "a{b", "a}b", "a:b", "x" * 33, "a\n"):
        with subtests.test(bad=bad):
            assert not NAMESPACE.fullmatch(bad)


def test_the_shard_of_an_id_is_the_crc_of_what_precedes_its_first_at_sign() -> None:
    assert shard_of("order:1", 16) == zlib.crc32(b"order:1") % 16
    assert shard_of("order:1@mail@x", 16) == shard_of("order:1@log", 16) == shard_of("order:1", 16)


def test_a_single_shard_needs_no_hash() -> None:
    assert shard_of("anything", 1) == 0


def test_ids_spread_over_all_shards() -> None:
    assert {shard_of(f"order:{n}", 8) for n in range(200)} == set(range(8))


def test_a_script_gets_the_prefixes_that_it_names_and_no_others() -> None:
    lines = lua_names({"redis", "JOB", "id", "DEADLINE"})
    assert re.search(r"local JOB = TAG \.\. 'j:'", lines)
    assert "DEAD" not in lines
    assert lua_names({"return"}) == ""


async def test_every_key_written_has_the_hash_tag_of_its_shard(redis: Redis) -> None:
    pool = await Pool.open(redis, "shop", shards=3)
    for n in range(20):
        await add(pool, f"order:{n}@x", delay_ms=n % 2 * 60_000)
    await pop(pool, count=5)
    tags = {keys.tag for keys in pool.keys}
    for name in await redis.read("KEYS", "*"):
        assert name.decode().partition("}:")[0] + "}:" in tags
    for n in range(20):
        keys = pool.keys[shard_of(f"order:{n}", 3)]
        assert await redis.read("EXISTS", keys.job(f"order:{n}@x")) == 1


def test_each_public_name_is_there() -> None:
    for name in public.__all__:
        assert getattr(buckets, name) is getattr(public, name)
    with pytest.raises(AttributeError, match="module 'buckets' has no attribute 'Pol'"):
        getattr(buckets, "Pol")  # noqa: B009 - mypy would find it


def test_the_command_line_does_not_load_what_only_the_service_needs() -> None:
    code = "import sys, jobqueue.cli.main; print({'redis', 'aiohttp', 'rich', 'structlog'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
