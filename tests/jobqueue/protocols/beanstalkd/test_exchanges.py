"""Exact exchanges, with our service and with a real beanstalkd."""

from __future__ import annotations

import pytest

from tests.jobqueue.protocols.beanstalkd.exchanges import OURS, SAME
from tests.jobqueue.protocols.beanstalkd.servers import BEANSTALKD, ours, play, theirs
from tests.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("redis")
"""Each begins with an empty Redis."""


@pytest.mark.parametrize("title", SAME | OURS)
async def test_our_service_answers(title: str, redis_server: RedisServer) -> None:
    async with ours(redis_server) as port:
        await play(port, (SAME | OURS)[title])


@pytest.mark.skipif(not BEANSTALKD, reason="needs beanstalkd")
@pytest.mark.parametrize("title", SAME)
async def test_beanstalkd_answers_the_same(title: str) -> None:
    async with theirs() as port:
        await play(port, SAME[title])
