"""What no template and no page may contain, and how large the style may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jobqueue.console
from jobqueue.console.actions import ACTIONS
from jobqueue.console.site import PAGES

ROOM = Path(jobqueue.console.__file__).parent
_OWN = re.compile(r"\{\{ (to|asset)\(.*\) \}\}|#\w+|\{\{ back \}\}(#f-\{\{ field \}\})?")
TEMPLATES = sorted((ROOM / "templates").rglob("*.html"))


def test_a_template_puts_values_only_where_they_can_do_nothing(subtests: pytest.Subtests) -> None:
    for path in TEMPLATES:
        with subtests.test(path=path):
            text = path.read_text()
            assert "|safe" not in text.replace(" ", "") and "autoescape" not in text
            assert not re.search(r"\sstyle\s*=|\son\w+\s*=|javascript:|<style|srcdoc", text)
            assert not re.search(r"=\{\{|=\{%", text), "an attribute without quotes"
            assert all(tag.startswith('<script src="{{ asset(') for tag in re.findall(r"<script[^>]*>", text))
            assert not re.search(r"<script[^>]*>\s*\S[^<]*</script>", text)
            links = re.findall(r'(?:href|action|formaction|src)="([^"]*)"', text)
            assert all(
                re.fullmatch(r"\{\{ (to|asset)\(.*\) \}\}|#\w+|\{\{ back \}\}(#f-\{\{ field \}\})?", link)
                for link in links
            )


def test_what_htmx_reads_carries_the_nonce(subtests: pytest.Subtests) -> None:
    for path in TEMPLATES:
        with subtests.test(path=path):
            for tag in re.findall(r"<[a-z][^>]*\shx-[^>]*>", path.read_text()):
                assert 'hx-nonce="{{ nonce }}"' in tag


def test_no_script_is_deferred() -> None:
    """htmx would begin before the extension that refuses markup without a nonce."""
    scripts = re.findall(r"<script[^>]*>", (ROOM / "templates" / "parts" / "page.html").read_text())
    assert len(scripts) == 3 and not any("defer" in tag or "async" in tag for tag in scripts)


def test_no_python_of_the_console_makes_markup() -> None:
    for path in ROOM.rglob("*.py"):
        text = path.read_text()
        makes = re.findall(r"\bMarkup\(|\|\s*safe|render_template_string|from_string", text)
        assert makes == [], path


def test_escaping_is_set_in_one_place() -> None:
    found = [path.name for path in ROOM.rglob("*.py") if "jinja2" in path.read_text()]
    assert found == ["rendering.py"]


def test_the_style_is_small() -> None:
    assert (ROOM / "static" / "console.css").stat().st_size <= 16_000


def test_each_action_has_a_button_and_each_button_an_action() -> None:
    named = {name for path in TEMPLATES for name in re.findall(r"do/[\w-]+", path.read_text())}
    assert named == {*ACTIONS}


def test_each_page_is_linked_to() -> None:
    text = "".join(path.read_text() for path in TEMPLATES)
    assert all(f"to('{name}'" in text or f"('{name}', " in text for name in PAGES)
