"""pyspark_jobqueue.connector.options: parsing of the options that Spark passes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark_jobqueue.connector.options import Given, Target
from pyspark_jobqueue.errors import BadOption


def refused(options: dict[str, str]) -> str:
    given = Given(options)
    with pytest.raises(BadOption) as error:
        Target.of(given)
        given.done()
    return str(error.value)


def test_a_target_has_its_defaults_and_names_are_of_any_case() -> None:
    given = Given({"URL": "http://one:8000/, https://two/prefix/"})
    target = Target.of(given)
    given.done()
    assert target == Target(("http://one:8000", "https://two/prefix"))
    result = Target.of(Given({"url": "http://h", "timeoutms": "1500", "MAXRETRIES": "0", "retryWaitMs": "50"}))
    assert (result.timeout_s, result.max_retries, result.retry_wait_s) == (1.5, 0, 0.05)


def test_an_invalid_option_is_reported_in_a_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "option url is missing"),
        ({"url": " , "}, "option url is missing"),
        ({"url": "localhost:8000"}, "option url must be like http://localhost:8000"),
        ({"url": "ftp://h"}, "option url must be like"),
        ({"url": "http://h:port"}, "option url must be like"),
        ({"url": "http://h:70000"}, "option url must be like"),
        ({"url": "http://h?x=1"}, "option url must be like"),
        ({"url": "http://my..host"}, "option url must be like"),
        ({"url": "http://my host"}, "option url must be like"),
        ({"url": "http://h/é"}, "option url must be like"),
        ({"url": "http://h", "timeoutMs": "0"}, "option timeoutMs must be an integer from 1 to 3600000, not '0'"),
        ({"url": "http://h", "maxRetries": "-1"}, "option maxRetries must be an integer from 0 to 1000, not '-1'"),
        ({"url": "http://h", "retryWaitMs": "ten"}, "option retryWaitMs must be an integer from 1 to 10000, not 'ten'"),
        ({"url": "http://h", "timeoutMs": "9" * 30}, "option timeoutMs must be an integer"),
        ({"url": "http://h", "token": " "}, "option token is empty"),
        ({"url": "http://h", "token": "x", "tokenFile": "y"}, "options token and tokenFile exclude each other"),
        ({"url": "http://h", "tokenFile": "/no/such"}, "the file of option tokenFile cannot be read: No such file"),
        ({"url": "http://h", "tokn": "x"}, "unknown option 'tokn'; did you mean token?"),
        ({"url": "http://h", "zzz": "x"}, "Available: url, token, tokenFile, timeoutMs, maxRetries, retryWaitMs"),
    ]
    for options, sentence in cases:
        with subtests.test(options=options, sentence=sentence):
            assert sentence in refused(options)


def test_no_secret_is_shown() -> None:
    assert "s3cret" not in refused({"url": "http://user:s3cret@h:8000"})
    assert "s3cret" not in refused({"url": "http://:s3cret@h:8000"})
    assert "s3cret" not in refused({"url": "http://h:8000?token=s3cret"})
    assert "s3cret" not in refused({"url": "http://h", "token": "s3cret\n\x00"})
    assert "s3cret" not in repr(Target.of(Given({"url": "http://h", "token": "s3cret"})))


def test_a_token_comes_from_its_option_its_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token(**options: str) -> str | None:
        return Target.of(Given({"url": "http://h", **options})).token

    file = tmp_path / "token"
    file.write_text("filed\n")
    assert token() is None
    monkeypatch.setenv("JOBQUEUE_TOKEN", "of-the-environment")
    assert token() == "of-the-environment"
    assert token(token="given") == "given"  # noqa: S106
    assert token(tokenFile=str(file)) == "filed"


def test_a_target_travels_to_the_tasks() -> None:
    target = Target.of(Given({"url": "http://h", "token": "t", "timeoutMs": "1000"}))
    assert pickle.loads(pickle.dumps(target)) == target  # noqa: S301 - our own
