"""What people see of values that others wrote."""

from __future__ import annotations

import json

import pytest

from jobqueue.console import formatting
from jobqueue.console.formatting import Node
from jobqueue.console.rendering import Links


def written(node: Node) -> str:
    """A tree as JSON again, without white space."""
    if not node.closing:
        return node.text
    inner = ",".join(f"{key}:{written(member)}" if key else written(member) for key, member in node.members)
    return f"{node.text}{inner}{node.closing}"


def test_a_body_is_shown_digit_for_digit(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "12345678901234567890123",
        "1.10",
        '{"a":1e2,"b":[1.0,-0,{"c":null}],"d":"x\\u0000 y, : {[","":true}',
        "[]",
        "{}",
        '[[[[[["deep"]]]]]]',
        '"\\"quoted\\""',
        "[" * 100 + "7" + "]" * 100,
        '"  two  blanks "',
    ]
    for text in cases:
        with subtests.test(text=text):
            assert written(formatting.tree(text)) == text


def test_white_space_between_tokens_is_the_only_thing_that_goes() -> None:
    assert written(formatting.tree('{ "a" :\n[ 1 ,\t2 ] }')) == '{"a":[1,2]}'


def test_what_lies_deep_is_folded_and_what_is_short_is_not_broken() -> None:
    tree = formatting.tree('{"a":{"b":{"c":["' + "x" * 80 + '"]}},"d":[1,2]}')
    (_, a), (_, d) = tree.members
    assert not a.is_folded and a.members[0][1].is_folded
    assert d.is_short and not a.is_short


def test_what_is_no_json_fails_in_no_way(subtests: pytest.Subtests) -> None:
    for broken in ("", "{", '{"a"', "[1,", "}", '"', ",,", '{"a":'):
        with subtests.test(broken=broken):
            formatting.tree(broken)


def test_characters_that_a_browser_obeys_are_shown_as_escapes() -> None:
    assert formatting.shown("a\u202eb\u200b\x00\x1b\ufeff\ud800") == "a\\u202eb\\u200b\\u0000\\u001b\\ufeff\\ud800"
    assert formatting.shown("Zürich 東京 ☂") == "Zürich 東京 ☂"
    assert formatting.shown(7) == 7


def test_a_body_to_edit_means_what_it_meant() -> None:
    text = '{"a":\r\n\t"\u202eb" , "c":1.10}'
    assert json.loads(formatting.one_line(text)) == json.loads(text)
    assert "1.10" in formatting.one_line(text)


@pytest.mark.parametrize("time", [0, 1_795_264_116.321, 1e11, -1e12, 1e300])
def test_every_number_is_some_time(time: float) -> None:
    assert formatting.rfc3339(time)
    assert formatting.utc(time)


def test_a_link_encodes_all_of_a_name() -> None:
    links = Links("/queue")
    assert links.to("topic", name="a/b:c@d#e+f&g=h%2F") == "/queue/topic?name=a%2Fb%3Ac%40d%23e%2Bf%26g%3Dh%252F"
    assert links.to("jobs", topic="t", cursor="", state=None) == "/queue/jobs?topic=t"


def test_nobody_is_sent_to_another_site(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "https://evil.example/",
        "//evil.example",
        "/\\evil",
        "javascript:alert(1)",
        "",
        "/other",
        "/queue/\n",
    ]
    for address in cases:
        with subtests.test(address=address):
            assert Links("/queue").own(address) == "/queue/"


def test_an_address_of_the_console_is_kept() -> None:
    assert Links("/queue").own("/queue/topic?name=a%2Fb") == "/queue/topic?name=a%2Fb"
    assert Links("").own("/topics") == "/topics"
