"""Exact exchanges, with our service and with a real beanstalkd."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.jobqueue.protocols.beanstalkd.exchanges import OURS, SAME
from tests.kit.beanstalkd import BEANSTALKD, ours, play, theirs
from tests.kit.redis_server import RedisServer

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


def session() -> str:
    """The session of the page, as an exchange: answers are in capitals, or the data of a job behind one."""
    page = Path(__file__).parents[4] / "docs" / "protocols" / "beanstalkd.md"
    found = re.search(r"## A session\n\n```\n(.*?)```", page.read_text(), re.S)
    assert found
    lines, marked, before = found[1].splitlines(), "", ""
    for line in lines:
        is_answer = line[:1].isupper() or before.startswith("RESERVED")
        marked += f"{'<' if is_answer else '>'} {line}\n"
        before = line
    return marked + "end"


async def test_the_session_of_the_page_is_a_real_one(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port:
        await play(port, session())
