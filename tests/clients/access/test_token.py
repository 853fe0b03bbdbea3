"""Where the Python client's token comes from, which form it has, and that nothing shows it."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient, Client, Unauthorized, Worker
from jobqueue_client.access.token import Token

from tests.clients.access.guarded import UNAUTHORIZED, Guarded
from tests.conformance.tokens import NEWER_TOKEN, TOKEN, WRONG_TOKEN

URL = "http://localhost:1"
TYPES = (Client, AsyncClient, Worker)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "token"
    written.write_text(f"{TOKEN}\n")
    return written


def test_the_token_is_the_option_or_what_the_file_holds_or_that_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Token().authorization is None
    monkeypatch.setenv("JOBQUEUE_TOKEN", NEWER_TOKEN)
    assert Token().authorization == f"Bearer {NEWER_TOKEN}"
    assert Token(TOKEN).authorization == Token(None, file).authorization == f"Bearer {TOKEN}"
    monkeypatch.setenv("JOBQUEUE_TOKEN", "")
    assert Token().authorization is None


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("wrong", [WRONG_TOKEN, TOKEN[:-1], f"{TOKEN}x", TOKEN.lower(), "jqt_", "a b", "ä", "", 7])
def test_a_token_that_cannot_be_valid_is_refused_before_anything_is_sent_and_is_not_shown(
    kind: type[Client], wrong: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"^token ") as raised:
        kind(URL, token=wrong)
    if wrong and wrong != 7:
        file.write_text(wrong)
        with pytest.raises(ValueError, match="token_file"):
            kind(URL, token_file=file)
        assert wrong not in str(raised.value).split()
        monkeypatch.setenv("JOBQUEUE_TOKEN", wrong)
        with pytest.raises(ValueError, match="JOBQUEUE_TOKEN"):
            kind(URL)


def test_a_checksum_may_begin_with_zeros() -> None:
    assert "0YwW25" in NEWER_TOKEN
    assert Token(NEWER_TOKEN).authorization


def test_there_is_one_place_for_credentials(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not both"):
        Client(URL, token=TOKEN, token_file=file)
    with pytest.raises(ValueError, match="not both"):
        Client(URL, token=TOKEN, headers={"authorization": "Basic x"})
    monkeypatch.setenv("JOBQUEUE_TOKEN", TOKEN)
    assert Token(is_taken=True).authorization is None


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("none", "binary", "."):
        with pytest.raises(ValueError, match=f"^token_file .*{tmp_path}"):
            Client(URL, token_file=tmp_path / name)


def test_the_file_is_read_again_only_for_the_token_that_it_had_and_a_broken_one_changes_nothing(file: Path) -> None:
    token = Token(None, file)
    first = token.authorization
    assert not token.is_replaced(first)
    for broken in ("", WRONG_TOKEN, TOKEN[:30]):
        file.write_text(broken)
        assert not token.is_replaced(first)
        assert token.authorization == first
    file.write_text(NEWER_TOKEN)
    assert token.is_replaced(first)
    file.unlink()
    assert token.is_replaced(first)  # another request has read it
    assert not token.is_replaced(token.authorization)
    assert not Token(TOKEN).is_replaced(first)


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
