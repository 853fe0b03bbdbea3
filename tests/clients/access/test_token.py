"""Nothing shows the token of a Python client."""

from __future__ import annotations

import logging
import traceback

import pytest
from jobqueue_client import AsyncClient, Client, Unauthorized

from tests.clients.access.guarded import UNAUTHORIZED, Guarded
from tests.conformance.tokens import TOKEN


async def test_nothing_that_a_program_may_log_shows_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    with Guarded(lambda authorization, asked: UNAUTHORIZED).serving() as server:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for options in ({"token": TOKEN}, {"headers": headers}):
            with Client(server.url, **options) as client, pytest.raises(Unauthorized) as sync:
                client.stats()
            async with AsyncClient(server.url, **options) as aclient:
                with pytest.raises(Unauthorized) as raised:
                    await aclient.stats()
            said += [repr(vars(one)) for one in (client, aclient, client._options.access)]
            said += [each for error in (sync.value, raised.value) for each in traceback.format_exception(error)]
        assert server.shown == [f"Bearer {TOKEN}"] * 4
    assert not any(TOKEN[12:40] in text for text in [*said, caplog.text])
