"""The scripts of others are those that were published."""

from __future__ import annotations

from tests.jobqueue.console.vendored import FOLDER, digest, packages


def test_each_file_has_the_digest_that_the_list_has() -> None:
    files = [file for package in packages() for file in package["files"]]
    assert {file["file"]: file["sha512"] for file in files} == {
        file["file"]: digest((FOLDER / file["file"]).read_bytes()) for file in files
    }


def test_the_list_names_each_file_and_a_licence_text_stands_beside_it() -> None:
    listed = {file["file"] for package in packages() for file in package["files"]}
    assert listed == {path.name for path in FOLDER.iterdir()} - {"vendored.toml"}
    assert all(any("LICENSE" in file["file"] for file in package["files"]) for package in packages())
