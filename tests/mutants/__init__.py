"""Small, plausible faults, each with the test file that catches it: what the tests have to notice, whatever becomes of
them.

Each `[[mutant]]` of a `.toml` file here has

- `file`, and `line`: what stands in it exactly once, a line or several;
- `instead`: what the fault has there;
- `caught_by`: the test file that fails then;
- `says`: what would go wrong for whom.

If you move a line, move its mutant.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A fault. Paths are from the root of the checkout."""

    file: str
    line: str
    instead: str
    caught_by: str
    says: str

    def mutated(self, root: Path = ROOT) -> str:
        """The text of its file with the fault. Raises ValueError if the line is not there exactly once, and SyntaxError
        if Python could not load the file: then any test would fail."""
        text = (root / self.file).read_text()
        if (number := text.count(self.line)) != 1 or self.line == self.instead:
            raise ValueError(f"{self.file} has {number} times, not once: {self.line!r}")
        text = text.replace(self.line, self.instead)
        if self.file.endswith(".py"):
            compile(text, self.file, "exec")
        return text


def mutants() -> list[Mutant]:
    """All of them."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return [Mutant(**each) for file in files for each in tomllib.loads(file.read_text())["mutant"]]
