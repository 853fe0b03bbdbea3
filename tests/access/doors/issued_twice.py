"""The same tokens in several namespaces of a Redis, so that what services say of them can be compared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from buckets.access import Entry, Tokens
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.access.issuing import new_record
from jobqueue.access.tokens import Token, as_json


class Twice:
    """Makes tokens in namespaces."""

    def __init__(self, redis: Redis, namespaces: Sequence[str]) -> None:
        self._redis = redis
        self._namespaces = namespaces

    async def make(self, name: str, *rights: str, revoked: bool = False, **fields: Any) -> str:
        """The text of a new token. With `revoked`, it has ended."""
        token, now_us = Token.make(), int(time.time() * 1e6)
        record = new_record({"name": name, "rights": [*rights], **fields}, token, "the test", now_us)
        if revoked:
            record = msgspec.structs.replace(record, revoked=now_us / 1e6)
        for namespace in self._namespaces:
            pool = await Pool.open(self._redis, namespace)
            await Tokens(pool).write([Entry(record.id, record.changed, as_json(record))])
            await pool.close()
        return token.text
