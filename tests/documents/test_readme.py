"""The documents: the session in the README, run against a real service; links; how to install."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.service import ROOT, Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until

_MOST_LINES = 220
"""Of the README: what is in it is read by everyone who tries the service."""
# Fields that differ from run to run.
_VARYING = ("due", "created", "lease")
# The same in a text: dates, durations with their units, processes, and the spaces that line them up.
_VARYING_WORDS = re.compile(r"[+-]?\d[\d.:-]*( (ms|s|min|h|d)\b)?|\b[\w.-]+:\d+:\d+| {2,}")
# A package manager, and one of our own names as a registry would know it.
_BY_NAME = re.compile(r"(pip3? install|npm (install|i))\b[^\n`#]*?[ '\"](@?jobqueue|pyspark-jobqueue)")
_TEXTS = (".md", ".py", ".js", ".ts", ".php", ".json", ".toml", ".cfg")


# A topic in JSON, in a call, and on a command line.
_TOPICS = (
    re.compile(r"""topic["']?(?::|=|,) ?["']([\w*?-]+)["'](?!:)"""),
    re.compile(r"""--topic '?([a-z*][\w*?-]*)"""),
    re.compile(r"^jobqueue (?:add|pop|peek|pause|resume|purge|topics) '?([a-z*][\w*?-]*)", re.M),
)


def session() -> list[tuple[str, str]]:
    """The commands in the README, each with the answer that it shows."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return re.findall(r"^\$ (.+)\n(.+)$", "\n".join(blocks), re.M)


def steady(answer: Any) -> Any:
    """The answer without the fields that differ from run to run."""
    if isinstance(answer, list):
        return [steady(each) for each in answer]
    return {
        name: "…" if name in _VARYING and isinstance(value, int | float) else value for name, value in answer.items()
    }


def texts() -> list[Path]:
    """Every file that a user may read or whose messages a user may see."""
    folders = (ROOT / folder for folder in ("buckets", "clients", "conf", "deploy", "docs", "jobqueue", "tests"))
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in _TEXTS]
    own = [path for path in files if not {"node_modules", "vendor"} & set(path.parts)]
    return [*ROOT.glob("*.md"), *own]


def anchors(document: Path) -> set[str]:
    """The names by which a link can point to the headings of a document, as the usual hosts derive them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tests_that_documents_name_are_there() -> None:
    named = {
        (document.name, name)
        for document in texts()
        if document.suffix == ".md"
        for name in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", document.read_text())
    }
    assert len(named) > 40
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


