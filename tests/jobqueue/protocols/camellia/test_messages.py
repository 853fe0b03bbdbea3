"""What becomes of a message: every operation, every state, and the rules R1 to R5."""

from __future__ import annotations

import json
from typing import Any

import pytest

from buckets import NewJob, Pool
from jobqueue.settings import Settings
from tests.jobqueue.protocols.camellia.conftest import Make, Server

TEN_YEARS_MS = 3650 * 86_400_000


async def test_it_waits_is_ready_is_pulled_and_finished(camellia: Server) -> None:
    assert (await camellia.send(msgId="m", delayMillis=1500))["status"] == 1
    await camellia.pass_ms(1499)
    assert await camellia.pull() == [] and (await camellia.read("m"))["status"] == 1
    await camellia.pass_ms(1)
    assert (await camellia.read("m"))["status"] == 2
    (pulled,) = await camellia.pull()
    assert (pulled["msgId"], pulled["status"], pulled["retry"]) == ("m", 3, 1)
    assert await camellia.pull() == []
    await camellia.ask("ackMsg", topic="t", msgId="m")  # their document does not name `ack`
    assert (await camellia.read("m"))["status"] == 4


async def test_one_with_a_delay_below_0_is_ready_now(camellia: Server) -> None:
    assert (await camellia.send(delayMillis=-5))["status"] == 2
    assert len(await camellia.pull()) == 1


async def test_it_comes_again_when_its_ack_timeout_ends_until_its_retries_are_used_up(camellia: Server) -> None:
    await camellia.send(msgId="m", maxRetry=1)
    (first,) = await camellia.pull(ackTimeoutMillis=200)
    await camellia.pass_ms(200)
    (second,) = await camellia.pull(ackTimeoutMillis=200)
    assert (first["retry"], second["retry"], second["maxRetry"]) == (1, 2, 1)
    await camellia.pass_ms(200)
    assert await camellia.pull() == []
    dead = await camellia.read("m")
    assert (dead["status"], dead["msg"]) == (6, "x")


async def test_one_that_nobody_pulled_in_its_ttl_has_expired(camellia: Server) -> None:
    sent = await camellia.send(msgId="m", ttlMillis=1000, delayMillis=10)
    assert sent["expireTime"] - sent["triggerTime"] == 1000
    await camellia.pass_ms(10)
    await camellia.pass_ms(1000)
    assert await camellia.pull() == [] and (await camellia.read("m"))["status"] == 5


async def test_one_whose_ttl_ends_after_it_was_pulled_is_exhausted(camellia: Server) -> None:
    await camellia.send(msgId="m", ttlMillis=1000)
    await camellia.pull(ackTimeoutMillis=100)
    await camellia.pass_ms(100)
    await camellia.pass_ms(1000)
    assert (await camellia.read("m"))["status"] == 6


@pytest.mark.parametrize("pulled", [False, True])
async def test_deleting_it_ends_it_and_keeps_its_text_for_a_while(camellia: Server, pulled: bool) -> None:
    await camellia.send(msgId="m", msg="hello")
    if pulled:
        await camellia.pull()
    assert await camellia.ask("deleteMsg", topic="t", msgId="m", release="true") == {"code": 200, "msg": "success"}
    deleted = await camellia.read("m")
    assert (deleted["status"], deleted["msg"]) == (7, "hello")
    assert await camellia.ask("deleteMsg", topic="t", msgId="m") == {"code": 404, "msg": None}
    assert await camellia.pull() == []


async def test_a_finished_or_dead_one_cannot_be_deleted(camellia: Server) -> None:
    await camellia.send(msgId="finished")
    await camellia.pull()
    await camellia.ask("ackMsg", topic="t", msgId="finished", ack="true")
    await camellia.send(msgId="dead", maxRetry=0)
    await camellia.pull()
    await camellia.ask("ackMsg", topic="t", msgId="dead", ack="false")
    for msg_id, status in (("finished", 4), ("dead", 6)):
        assert (await camellia.ask("deleteMsg", topic="t", msgId=msg_id))["code"] == 404
        assert (await camellia.read(msg_id))["status"] == status


