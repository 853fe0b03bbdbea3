"""The faults of tests/mutants apply to the code as it is."""

from __future__ import annotations

from tests.mutants import ROOT, mutants


def test_each_fault_applies_and_its_test_file_is_there() -> None:
    found = mutants()
    assert found
    for mutant in found:
        assert mutant.mutated()
        assert (ROOT / mutant.caught_by).is_file(), mutant.caught_by


def test_each_fault_is_another_one() -> None:
    found = [(mutant.file, mutant.line, mutant.instead) for mutant in mutants()]
    assert len(set(found)) == len(found)