def test_the_issue_forms_are_such() -> None:
    checked = Path(sys.executable).with_name("check-jsonschema")
    forms = [str(path) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml")]
    assert forms
    subprocess.run([checked, "--builtin-schema", "vendor.github-issue-forms", *forms], check=True, timeout=60)


async def test_the_session_of_the_readme_goes_as_it_says() -> None:
    steps = session()
    assert len(steps) == 6
    async with ServiceProcess("--test", workers=None) as service, Client(service.url) as client:
        leases: dict[str, str] = {}  # as the README shows them, and as they are
        for command, shown in steps:
            if '"wait"' in command:  # meanwhile, the time of the first job comes
                await client.ask("clock", advance=2)
            real = command.replace("localhost:8000", f"127.0.0.1:{service.port}")
            for old, new in leases.items():
                real = real.replace(old, new)
            process = await asyncio.create_subprocess_shell(real, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
            answer, expected = json.loads(printed), json.loads(shown)
            assert steady(answer) == steady(expected), command
            if "lease" in expected:
                leases[str(expected["lease"])] = str(answer["lease"])


async def test_explain_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """Nobody pops the job for as long as `explain` gives reasons for."""
    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"```\n\$ jobqueue explain example-refund:1001\n(.*?)```", readme, re.S)
    config, log = tmp_path / "jobqueue.toml", tmp_path / "log"
    config.write_text(f'journal = "sqlite:///{tmp_path}/journal.db"\njournal_run = true\n')
    async with (
        ServiceProcess("--config", str(config), "--data", str(tmp_path / "data"), log=log) as service,
        Client(service.url) as client,
    ):
        await until(lambda: "journal.walked" in log.read_text(), every_s=0.1)
        job = {"id": "example-refund:1001"}
        await client.ask("add", topic="example-refund", body=1, delay=0.1, **job)

        async def has_waited() -> bool:
            facts = (await client.ask("explain", **job))["facts"]
            return bool(facts["state"] == "ready" and facts["job"]["ready_since"] + 0.2 < facts["now"])

        await until(has_waited, every_s=0.1)
        await client.ask("pop", topic="example-refund", worker="refunds-1")
        await client.ask("bury", reason="no such account", **job)

        async def is_kept() -> bool:
            return "buried" in [line["what"] for line in (await client.ask("explain", **job))["timeline"] or ()]

        await until(is_kept, every_s=0.1)
        printed = await Shell(service.url, COLUMNS="200").shown("explain", *job.values())
    told = [_steady_line(line) for line in printed.splitlines() if "the journal goes back" not in line]
    assert told == [_steady_line(line) for line in shown.splitlines()]


def _steady_line(line: str) -> str:
    return re.sub(r"…\S*", "…", _VARYING_WORDS.sub("…", line))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= _MOST_LINES


def test_the_documents_link_to_files_that_there_are() -> None:
    documents = [path for path in texts() if path.suffix == ".md"]
    assert len(documents) > 15
    for document in documents:
        for link, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", document.read_text()):
            target = document.parent / link if link else document
            assert target.exists(), f"{document}: {link}"
            assert not anchor or anchor in anchors(target), f"{document}: {link}#{anchor}"


def test_a_long_document_begins_with_its_contents() -> None:
    """A log, a list of decisions and a table of measurements are not read from the top."""
    long = [path for path in texts() if path.suffix == ".md" and len(path.read_text().splitlines()) > 150]
    for document in [path for path in long if path.name not in ("CHANGELOG.md", "decisions.md", "bench.md")]:
        head, *sections = re.split(r"^## ", document.read_text(), flags=re.M)
        names = [re.sub(r"[^\w\- ]", "", section.partition("\n")[0].lower()).replace(" ", "-") for section in sections]
        listed = re.findall(r"\]\(#([^)]+)\)", head)
        missing = [name for name in names if name not in listed]
        assert not missing, f"{document}: {missing}"


def test_the_documents_do_not_show_the_workshop() -> None:
    """Users have no use for what was once wanted, nor for numbers of tasks."""
    traces = re.compile(r"\b(wanted|our bug|issue #?\d+|TODO|not yet investigated|front ends that)\b", re.I)
    for document in [path for path in texts() if path.suffix == ".md" and path.name != "decisions.md"]:
        found = traces.search(document.read_text())
        assert not found, f"{document}: {found and found[0]}"


def test_the_documents_name_files_that_there_are() -> None:
    named = re.compile(r"`((?:buckets|jobqueue|clients|tests|docs|conf)/[\w./-]+\.\w+)`")
    for document in [path for path in texts() if path.suffix == ".md" and path.name != "CHANGELOG.md"]:
        for path in named.findall(document.read_text()):
            assert (ROOT / path).exists(), f"{document}: {path}"


def test_nothing_tells_users_to_install_a_name_that_is_not_ours() -> None:
    """No registry has our names yet; whoever registers one would be installed by our users."""
    assert _BY_NAME.search("pip install 'jobqueue[spark]'") and _BY_NAME.search("pip install -U jobqueue-client")
    assert not _BY_NAME.search("pip install ./clients/python  # the client of jobqueue")
    for path in texts():
        found = _BY_NAME.search(path.read_text())
        assert path == Path(__file__) or not found, f"{path}: {found and found[0]}"


def test_examples_use_topics_of_their_own() -> None:
    """Somebody who tries one at a service that works must not pop, delete or purge real jobs. Those of `testing.md`
    run on a service of their own."""
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name != "testing.md"]
    documents = [ROOT / "README.md", *pages, ROOT / "clients" / "spark" / "README.md"]
    texts_with_examples = [path.read_text() for path in (*documents, ROOT / "jobqueue" / "cli" / "main.py")]
    found = [topic for text in texts_with_examples for pattern in _TOPICS for topic in pattern.findall(text)]
    assert len(found) > 30
    assert [topic for topic in found if not topic.startswith("example-")] == []
