"""Reading the entries of events, whatever is in them."""

from __future__ import annotations

import struct

import pytest

from buckets.events.codec import Event, Unreadable, read_all, read_entry
from buckets.job import NewJob, State, Verb
from buckets.record import pack_front

AT = 1_800_000_000_123_456
FRONT = pack_front(NewJob("a", "topic", b"", headers=b'{"a":1}'))


def head(verb: int = Verb.ADD, flags: int = 0, version: int = 1, by: bytes = b"host:1:0") -> bytes:
    return struct.pack(">BBB", version, verb, flags) + AT.to_bytes(7, "big") + by


def told(record: bytes, before: int = 0, was: int = 0) -> bytes:
    return bytes([before]) + was.to_bytes(6, "big") + record


def only(entry: bytes, job_id: bytes, value: bytes) -> Event:
    [event] = read_all([b"m", entry, job_id, value])[1]
    assert isinstance(event, Event)
    return event


def test_an_add_has_the_whole_record() -> None:
    event = only(head(flags=1), b"a", FRONT + b'{"body":1}')
    assert (event.id, event.verb, event.before, event.after) == ("a", Verb.ADD, 0, State.DELAYED)
    assert (event.topic, event.at, event.body) == ("topic", AT, b'{"body":1}')
    assert event.options == b'\x07\x00\x07{"a":1}'


def test_a_body_that_was_left_out_is_none() -> None:
    assert only(head(flags=1), b"a", FRONT).body is None


def test_an_add_over_a_live_job_is_a_replacement() -> None:
    event = only(head(), b"a", told(FRONT + b"1", State.READY, 7))
    assert (event.verb, event.before, event.was) == (Verb.REPLACE, State.READY, 7)


def test_a_block_that_the_move_did_not_write_is_none_and_not_empty() -> None:
    topic_end = FRONT[1] + FRONT[5]
    event = only(head(Verb.UPDATE), b"a", told(FRONT[:topic_end], State.DELAYED))
    assert (event.has_options, event.options, event.body) == (True, None, None)


def test_instance_and_actor_are_told_apart_at_the_first_space() -> None:
    entry = read_entry(head(by="host:1:0 chief/Zoë B".encode()))
    assert (entry.instance, entry.actor, entry.at) == ("host:1:0", "chief/Zoë B", AT)


def test_a_pause_has_its_topic_and_its_end() -> None:
    event = only(head(Verb.PAUSE), b"", told(b"orders", 0, 9))
    assert (event.id, event.topic, event.verb, event.was) == ("", "orders", Verb.PAUSE, 9)


def test_a_job_that_was_set_aside_has_no_record() -> None:
    event = only(head(Verb.ASIDE), b"a", bytes(7))
    assert (event.id, event.verb, event.after) == ("a", Verb.ASIDE, 0)


def test_a_job_handed_out_as_it_fell_due_was_popped() -> None:
    ready, reserved = (FRONT[:2] + bytes([0x10 + state]) + FRONT[3:] for state in (State.READY, State.RESERVED))
    values = [told(ready, State.DELAYED), told(reserved, State.READY)]
    entry, events = read_all([b"m", head(Verb.DUE), b"a", values[0], b"a", values[1]])
    assert entry.verb is Verb.DUE
    assert [event.verb for event in events if isinstance(event, Event)] == [Verb.DUE, Verb.POP]


def test_an_entry_of_another_version_is_unreadable(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [b"", b"\1", head(version=2), head(verb=0), head(verb=200), head()[:9]]
    for entry in cases:
        with subtests.test(entry=entry), pytest.raises(Unreadable):
            read_all([b"m", entry, b"a", FRONT])


@pytest.mark.parametrize("fields", [[], [b"m"], [b"x", head()], [b"m", head(), b"a"]])
def test_an_entry_of_another_form_is_unreadable(fields: list[bytes]) -> None:
    with pytest.raises(Unreadable):
        read_all(fields)


def test_a_value_that_cannot_be_read_does_not_spoil_the_others() -> None:
    whole = told(FRONT + b"1")
    for size in (0, 3, 8, 30, len(whole) - 3):
        _, [cut, event] = read_all([b"m", head(), b"a", whole[:size], b"b", whole])
        assert isinstance(event, Event) and event.id == "b"
        assert not isinstance(cut, Event) and cut[:2] == (b"a", whole[:size])


def test_equal_events_have_equal_checksums_and_others_have_others() -> None:
    sums = {only(head(), job_id, told(FRONT + body)).checksum for job_id in (b"a", b"b") for body in (b"1", b"2")}
    assert len(sums) == 4
    assert only(head(), b"a", told(FRONT)).checksum == only(head(by=b"x"), b"a", told(FRONT)).checksum
