"""Which actions are offered to whom: those that the service would take from their token."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobqueue.console.actions import ACTIONS
from tests.jobqueue.console import contents
from tests.jobqueue.console.consoles import console
from tests.kit.guarded import guarded
from tests.kit.service import Client

_COMMANDS = {
    **{f"do/{name}": name for name in ("pause", "resume", "purge", "add", "run", "kick", "delete", "release", "bury")},
    **{"do/kick-topic": "kick", "do/unschedule": "unschedule", "do/revoke": "token", "do/rotate": "token"},
    **dict.fromkeys(("do/plan", "do/find", "do/start", "do/cancel-operation"), "operation"),
    **dict.fromkeys(("do/pause-operation", "do/resume-operation"), "operation"),
    **dict.fromkeys(("do/reschedule", "do/prioritise", "do/edit"), "update"),
}
"""What each action asks the service for."""
_RIGHTS = (("look",), ("look", "operate"), ("look", "bodies", "produce"), ("look", "release", "resume"), ("admin",))
_NEEDS_A_RUNNING_ONE = {"do/pause-operation", "do/resume-operation"}


async def test_what_a_token_may_not_do_is_not_offered(subtests: pytest.Subtests, tmp_path: Path) -> None:
    assert {*_COMMANDS} == {*ACTIONS}
    async with guarded(tmp_path) as house, console(house.url) as front:
        await house.token("look", name="another")  # to be revoked by those who may
        async with Client(house.url, (await house.token("admin")).token.text) as client:
            await contents.fill(client)
            wanted = {"topic": contents.TOPIC, "state": "delayed"}
            plan = (await client.ask("operation", do="plan", kind="run", filter=wanted))["plan"]
        for rights in _RIGHTS:
            with subtests.test(rights=rights):
                issued = await house.token(*rights)
                _, bearer = await house.ask(issued, {"command": "whoami"})
                session = await front.sign_in(issued.token.text)
                offered: set[str] = set()
                for path in (*contents.TEMPLATES, "/find?q=nothing", f"/operation?id={plan}"):
                    _, text = await front.get(path, **session)
                    offered |= _offered(text)
                _, text = await front.get(f"/job?id={contents.DELAYED}", **session)
                allowed = {name for name, command in _COMMANDS.items() if command in bearer["commands"]}
                sees_bodies = "bodies" in rights or "admin" in rights
                assert offered == allowed - _NEEDS_A_RUNNING_ONE - (set() if sees_bodies else {"do/edit"})
                lacks = [command for command in ("run", "update", "delete") if command not in bearer["commands"]]
                said = re.findall(r"as your token lacks the right: (.*?)\.", text)
                assert said == ([", ".join(lacks)] if lacks else [])


def _offered(text: str) -> set[str]:
    """The actions for which a page has buttons."""
    found: set[str] = set()
    for action, content in re.findall(r'<form method="post" action="/(do/[\w-]+)".*?>(.*?)</form>', text, re.DOTALL):
        buttons = re.findall(r"<button(.*?)>", content)
        assert buttons, f"a form without a button: {action}"
        for button in buttons:
            if 'type="button"' not in button:
                found.update(re.findall(r'formaction="/(.*?)"', button) or [action])
    return found