async def test_what_ended_is_remembered_for_the_retention(make: Make) -> None:
    server = make(retention_s=2.0)
    sent = await server.send(msgId="m", ttlMillis=5000)
    await server.ask("deleteMsg", topic="t", msgId="m")
    await server.pass_ms(1999)
    assert await server.read("m") == sent | {"status": 7}
    await server.pass_ms(2)
    assert await server.read("m") is None


async def test_r3_one_that_lives_is_answered_as_it_is_and_nothing_changes(camellia: Server) -> None:
    first = await camellia.send(msgId="m", msg="old", delayMillis=1000, maxRetry=3, ttlMillis=5000)
    camellia.clock.advance(500)
    assert await camellia.send(msgId="m", msg="new", delayMillis=9000) == first
    await camellia.pass_ms(500)
    (pulled,) = await camellia.pull()
    assert pulled["msg"] == "old"
    assert await camellia.send(msgId="m", msg="new") == pulled


@pytest.mark.parametrize("end", ["finished", "deleted", "dead"])
async def test_r3_one_that_ended_begins_a_new_life(camellia: Server, end: str) -> None:
    await camellia.send(msgId="m", msg="old", maxRetry=0)
    if end == "deleted":
        await camellia.ask("deleteMsg", topic="t", msgId="m")
    else:
        await camellia.pull()
        await camellia.ask("ackMsg", topic="t", msgId="m", ack=str(end == "finished"))
    camellia.clock.advance(7)
    new = await camellia.send(msgId="m", msg="new", delayMillis=5)
    assert (new["msg"], new["status"], new["retry"], new["produceTime"]) == ("new", 1, 0, camellia.clock.now_us // 1000)
    await camellia.pass_ms(5)
    assert [each["msg"] for each in await camellia.pull()] == ["new"]


async def test_r4_messages_are_pulled_first_in_first_out_up_to_the_batch(camellia: Server) -> None:
    for msg_id in "abcde":
        await camellia.send(msgId=msg_id)
    assert [each["msgId"] for each in await camellia.pull()] == ["a"]
    assert [each["msgId"] for each in await camellia.pull(batch=0)] == ["b"]
    assert [each["msgId"] for each in await camellia.pull(batch=100_000)] == ["c", "d", "e"]


async def test_r5_ack_of_one_that_nobody_pulled_cancels_it(camellia: Server) -> None:
    for msg_id, delay in (("ready", 0), ("delayed", 1000)):
        await camellia.send(msgId=msg_id, delayMillis=delay)
        assert await camellia.ask("ackMsg", topic="t", msgId=msg_id, ack="yes") == {"code": 200, "msg": "success"}
        assert (await camellia.read(msg_id))["status"] == 7
    await camellia.pass_ms(1000)
    assert await camellia.pull() == []


async def test_r5_ack_false_gives_a_pulled_one_back_at_once_and_changes_no_other(camellia: Server) -> None:
    await camellia.send(msgId="m")
    for _ in range(3):
        assert (await camellia.ask("ackMsg", topic="t", msgId="m", ack="false"))["code"] == 200
    (first,) = await camellia.pull(batch=10)
    await camellia.ask("ackMsg", topic="t", msgId="m", ack="off")
    (second,) = await camellia.pull(batch=10)
    assert (first["retry"], second["retry"]) == (1, 2)


async def test_r5_ack_false_of_the_last_delivery_is_its_end(camellia: Server) -> None:
    await camellia.send(msgId="m", maxRetry=0)
    await camellia.pull()
    await camellia.ask("ackMsg", topic="t", msgId="m", ack="false")
    assert (await camellia.read("m"))["status"] == 6 and await camellia.pull() == []


@pytest.mark.parametrize("ack", ["true", "false"])
async def test_an_ack_succeeds_for_what_is_not_there_or_has_ended(camellia: Server, ack: str) -> None:
    await camellia.send(msgId="m")
    await camellia.pull()
    await camellia.ask("ackMsg", topic="t", msgId="m", ack="true")
    for msg_id in ("m", "never"):
        assert await camellia.ask("ackMsg", topic="t", msgId=msg_id, ack=ack) == {"code": 200, "msg": "success"}
    assert (await camellia.read("m"))["status"] == 4


async def test_a_late_ack_of_a_live_one_counts(camellia: Server) -> None:
    await camellia.send(msgId="m")
    await camellia.pull(ackTimeoutMillis=100)
    await camellia.pass_ms(100)
    await camellia.ask("ackMsg", topic="t", msgId="m", ack="true")
    assert (await camellia.read("m"))["status"] == 4 and await camellia.pull() == []


async def test_what_a_client_leaves_open_the_settings_say(make: Make) -> None:
    server = make(ttl_s=60.0, max_retry=2, ack_timeout_s=1.5)
    sent = await server.send(msgId="m")
    assert (sent["maxRetry"], sent["expireTime"] - sent["triggerTime"]) == (2, 60_000)
    await server.pull()
    await server.pass_ms(1499)
    assert await server.pull() == []
    await server.pass_ms(1)
    assert len(await server.pull(ackTimeoutMillis=-5)) == 1


@pytest.mark.parametrize(
    ("asked", "shown"), [(0, 0), (5, 5), (65_534, 65_534), (65_535, 2**31 - 1), (2**31 - 1, 2**31 - 1), (-7, 10)]
)
async def test_a_number_of_retries_that_is_too_large_is_no_limit(camellia: Server, asked: int, shown: int) -> None:
    assert (await camellia.send(msgId="m", maxRetry=asked))["maxRetry"] == shown
    assert (await camellia.read("m"))["maxRetry"] == shown


async def test_a_ttl_is_at_most_ten_years_and_the_longest_delay_is_that(camellia: Server) -> None:
    sent = await camellia.send(msgId="m", ttlMillis=2**63 - 1, delayMillis=TEN_YEARS_MS)
    assert sent["expireTime"] - sent["triggerTime"] == sent["triggerTime"] - sent["produceTime"] == TEN_YEARS_MS
    assert await camellia.read("m") == sent


@pytest.mark.parametrize(("asked", "lasts"), [(1, 100), (250, 250), (2**40, 86_400_000)])
async def test_an_ack_timeout_is_within_the_bounds_of_a_lease(camellia: Server, asked: int, lasts: int) -> None:
    await camellia.send(ttlMillis=TEN_YEARS_MS)
    await camellia.pull(ackTimeoutMillis=asked)
    await camellia.pass_ms(lasts - 1)
    assert await camellia.pull() == []
    await camellia.pass_ms(1)
    assert len(await camellia.pull()) == 1


async def test_a_made_id_has_32_hexadecimal_digits(camellia: Server) -> None:
    for given in ({}, {"msgId": ""}):
        msg_id = (await camellia.send(**given))["msgId"]
        assert len(msg_id) == 32 and int(msg_id, 16) and (await camellia.read(msg_id))["status"] == 2


async def test_a_text_comes_back_as_it_was_sent(subtests: pytest.Subtests, camellia: Server) -> None:
    cases: list[str] = ["x", '{"a": 1}', "[1,2]", '"', "{", "null", "  {}  ", "\0\n\ufeff", "é订单😀"]
    for number, text in enumerate(cases):
        with subtests.test(text=text):
            assert (await camellia.send(msgId=f"m{number}", msg=text))["msg"] == text
            assert (await camellia.read(f"m{number}"))["msg"] == text
            assert (await camellia.pull())[0]["msg"] == text


async def test_a_topic_may_have_any_name_and_an_id_any_that_begins_without_a_percent_sign(
    subtests: pytest.Subtests, camellia: Server
) -> None:
    cases: list[str] = ["订单 a", "a:b", "%", "a%2Fb", "/", "\0", "a&b=c+d", "*?", "."]
    for name in cases:
        with subtests.test(name=name):
            msg_id = "m" + name
            assert (await camellia.send(topic=name, msgId=msg_id))["topic"] == name
            (pulled,) = await camellia.pull(topic=name)
            assert (pulled["topic"], pulled["msgId"]) == (name, msg_id)
            await camellia.ask("ackMsg", topic=name, msgId=msg_id, ack="true")
            assert (await camellia.read(msg_id, topic=name))["status"] == 4


async def test_topics_whose_names_look_alike_do_not_share_messages(camellia: Server) -> None:
    await camellia.send(topic="a:b", msgId="c", msg="first")
    await camellia.send(topic="a", msgId="b:c", msg="second")
    assert (await camellia.read("c", topic="a:b"))["msg"] == "first"
    assert (await camellia.read("b:c", topic="a"))["msg"] == "second"


async def test_a_plain_message_is_the_job_that_the_native_protocol_would_advise(camellia: Server, pool: Pool) -> None:
    await camellia.send(topic="orders", msgId="17", msg='{"a":1}')
    job = await pool.get("orders:17")
    assert job and (job.topic, job.body) == ("orders", b'{"a":1}')


async def test_a_foreign_job_is_named_by_a_percent_sign_and_its_id(
    subtests: pytest.Subtests, camellia: Server, pool: Pool
) -> None:
    cases: list[str] = ["another", "t:%25x", "t:a%3Ab", "t:", "tt:1", "#5", "t:1@t"]
    for job_id in cases:
        with subtests.test(job_id=job_id):
            await pool.add([NewJob(job_id, "t", b'{"a":1}', tries=0, ttr_ms=0)])
            (pulled,) = await camellia.pull()
            own = job_id == "t:1@t"  # like one that camellia could have sent
            assert pulled["msgId"] == ("1@t" if own else f"%{job_id}")
            assert (pulled["msg"], pulled["status"], pulled["maxRetry"]) == ('{"a":1}', 3, 2**31 - 1)
            assert pulled["expireTime"] - pulled["triggerTime"] == TEN_YEARS_MS
            assert await camellia.read(pulled["msgId"]) == pulled
            await camellia.ask("ackMsg", topic="t", msgId=pulled["msgId"], ack="true")
            assert (await camellia.read(pulled["msgId"]))["status"] == 4


async def test_a_message_is_reached_in_its_own_topic_only(camellia: Server, pool: Pool) -> None:
    await pool.add([NewJob("alone", "other", b"1")])
    for operation in ("ackMsg", "deleteMsg", "getMsg"):
        await camellia.ask(operation, topic="t", msgId="%alone")
    assert await camellia.read("%alone") is None
    assert (await camellia.read("%alone", topic="other"))["status"] == 2


async def test_an_id_that_a_job_of_another_topic_has_is_refused(camellia: Server, pool: Pool) -> None:
    await pool.add([NewJob("t:live", "other", b"1"), NewJob("t:dead", "other", b"1")])
    dead = await pool.take("t:dead")
    await pool.bury("t:dead", dead.lease, "")
    for msg_id in ("live", "dead"):
        before = await pool.get(f"t:{msg_id}")
        answer = await camellia.ask("sendMsg", topic="t", msgId=msg_id, msg="x", delayMillis=0)
        assert answer["code"] == 500 and "another topic" in answer["msg"]
        assert await pool.get(f"t:{msg_id}") == before


async def test_namespaces_are_kept_apart_by_the_first_segment_of_the_path(make: Make, pool: Pool) -> None:
    server = make(namespaces={"im": "im.", "shop": "shop:"}, prefix="p/")
    for namespace in ("", "/im", "/shop"):
        sent = await server.ask("sendMsg", namespace, topic="t", msgId="m", msg=f"of {namespace}", delayMillis=0)
        assert (sent["delayMsg"]["topic"], sent["delayMsg"]["msgId"]) == ("t", "m")
    for namespace, job_id in (("", "p/t:m"), ("/im", "im.t:m"), ("/shop", "shop%3At:m")):
        assert await pool.get(job_id)
        (message,) = (await server.ask("pullMsg", namespace, topic="t", batch=10))["delayMsgList"]
        assert (message["topic"], message["msgId"], message["msg"]) == ("t", "m", f"of {namespace}")
        topics = (await server.ask("getTopicInfoList", namespace))["data"]
        assert [topic["topic"] for topic in topics] == ["t"]
    assert (await server.get("/health")).status == 404
    assert (await server.get("/im/camellia/health/check")).status == 200


async def test_a_virtual_topic_gets_one_answer_and_each_of_its_topics_a_message(make: Make) -> None:
    server = make(Settings(virtual_topics={"v": ("t", "u")}))
    sent = await server.send(topic="v", msgId="m", msg="hello", delayMillis=5)
    assert (sent["topic"], sent["msgId"], sent["status"], sent["msg"]) == ("v", "m", 1, "hello")
    assert await server.send(topic="v", msgId="m", msg="other") == sent
    await server.pass_ms(5)
    assert await server.pull(topic="v") == []
    for topic in ("t", "u"):
        (pulled,) = await server.pull(topic=topic)
        assert (pulled["topic"], pulled["msgId"], pulled["msg"]) == (topic, f"%v:m@{topic}", "hello")
        await server.ask("ackMsg", topic=topic, msgId=pulled["msgId"], ack="true")
        assert (await server.read(pulled["msgId"], topic=topic))["status"] == 4
    assert await server.read("m", topic="v") is None


async def test_a_topic_shows_how_many_messages_wait_and_for_how_long(camellia: Server) -> None:
    for delay in (0, 0, 0, 30_000, 300_000, 1_200_000, 3_000_000, 7_200_000, 50_000_000, 200_000_000, 10**9, 10**10):
        await camellia.send(delayMillis=delay)
    await camellia.pull()
    ranges = dict.fromkeys(
        (
            *("sizeOf0To1min", "sizeOf1minTo10min", "sizeOf10minTo30min", "sizeOf30minTo1hour", "sizeOf1hourTo6hour"),
            *("sizeOf6hourTo1day", "sizeOf1dayTo7day", "sizeOf7dayTo30day", "sizeOf30dayToInfinite"),
        ),
        1,
    )
    info = {"topic": "t", "waitingQueueSize": 9, "waitingQueueInfo": ranges, "readyQueueSize": 2, "ackQueueSize": 1}
    answer = await camellia.ask("getTopicInfo", topic="t")
    assert answer == {"code": 200, "data": info}
    assert list(answer["data"]) == list(info) and list(answer["data"]["waitingQueueInfo"]) == list(ranges)
    assert await camellia.ask("getTopicInfoList") == {"code": 200, "data": [info]}


async def test_an_unknown_topic_has_zeros_and_is_not_listed(camellia: Server) -> None:
    data = (await camellia.ask("getTopicInfo", topic="订单"))["data"]
    assert data["topic"] == "订单" and not any(data["waitingQueueInfo"].values())
    assert (data["waitingQueueSize"], data["readyQueueSize"], data["ackQueueSize"]) == (0, 0, 0)
    assert await camellia.ask("getTopicInfoList") == {"code": 200, "data": []}


async def test_a_get_ignores_its_body(camellia: Server) -> None:
    reply = await camellia.get("/camellia/delayQueue/getTopicInfo", "topic=t")
    data: Any = json.loads(reply.body)["data"]
    assert data["topic"] == "t"
