"""A client used in a process and in its fork: neither reads the other's answers."""

from __future__ import annotations

import asyncio
import os
import warnings
from pathlib import Path

from jobqueue_client import Client

from tests.kit.service import ServiceProcess


def ask_many(client: Client, topic: str) -> bool:
    """Whether each of 200 answers belongs to its request."""
    return all(client.add(topic, number, id=f"{topic}:{number}")["id"] == f"{topic}:{number}" for number in range(200))


def in_a_fork(client: Client) -> int:
    """The process id of a fork that uses the client, and exits with 0 if all answers were right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking a process with threads; the fork does not use them
        child = os.fork()
    if child == 0:
        right = False
        try:
            right = ask_many(client, "child")
        finally:
            os._exit(0 if right else 1)
    return child


async def test_a_fork_does_not_use_its_parents_connections(tmp_path: Path) -> None:
    async with ServiceProcess("--data", str(tmp_path / "data")) as service:
        with Client(service.url) as client:
            client.stats()  # so that there is a connection to inherit
            child = in_a_fork(client)
            assert ask_many(client, "parent")
            assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
