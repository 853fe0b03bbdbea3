"""jobqueue.access.token_table: tables of tokens, and what is wrong with them in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobqueue.access.issuing import new_record
from jobqueue.access.token_table import TokensFile, read
from jobqueue.access.tokens import Token, as_table
from jobqueue.errors import SettingsError

ONE = f"""
[[token]]
id = "aaaaaaaa"
name = "one"
digest = "{"0" * 64}"
rights = ["produce"]
expires = "never"
"""


def with_text(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    return str(path)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    now_us = int(time.time()) * 1_000_000
    fields = {
        **{"name": "orders", "rights": ["produce", "look"], "topics": ["order-*"], "rate": 500, "burst": 1000},
        **{"bytes": 10, "waits": 100, "own_ids": True, "certificate": "spiffe://shop/orders"},
    }
    for given in (fields, fields | {"expires": "never"}, {"name": "a", "rights": ["add"]}):
        record = new_record(given, Token.make(), 'o"p', now_us)
        (back,) = read(with_text(tmp_path, as_table(record)))
        assert as_table(back) == as_table(record)
        assert back.changed == 0
        assert (back.digest, back.rights, back.topics, back.expires) == (
            *(record.digest, record.rights, record.topics, record.expires),
        )


def test_a_file_may_be_empty_and_times_may_be_of_toml(tmp_path: Path) -> None:
    assert read(with_text(tmp_path, "# none yet\n")) == []
    (record,) = read(with_text(tmp_path, ONE.replace('"never"', "2020-01-01T01:00:00+01:00")))
    assert record.expires == 1_577_836_800  # that it has expired is no fault of the file


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[token", "is not TOML: at"),
        ("[token]\n", "nothing but tables [[token]]"),
        ("x = 1\n", "nothing but tables [[token]]"),
        ("token = [1]\n", "token 1: it is no table"),
        (ONE.replace('"never"', "2032-01-01"), "token 1: expires must be"),
        (ONE.replace('"never"', "2032-01-01T00:00:00"), "token 1: expires must be"),
        (ONE.replace('"never"', "inf"), "token 1: expires must be"),
        (ONE.replace('expires = "never"', ""), "token 1: expires is missing"),
        (ONE.replace("name", "nam"), "did you mean name"),
        (ONE.replace("000", "00x"), "token 1: digest must be a SHA-256"),
        (ONE + ONE.replace("produce", "fly").replace("aaaa", "bbbb"), "token 2: rights must be"),
        (ONE + ONE, "aaaaaaaa is there twice"),
        (ONE + ONE.replace("aaaa", "bbbb"), "aaaaaaaa is there twice"),
        ("\xff", "is not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError) as refused:
        read(str(path))
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_token_that_does_not_belong_there_is_not_told(tmp_path: Path) -> None:
    token = Token.make()
    for text in (f"{token.text}\n", ONE.replace("0" * 64, token.text), f'a = "{token.text}'):
        with pytest.raises(SettingsError) as refused:
            read(with_text(tmp_path, text))
        assert token.text not in str(refused.value)


@pytest.mark.parametrize("path", ["nowhere/tokens.toml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(SettingsError, match="tokens_file cannot be read"):
        read(path)


def test_each_change_of_a_file_is_noticed_once_when_it_has_been_the_same_for_a_second(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    file = TokensFile(str(path))
    assert not file.has_changed(0.0)
    for text in ("a", "bb", None):
        path.write_text(text) if text else path.unlink()
        assert not file.has_changed(10.0) and file.is_changing
        assert not file.has_changed(10.9)
        assert file.has_changed(11.0) and not file.is_changing
        assert not file.has_changed(20.0)


def test_a_file_that_is_written_piece_by_piece_is_noticed_after_the_last_piece(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("before")
    file = TokensFile(str(path))
    with path.open("w") as written:
        for piece in range(5):
            assert not file.has_changed(piece * 0.9)
            written.write("piece")
            written.flush()
            assert not file.is_as_seen()
    assert not file.has_changed(4.5) and file.is_as_seen()
    assert file.has_changed(5.5)
