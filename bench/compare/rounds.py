"""Runs the works on all systems in turns (A B A B), and keeps the results."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare import NOT_MEASURED, CannotError, Late, MissingError, System, TooSlowError
from bench.compare.load.parked_consumers import allow_files
from bench.compare.works import GROWING, Figures, Outcome, Sizes, Work, figures

_TRIES = 3
FAILED = "failed"  # prefix for works that went wrong
_FILES = 1000  # open files that a system needs besides the connections of its consumers


def growing(work: str, pending: int) -> str:
    """The name of a work with this many jobs pending."""
    return f"{work}@{pending}"


@dataclass
class Found:
    """By work and system: the figures of each round, or the reason why there are none."""

    figures: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)
    words: dict[str, dict[str, str]] = field(default_factory=dict)
    late_ms: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # from all rounds together
    missing: dict[str, str] = field(default_factory=dict)  # systems that could not be started
    versions: dict[str, str] = field(default_factory=dict)

    def keep(self, work: str, system: str, outcome: Outcome) -> None:
        self.figures.setdefault(work, {}).setdefault(system, []).append(figures(outcome))
        if isinstance(outcome, Late):
            self.late_ms.setdefault(work, {}).setdefault(system, []).extend(outcome.ms)

    def tell(self, work: str, system: str, why: str) -> None:
        """Record why there is no figure; results of earlier rounds no longer count."""
        self.words.setdefault(work, {})[system] = why
        self.figures.get(work, {}).pop(system, None)
        self.late_ms.get(work, {}).pop(system, None)


class Rounds:
    """Starts and stops the systems, with `with`."""

    def __init__(self, systems: Sequence[System], sizes: Sizes, folder: Path) -> None:
        self.found = Found()
        self._systems, self._sizes, self._folder = list(systems), sizes, folder
        self._begun = time.monotonic()

    def __enter__(self) -> Rounds:
        allow_files(2 * self._sizes.parked + _FILES)  # every system inherits it
        for system in list(self._systems):
            folder = self._folder / system.NAME
            folder.mkdir()
            try:
                self.found.versions[system.NAME] = system.version()
                system.start(folder)
            except MissingError as error:
                self._drop(system, str(error))
            except Exception as error:  # the others go on
                self._drop(system, f"it did not start: {error}")
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        for system in self._systems:
            system.stop()

    def _drop(self, system: System, why: str) -> None:
        self.found.missing[system.NAME] = why
        self._systems.remove(system)
        system.stop()

    def run(self, works: Sequence[Work]) -> None:
        """Run each work on all systems, then the next work, for as many rounds as fit in the time; then what is done
        only once."""
        for number in range(self._sizes.rounds):
            if number and self._elapsed() * (number + 1) / number > self._sizes.works_s:
                break
            for work in works:
                if not work.once:
                    self._round(work, f"round {number + 1}")
        for work in works:
            if work.once:
                self._round(work, "once")

    def _round(self, work: Work, what: str) -> None:
        """Run a work on all systems, which are empty before and after."""
        for system in list(self._systems):
            self._measure(work.name, work, system, what)
            if work.leaves or work.name in self.found.words:
                self._clear(system)

    def grow(self) -> None:
        """Measure all systems with more and more pending jobs, due far ahead."""
        have = 0
        for pending in self._sizes.pending:
            able = [] if self._late() else [each for each in self._systems if pending <= each.MOST_PENDING]
            self._too_many([system for system in self._systems if system not in able], pending)
            for system in able:
                system.fill(pending - have)
            have = pending
            self._growth_step(able, pending)
        for system in list(self._systems):
            self._clear(system)

    def _growth_step(self, systems: Sequence[System], pending: int) -> None:
        works = [work for work in GROWING if not work.most_only or pending == max(self._sizes.pending)]
        for number in range(self._sizes.growth_rounds):
            if number and self._late():
                break
            for work in works:
                for system in systems:
                    self._measure(growing(work.name, pending), work, system, f"{pending:,} pending")

    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def _late(self) -> bool:
        """Whether growth has to end."""
        return self._elapsed() > self._sizes.limit_s

    def _clear(self, system: System) -> None:
        try:
            system.clear()
        except Exception as error:  # the others go on
            print(f"  {system.NAME} is out, it could not be cleared: {error!r}", flush=True)
            self._systems.remove(system)
            system.stop()

    def _too_many(self, systems: Sequence[System], pending: int) -> None:
        for system in systems:
            for work in GROWING:
                why = "it takes too long for this bench" if system.MOST_PENDING else NOT_MEASURED
                self.found.tell(growing(work.name, pending), system.NAME, why)

    def _patiently(self, work: Work, system: System) -> Outcome:
        """Measure again if the machine was too busy to prepare the work in time."""
        for _ in range(_TRIES - 1):
            with suppress(TooSlowError):
                return work.measure(system, self._sizes)
        return work.measure(system, self._sizes)

    def _measure(self, name: str, work: Work, system: System, what: str) -> None:
        if system.NAME in self.found.words.get(name, {}):
            return
        begun = time.monotonic()
        gc.collect()
        gc.disable()  # a pause of the generator is not the system's fault
        try:
            outcome = self._patiently(work, system)
        except (CannotError, MissingError) as error:
            self.found.tell(name, system.NAME, str(error))
            return
        except Exception as error:
            self.found.tell(name, system.NAME, f"{FAILED}: {type(error).__name__}: {error}"[:300])
            print(f"  {system.NAME}, {work.title}: {error!r}", flush=True)
            return
        finally:
            gc.enable()
        self.found.keep(name, system.NAME, outcome)
        now = time.monotonic()
        numbers = ", ".join(f"{key} {value:,.4g}" for key, value in figures(outcome).items())
        print(
            f"{now - self._begun:5.0f} s  {work.title}, {what}, {system.NAME}: {numbers} ({now - begun:.1f} s)",
            flush=True,
        )
