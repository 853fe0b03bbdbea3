"""Answers are read with the bodies of jobs as they travelled."""

from __future__ import annotations

import json

import pytest

from jobqueue.sinks.pump.notices import loads


@pytest.mark.parametrize("body", ["1.10", "1E5", '{"a":1,"a":2}', '"\\u00e9"', "null", "[ ]", "1" * 400])
def test_a_body_is_the_bytes_of_its_json(body: str) -> None:
    job = f'{{"id":"a","value":{body},"due":1.5,"headers":{{"h":"v"}}}}'
    one = loads(f'{{"success":true,"jobs":[{job}]}}'.encode())
    assert one == {"success": True, "jobs": [{"id": "a", "value": body.encode(), "due": 1.5, "headers": {"h": "v"}}]}
    assert loads(f"[{job},{job}]".encode())[1]["value"] == body.encode()


@pytest.mark.parametrize("text", [b"", b"nonsense", b"1", b'{"value"'])
def test_what_is_no_answer_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        loads(text)
    with pytest.raises(ValueError):
        json.loads(text + b"x")
