"""The file of `jobqueue deliver`: what is wrong is told with the file, the sink and the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobqueue.errors import SettingsError
from jobqueue.sinks.pump.file import load

GOOD = 'kind = "redis-stream"\ntopics = ["t"]\nurl = "redis://127.0.0.1"'


def written(folder: Path, text: str) -> str:
    (folder / "sinks.toml").write_text(text)
    return str(folder / "sinks.toml")


def refusal(folder: Path, text: str, **environment: str) -> str:
    """What is said of a file, without its path."""
    path = written(folder, text)
    with pytest.raises(SettingsError) as refused:
        load(path, environment)
    return str(refused.value).replace(path, "FILE")


A = "[sinks.a]\n"
BARE = "[sinks.a]\nkind = 'redis-stream'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "FILE: it must have 1 to 50 tables [sinks.NAME]"),
        ("x = [", "FILE is not TOML: Invalid value (at end of document)"),
        ("urll = 'x'", "FILE: urll is unknown; did you mean url?"),
        ("[sinks.'a b']\n" + GOOD, "FILE: sinks.a b: the name of a sink must be 1 to 40 characters"),
        (A + GOOD + "\nin_fligt = 1", "FILE: sinks.a.in_fligt is unknown; did you mean in_flight?"),
        (A + GOOD + "\nin_flight = 0", "FILE: sinks.a.in_flight: expected `int` >= 1"),
        (BARE + "url = 'redis://h'", "FILE: sinks.a.topics is missing"),
        (BARE + "topics = ['t t']\nurl = 'redis://h'", "FILE: sinks.a.topics: 't t': a topic must"),
        (BARE + "topics = ['t']\nurl = 'http://h'", "FILE: sinks.a.url must begin with redis://"),
        (A + GOOD + "\nstream = 'x{toppic}'", "FILE: sinks.a.stream has {toppic}; it may have {topic}, {id}"),
        (A + GOOD + "\norder = 'strict'\nin_flight = 2", 'sinks.a.in_flight must be 1 where order = "strict"'),
        (A + GOOD + "\n[sinks.b]\n" + GOOD, "FILE: sinks.b.topics: t is in sinks.a too; a topic belongs to one"),
        (A + GOOD + "\nheaders = {jobqueue-id = 'x'}", "FILE: sinks.a.headers: 'jobqueue-id' may not be set"),
        (A + GOOD + "\ndone = 'acked'", 'FILE: sinks.a: group and done = "acked" go together'),
        (A + GOOD + "\nbody = 'mykit'", "FILE: sinks.a.body must be one of as-is, text, envelope"),
        (A + GOOD + "\ntls_cert = 'x'", "FILE: sinks.a: tls_cert and tls_key go together"),
        (A + "kind = 'kafak'", "did you mean kafka?"),
        (A + GOOD.replace("127.0.0.1", "${HOST}"), "${HOST} is empty: set HOST or HOST_FILE in the environment"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(text: str, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, text)


def test_what_stands_for_a_part_of_a_url_is_encoded_and_a_file_may_hold_it(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss/word\n")
    text = "[sinks.a]\n" + GOOD.replace("127.0.0.1", "u:${PASSWORD}@h/0")
    file = load(written(tmp_path, text), {"PASSWORD_FILE": str(tmp_path / "password")})
    assert file.sinks["a"].url == "redis://u:p%40ss%2Fword@h/0"  # type: ignore[attr-defined]


def test_the_example_of_the_docs_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "sinks.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    assert len(blocks) == 2
    for block in blocks:
        assert load(written(tmp_path, block), {"RABBIT_USER": "u", "RABBIT_PASSWORD": "p"}).sinks
