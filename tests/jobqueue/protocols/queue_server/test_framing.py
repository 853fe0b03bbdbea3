"""Where an object ends (R9)."""

from __future__ import annotations

import json
import random
import time

import pytest

from jobqueue.errors import BadJson, TooLarge
from jobqueue.protocols.queue_server.dialect import Framing, NoObject


def objects(most: int, *pieces: bytes) -> list[bytes]:
    """The objects of at most so many bytes that come out while these pieces come in."""
    received, found = bytearray(), []
    framing = Framing(received, most)
    for piece in pieces:
        received += piece
        while (each := framing.take()) is not None:
            found.append(each)
    return found


def cut(data: bytes, seed: random.Random) -> list[bytes]:
    """The data in pieces of random lengths."""
    at = sorted(seed.randrange(len(data) + 1) for _ in range(seed.randrange(12)))
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


def something(seed: random.Random, depth: int = 0) -> object:
    """A random value, whose strings are full of what could be taken for an end."""
    kind = seed.randrange(4 if depth < 3 else 2)
    if kind == 0:
        return seed.choice([0, -1.5e300, True, None, 10**30])
    if kind == 1:
        return "".join(seed.choices('{}[]"\\ ,:aé\n\t\0/中', k=seed.randrange(9)))
    if kind == 2:
        return [something(seed, depth + 1) for _ in range(seed.randrange(4))]
    return {str(something(seed, 3)): something(seed, depth + 1) for _ in range(seed.randrange(4))}


def test_any_cut_of_any_sequence_gives_the_same_objects(subtests: pytest.Subtests) -> None:
    for number in range(300):
        with subtests.test(number=number):
            seed = random.Random(number)
            sent = [
                json.dumps({"action": 1, "x": something(seed)}, ensure_ascii=seed.random() < 0.5).encode()
                for _ in range(seed.randrange(1, 6))
            ]
            data = b"".join(each + seed.choice([b"", b"", b"\n", b"\r\n ", b"\t"]) for each in sent)
            assert objects(1 << 20, *cut(data, seed)) == sent
            assert objects(1 << 20, *(data[at : at + 1] for at in range(len(data)))) == sent


def test_braces_in_strings_and_behind_escapes_do_not_count() -> None:
    sent = rb'{"a":"}{","b\"}":"\\","c":{"d":"\\\"}"}}'
    assert objects(100, sent + sent) == [sent, sent]


def test_a_backslash_and_what_it_escapes_may_come_apart() -> None:
    assert objects(100, b'{"a":"x\\', b'"}', b'"}') == [b'{"a":"x\\"}"}']
    assert objects(100, b'{"a":"x\\', b'\\"}') == [b'{"a":"x\\\\"}']


def test_blanks_stand_before_between_and_behind() -> None:
    assert objects(100, b" \r\n{}\n\n", b"\t{} ", b"\n") == [b"{}", b"{}"]


def test_blanks_do_not_pile_up() -> None:
    received = bytearray(b" \n" * 1000)
    assert Framing(received, 100).take() is None
    assert not received


def test_what_does_not_begin_with_a_brace_is_no_request(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [b"GET / HTTP/1.1", b"[]", b'"', b"}", b"\0{}", b"\xef\xbb\xbf{}", b"{} x"]
    for data in cases:
        with subtests.test(data=data), pytest.raises(NoObject):
            objects(100, data)


def test_an_object_may_be_as_long_as_allowed() -> None:
    sent = b'{"a":"' + b"x" * 92 + b'"}'
    assert objects(100, sent) == [sent]


@pytest.mark.parametrize("pieces", [[b'{"a":"' + b"x" * 93 + b'"}'], [b"{" + b"[" * 50, b"[" * 50]])
def test_a_longer_one_is_too_large_even_before_its_end(pieces: list[bytes]) -> None:
    with pytest.raises(TooLarge):
        objects(100, *pieces)


def test_many_objects_in_one_read_may_be_longer_together() -> None:
    assert objects(100, b'{"a":1}' * 1000) == [b'{"a":1}'] * 1000


def test_objects_deep_within_each_other_are_refused_early() -> None:
    with pytest.raises(BadJson):
        objects(1 << 20, b"{" * 501)


@pytest.mark.parametrize(
    "data", [b"{" + b"[" * 40_000, b"{" + b"{{}}" * 10_000, b'{"' + b"\\" * 40_000, b'{"a":"' + b"x" * 40_000]
)
def test_time_is_linear_also_byte_by_byte(data: bytes) -> None:
    """Twice the bytes take about twice the time; where each byte meant another look at all, it would be four times."""

    def spent(length: int) -> float:
        received = bytearray()
        framing, begun = Framing(received, 1 << 20), time.process_time()
        for at in range(length):
            received += data[at : at + 1]
            assert framing.take() is None
        return time.process_time() - begun

    best = min(spent(len(data)) / spent(len(data) // 4) for _ in range(3))
    assert best < 10
