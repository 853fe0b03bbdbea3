"""Matching: compares what the scenario expects with what a client gave.

An object may have more keys than expected, but a list may not have more members. `"<number>"`, `"<text>"` and `"<any>"`
match any value of that kind, and `"…text"` any text with that end; `"$name"` is bound to the first value it meets and
matches only that from then on. `"…text…"` matches any text that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Names = dict[str, Any]

KINDS: dict[str, tuple[type, ...]] = {"<number>": (int, float), "<text>": (str,), "<any>": (object,)}


def differences(expected: Any, got: Any, names: Names, where: str = "answer") -> Iterator[str]:  # noqa: PLR0912
    """Descriptions of all differences. Binds names."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key, value in expected.items():
            if key not in got:
                yield f"{where} has no {key!r}: {got!r}"
            else:
                yield from differences(value, got[key], names, f"{where}.{key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for number, pair in enumerate(zip(expected, got, strict=True)):
            yield from differences(*pair, names, f"{where}[{number}]")
    elif isinstance(expected, str) and expected in KINDS:
        if not isinstance(got, KINDS[expected]) or (isinstance(got, bool) and expected == "<number>"):
            yield f"{where} is not a {expected}: {got!r}"
    elif isinstance(expected, str) and expected.startswith("…") and isinstance(got, str):
        if expected.endswith("…") and expected[1:-1] not in got:
            yield f"{where} does not have {expected[1:-1]!r}: {got!r}"
        if not expected.endswith("…") and not got.endswith(expected[1:]):
            yield f"{where} does not end in {expected[1:]!r}: {got!r}"
    elif isinstance(expected, str) and expected.startswith("$"):
        if names.setdefault(expected, got) != got:
            yield f"{where} is {got!r}, not {expected} = {names[expected]!r}"
    elif expected != got or isinstance(expected, bool) != isinstance(got, bool):
        yield f"{where} is {got!r:.300}, not {expected!r:.300}"


def filled(value: Any, names: Names) -> Any:
    """A value with its names replaced by their bindings. `{"repeat": text, "times": n}` stands for a long text."""
    if isinstance(value, dict):
        if value.keys() == {"repeat", "times"}:
            return value["repeat"] * value["times"]
        return {key: filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, names) for each in value]
    return names[value] if isinstance(value, str) and value.startswith("$") else value
