"""The scenario, played by every client.

`scenario.json` has scenes. Each has steps, and may have `options` of the client, variables of its `environment`,
`through` the proxy, a `path` after the service's URL, and a list of clients that `cannot` play it. A step is one of

- `call` with `args`, and `positional` ones if given: the client's result is `ok`, or it raises the `error`; `meanwhile`
  is an action that happens once the call has begun;
- `do`: an action on the service or on Redis (`Stage.act`);
- `faults`: what the proxy does with the next requests (`proxy.py`);
- `requests`: the number of commands in each request since the faults; `apart_s`: the least time between two of them;
- `headers`: headers that each of these requests has;
- `tokens`: the token that each of these requests shows;
- `token_file`: what the file `$token_file` holds from now on, at first `$token`;
- `refused`: the error of the constructor, which `hides` a text;
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

TOKENS = {"$token": TOKEN, "$newer_token": NEWER_TOKEN, "$token_with_a_typing_error": WRONG_TOKEN}

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCENES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "scenario.json").read_text())["scenes"]


def given(stage: Stage) -> Names:
    """The names that scenes may use."""
    soon = datetime.now(UTC).replace(microsecond=500_000) + timedelta(hours=1)
    addresses = {"$service": stage.service.url, "$proxy": stage.proxy.url, "$nobody": "http://127.0.0.1:1"}
    addresses |= {"$tls": f"https://{stage.tls_port}", "$tls_as_http": f"http://{stage.tls_port}"}
    addresses["$service_as_https"] = stage.service.url.replace("http:", "https:")
    times = {"$in_an_hour": soon.timestamp(), "$in_an_hour_as_text": soon.isoformat()}
    times["$an_hour_ago_as_text"] = (soon - timedelta(hours=2)).isoformat()
    return {**times, **addresses, **TOKENS, "$token_file": str(stage.token_file)}


async def play(step: dict[str, Any], driver: Driver, stage: Stage, names: Names) -> None:
    """One step."""
    match step:
        case {"call": call, "args": args}:
            positional = {"positional": step["positional"]} if "positional" in step else {}
            await driver.begin({"call": call, "args": filled(args, names), **positional})
            if "meanwhile" in step:
                await stage.act(step["meanwhile"])
            wanted = {key: filled_later(step[key]) for key in ("ok", "error") if key in step}
            assert list(differences(wanted, await driver.line(), names)) == []
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
        case {"tokens": tokens}:
            shown = [request.headers.get("Authorization") for request in stage.proxy.requests]
            assert shown == [f"Bearer {token}" for token in filled(tokens, names)]
        case {"token_file": text}:
            stage.token_file.write_text(filled(text, names))
        case {"refused": error, "hides": text}:
            line = await driver.line()
            assert list(differences({"error": error}, line, names)) == []
            assert filled(text, names) not in line["error"]["message"]
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
    environment = filled(scene.get("environment", {}), names)
    async with Driver(participant, "client", url + scene.get("path", ""), options, environment) as driver:
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
