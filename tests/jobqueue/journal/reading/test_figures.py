"""The metrics of `journal run`: those of the operations guide, and no others."""

from __future__ import annotations

import re
import time

from prometheus_client import generate_latest

from jobqueue.journal.reading.figures import Figures
from tests.kit.service import ROOT


def test_the_operations_guide_names_every_metric_with_its_type_and_labels_and_no_other() -> None:
    figures = Figures()
    figures.told(1)
    figures.behind(0, 1.5, 2)
    figures.pour()
    text = generate_latest(figures.registry).decode()
    section = (ROOT / "docs/operations.md").read_text().partition("## Metrics of the journal")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `([a-z_]+)(?:\{(.*)\})?` \| (\w+) \|", section, re.M)
    assert {name: kind for name, _, kind in documented} == dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    labels = {name: label for name, label, _ in documented if label}
    assert all(re.search(rf'^{name}{{{label}="', text, re.M) for name, label in labels.items())


def test_what_never_happened_is_counted_from_the_start() -> None:
    figures = Figures()
    figures.pour()
    text = generate_latest(figures.registry).decode().splitlines()
    for name in ("gaps", "lost_entries", "epochs", "refused"):
        assert f"jobqueue_journal_{name}_total 0.0" in text


def test_a_shard_that_another_process_drains_has_no_lag_here() -> None:
    figures = Figures()
    figures.behind(3, 20.0, 7)
    figures.left(3)
    assert 'jobqueue_journal_lag_seconds{shard="3"} NaN' in generate_latest(figures.registry).decode()


def test_the_lag_grows_while_a_batch_waits_for_its_database() -> None:
    figures = Figures()
    figures.behind(0, 20.0, 7)
    with figures.writing(0):
        time.sleep(0.01)
        figures.pour()
    (lag,) = re.findall(r"^jobqueue_journal_lag_seconds.* (.*)$", generate_latest(figures.registry).decode(), re.M)
    assert float(lag) >= 20.01
