"""The pictures of the console in the documents: each page has one, and each is shown."""

from __future__ import annotations

import re

from tests.documents.pictures import FOLDER, pictures, shop
from tests.documents.test_readme import texts
from tests.kit.waiting import until

_MOST_BYTES, _MOST_BYTES_IN_ALL = 120_000, 2_000_000


def test_each_page_of_the_console_has_a_small_picture() -> None:
    sizes = {file.name: file.stat().st_size for file in FOLDER.iterdir()}
    assert sizes.keys() == {f"{picture.name}.png" for picture in pictures("")}, "make pictures"
    assert max(sizes.values()) <= _MOST_BYTES and sum(sizes.values()) <= _MOST_BYTES_IN_ALL


def test_each_picture_is_shown_and_described_for_those_who_do_not_see_it() -> None:
    shown = {
        (document.parent / path).resolve()
        for document in texts()
        if document.suffix == ".md"
        for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]+\.png)\)", document.read_text())
        if len(words.split()) > 3
    }
    assert {file for file in FOLDER.iterdir() if file not in shown} == set()


async def test_each_page_that_is_taken_has_something_to_show() -> None:
    async with shop() as made:
        for picture in made.pictures:

            async def has_something(path: str = picture.path) -> bool:
                response, text = await made.front.get(path, **made.session)
                return response.status == 200 and "does not answer" not in text  # as it may be on a slow machine

            await until(has_something)
