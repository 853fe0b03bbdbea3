"""The scenario, played by every client.

`scenario.json` has scenes. Each has steps, and may have `options` of the client, `through` the proxy, a `path` after
the service's URL, and a list of clients that `cannot` play it. A step is one of

- `call` with `args`, and `positional` ones if given: the client's result is `ok`, or it raises the `error`, whose
  message `hides` a text; `meanwhile` is an action that happens once the call has begun;
- `do`: an action on the service or on Redis (`Stage.act`);
- `faults`: what the proxy does with the next requests (`proxy.py`);
- `requests`: the number of commands in each request since the faults; `apart_s`: the least time between two of them;
- `headers`: headers that each of these requests has; `lacks`: the beginnings of the names of others, which none has;
- `tokens`: the token that each of these requests shows, null for none;
- `token_file`: what the file `$token_file` holds from now on, at first `$token`;
- `stored`: the id of a job whose body the service holds with exactly the bytes of what it `is`.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobqueue.errors import STATUS
from jobqueue.schema import params
from tests.conformance.matching import Names, differences, filled
from tests.conformance.participants import Driver, Participant
from tests.conformance.stage import Stage
from tests.conformance.tokens import NEWER_TOKEN, TOKEN, WRONG_TOKEN

TOKENS = {
    **{"$token": TOKEN, "$newer_token": NEWER_TOKEN, "$token_with_a_typing_error": WRONG_TOKEN},
    **{"$half_a_token": TOKEN[:30], "$token_and_more": f"{TOKEN}x", "$token_in_lower_case": TOKEN.lower()},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCENES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "scenario.json").read_text())["scenes"]


def given(stage: Stage) -> Names:
    """The names that scenes may use."""
    soon = datetime.now(UTC).replace(microsecond=500_000) + timedelta(hours=1)
    addresses = {"$proxy": stage.proxy.url, "$nobody": "http://127.0.0.1:1", "$nobody_as_https": "https://127.0.0.1:1"}
    for name, url in (("$service", stage.service.url), ("$tls", stage.tls.url), ("$strict", stage.strict.url)):
        plain = url.replace("https:", "http:")
        addresses |= {name: url, f"{name}_as_http": plain, f"{name}_as_https": plain.replace("http:", "https:")}
    addresses["$tls_as_localhost"] = stage.tls.url.replace("127.0.0.1", "localhost")
    times = {"$in_an_hour": soon.timestamp(), "$in_an_hour_as_text": soon.isoformat()}
    times["$an_hour_ago_as_text"] = (soon - timedelta(hours=2)).isoformat()
    files = {"$token_file": stage.token_file, **stage.files}
    return {**times, **addresses, **TOKENS, **{name: str(file) for name, file in files.items()}}


async def play(step: dict[str, Any], driver: Driver, stage: Stage, names: Names) -> None:
    """One step."""
    match step:
        case {"call": call, "args": args}:
            positional = {"positional": step["positional"]} if "positional" in step else {}
            await driver.begin({"call": call, "args": filled(args, names), **positional})
            if "meanwhile" in step:
                await stage.act(step["meanwhile"])
            wanted = {key: filled_later(step[key]) for key in ("ok", "error") if key in step}
            line = await driver.line()
            assert list(differences(wanted, line, names)) == [], step
            if "hides" in step:
                assert filled(step["hides"], names) not in line["error"]["message"]
        case {"do": action}:
            await stage.act(action)
        case {"faults": faults}:
            stage.proxy.faults = list(faults)
            stage.proxy.requests.clear()
        case {"requests": numbers}:
            requests = stage.proxy.requests
            assert [len(request.commands) for request in requests] == numbers
            gaps = [later.when - sooner.when for sooner, later in itertools.pairwise(requests)]
            assert all(gap >= step.get("apart_s", 0) for gap in gaps), gaps
        case {"headers": headers}:
            assert stage.proxy.requests
            assert all(headers.items() <= request.headers.items() for request in stage.proxy.requests)
            sent = [name.lower() for request in stage.proxy.requests for name in request.headers]
            assert not [name for name in sent if name.startswith(tuple(step.get("lacks", ())))]
        case {"tokens": tokens}:
            shown = [request.headers.get("Authorization") for request in stage.proxy.requests]
            assert shown == [token and f"Bearer {token}" for token in filled(tokens, names)]
        case {"token_file": text}:
            stage.token_file.write_text(filled(text, names))
        case {"stored": job_id, "is": body}:
            exactly = json.dumps(filled(body, names), ensure_ascii=False, separators=(",", ":")).encode()
            assert await stage.stored(job_id) == exactly
        case _:
            raise ValueError(f"unknown step: {step}")


def filled_later(expected: Any) -> Any:
    """An expectation with its long texts written out; its names are bound when it is compared."""
    if isinstance(expected, dict):
        if expected.keys() == {"repeat", "times"}:
            return expected["repeat"] * expected["times"]
        return {key: filled_later(each) for key, each in expected.items()}
    return [filled_later(each) for each in expected] if isinstance(expected, list) else expected


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene["name"])
async def test_the_scene_passes(scene: dict[str, Any], participant: Participant, stage: Stage) -> None:
    stage.proxy.faults.clear()
    stage.token_file.write_text(TOKEN)
    url = stage.proxy.url if scene.get("through") == "proxy" else stage.service.url
    names = given(stage)
    options = filled(scene.get("options", {}), names)
    async with Driver(participant, "client", url + scene.get("path", ""), options) as driver:
        for step in scene["steps"]:
            await play(step, driver, stage, names)


def _all(kind: str) -> set[str]:
    """All values of a key, anywhere in the scenes."""
    found: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get(kind), str):
                found.add(value[kind])
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                look(each)

    look(SCENES)
    return found


async def test_the_scenario_has_every_command_and_every_code() -> None:
    assert params.BY_NAME.keys() <= _all("call")
    assert STATUS.keys() | {"UNAUTHORIZED", "FORBIDDEN", "TOO_FAST"} <= _all("code")
