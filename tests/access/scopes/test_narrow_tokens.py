"""What a token with topics learns of the work of others: the log of actions, the tokens, the workers."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from jobqueue.access.issuing import Issued
from tests.kit.guarded import Guarded, guarded
from tests.kit.ports import free_port

_UNKNOWN = "unknown0"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncIterator[Guarded]:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        async with guarded(Path(folder)) as running:
            yield running


async def told(service: Guarded, issued: Issued, command: str, **fields: Any) -> dict[str, Any]:
    """The answer to one command."""
    _, answer = await service.ask(issued, {"command": command, **fields})
    assert isinstance(answer, dict)
    return answer


async def test_the_log_shows_what_was_done_to_its_topics_and_what_it_did_itself(service: Guarded) -> None:
    wide, narrow = await service.token("admin"), await service.token("admin", topics=["mail-*"])
    for topic in ("mail-a", "bills"):
        await told(service, wide, "pause", topic=topic)
        await told(service, wide, "resume", topic=topic)
    await told(service, wide, "run", id="a-bill")
    await told(service, narrow, "run", id="whichever")

    async def seen(by: Issued) -> list[str]:
        actions = (await told(service, by, "actions"))["actions"]
        return [each.get("topic") or each.get("id") for each in actions if each["action"] != "token create"]

    assert await seen(narrow) == ["whichever", "mail-a", "mail-a"]
    assert await seen(wide) == ["whichever", "a-bill", "bills", "bills", "mail-a", "mail-a"]


async def test_it_knows_of_no_token_that_reaches_other_topics(service: Guarded) -> None:
    narrow = await service.token("admin", topics=["mail-*"])
    within = await service.token("look", topics=["mail-a"], expires=narrow.record.expires)
    beyond = [await service.token("look"), await service.token("look", topics=["mail-a", "bills"])]
    listed = [each["id"] for each in (await told(service, narrow, "token", action="list"))["tokens"]]
    assert {narrow.record.id, within.record.id} <= {*listed}
    for action, more in (("show", {}), ("test", {"right": "pop"}), ("rotate", {}), ("revoke", {})):
        unknown = await told(service, narrow, "token", action=action, id=_UNKNOWN, **more)
        assert unknown["code"] == "NOT_FOUND"
        for other in beyond:
            assert other.record.id not in listed
            answer = await told(service, narrow, "token", action=action, id=other.record.id, **more)
            assert answer == unknown | {"id": other.record.id}
        assert (await told(service, narrow, "token", action=action, id=within.record.id, **more))["success"]
    for other in beyond:
        assert (await told(service, other, "whoami"))["success"]


async def test_a_worker_stays_listed_when_one_of_its_name_with_another_token_leaves(service: Guarded) -> None:
    one, other = await service.token("consume", "look"), await service.token("consume")
    for issued, topic in ((one, "letters"), (other, "parcels")):
        assert (await told(service, issued, "pop", topic=topic, worker="w"))["success"]

    async def listed() -> list[list[str]]:
        rows = (await told(service, one, "workers"))["workers"]
        return sorted(row["topics"] for row in rows if row["worker"] == "w")

    await told(service, other, "leave", worker="w")
    assert await listed() == [["letters"]]
    await told(service, one, "leave", worker="w")
    assert await listed() == []


async def test_an_add_to_a_virtual_topic_touches_only_jobs_that_such_an_add_made(tmp_path: Path) -> None:
    async with guarded(tmp_path, settings='[virtual_topics]\nnews = ["b-secret", "news-web"]\n') as service:
        owner = await service.token("produce", "consume", "look", "bodies")
        narrow = await service.token("produce", topics=["news"])

        async def refused(job_id: str) -> None:
            before = await told(service, owner, "get", id=f"{job_id}@b-secret", body=True)
            for how in ("keep", "reject", "renew", "replace", "later", "sooner"):
                add = {"topic": "news", "id": job_id, "body": "mine", "if_exists": how, "at": 1}
                answer = await told(service, narrow, "add", **add)
                assert answer["code"] == "ALREADY_EXISTS", how
                assert not answer.keys() & {"state", "due", "jobs"}
            assert await told(service, owner, "get", id=f"{job_id}@b-secret", body=True) == before
            assert (await told(service, owner, "get", id=f"{job_id}@news-web"))["code"] == "NOT_FOUND"

        for job_id, delay in (("delayed", 900), ("ready", 0)):
            await told(service, owner, "add", topic="b-secret", id=f"{job_id}@b-secret", body="theirs", delay=delay)
            await refused(job_id)

        async def added(how: str) -> list[tuple[str, str]]:
            answer = await told(service, narrow, "add", topic="news", id="own", body=how, if_exists=how, delay=900)
            return [(each["state"], each["result"]) for each in answer["jobs"]]

        assert await added("keep") == [("delayed", "created")] * 2
        assert await added("keep") == [("delayed", "existing")] * 2
        assert await added("replace") == [("delayed", "replaced")] * 2
        job = await told(service, owner, "pop", id="own@b-secret")
        await told(service, owner, "finish", id="own@b-secret", lease=job["lease"])
        assert await added("keep") == [("finished", "existing"), ("delayed", "existing")]
        await told(
            service, owner, "add", topic="b-secret", id="own@b-secret", body="theirs", if_exists="renew", delay=9
        )
        assert (await told(service, narrow, "add", topic="news", id="own", body="mine"))["code"] == "ALREADY_EXISTS"


async def test_an_admin_of_some_topics_takes_no_name_and_no_certificate_of_others(tmp_path: Path) -> None:
    port = free_port()
    settings = f'[protocols.beanstalkd]\nport = {port}\nact_as = "to-come"\n'
    async with guarded(tmp_path, settings=settings) as service:
        wide, narrow = await service.token("admin"), await service.token("admin", topics=["mail-*"])
        all_by_pattern = await service.token("admin", topics=["mail-*", "*"])
        gone = await service.token("look", name="gone")
        await told(service, wide, "token", action="revoke", id=gone.record.id)

        async def code(by: Issued, name: str, **fields: Any) -> str:
            fields |= {"rights": ["look"], "topics": ["mail-a"], "expires": by.record.expires}
            return str((await told(service, by, "token", action="create", name=name, **fields)).get("code", "OK"))

        assert await code(narrow, "mine") == "OK"
        assert await code(narrow, "with-certificate", certificate="spiffe://b/future") == "FORBIDDEN"
        assert await code(wide, "with-certificate", certificate="spiffe://b/future") == "OK"
        assert await code(narrow, "gone") == "ALREADY_EXISTS"
        assert await code(all_by_pattern, "gone") == "OK"
        assert await code(narrow, "to-come") == "FORBIDDEN"
        assert await code(wide, "to-come") == "OK"
