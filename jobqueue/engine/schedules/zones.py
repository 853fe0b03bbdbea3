"""The names of time zones. They are those of the library tzdata, whatever the machine has, so that all instances accept
the same ones."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files


@cache
def names() -> frozenset[str]:
    """All names of the IANA database."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


def near(name: str) -> str | None:
    """The zone that somebody may have meant by this name: in another case, without its region, or misspelt."""
    known = _by_lower_case()
    meant = name.strip().lower().replace(" ", "_")
    alike = [each for each in known if "/" in each and each[:3] == meant[:3]]  # to compare with all takes 30 ms
    found = [meant] if meant in known else get_close_matches(meant, alike, 1, 0.8)
    return known[found[0]] if found else None


@cache
def _by_lower_case() -> dict[str, str]:
    """By their names, and by those of their cities. Not those of Etc, as Etc/GMT+2 is what others call GMT-2."""
    common = sorted(name for name in names() if not name.startswith("Etc/"))
    cities = {name.rpartition("/")[2].lower(): name for name in reversed(common)}
    return cities | {name.lower(): name for name in common}
