"""The reference: the document is up to date, and covers every command, field, answer and code."""

from __future__ import annotations

import re

from jobqueue.errors import STATUS
from jobqueue.reference import codes, entries, markdown
from jobqueue.schema import answers, params
from jobqueue.settings import Settings
from tests.kit.service import ROOT


def test_the_document_is_what_the_generator_makes() -> None:
    assert (ROOT / "docs" / "protocol.md").read_text() == markdown.markdown(), "run `make docs`"


def test_every_command_has_its_entry_fields_and_answers() -> None:
    text = markdown.markdown()
    assert answers.ANSWERS.keys() == params.BY_NAME.keys()
    for entry in entries():
        section = re.search(rf"^### {entry.name}\n(.*?)(?=^##)", text, re.M | re.S)
        assert section and entry.does and " ".join(section[1].split()).startswith(entry.does)
        for field in entry.fields:
            assert f"`{field.name}`" in section[1] and field.meaning, (entry.name, field.name)
        for shape in entry.answers:
            assert all(f"- `{name}`: " in section[1] for name in shape.__struct_fields__ if name != "success")


def test_every_code_has_its_line_and_status() -> None:
    text = markdown.markdown()
    assert codes().keys() == STATUS.keys()
    for code, status in STATUS.items():
        assert re.search(rf"^\| `{code}` \| {status} \| \w.+ \|$", text, re.M), code


def test_a_default_that_is_a_setting_has_its_value() -> None:
    add = entries()[0]
    assert add.default("tries") == f"{Settings().default_tries} (setting `default_tries`)"
    assert add.default("if_exists") == "keep"
