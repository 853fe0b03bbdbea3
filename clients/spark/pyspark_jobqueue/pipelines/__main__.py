"""`python -m pyspark_jobqueue.pipelines [NAME]` prints the paths of all pipelines, or of one, for spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path

FILES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.py")) if not path.stem.startswith("_")}

if __name__ == "__main__":
    names = sys.argv[1:] or list(FILES)
    if unknown := set(names) - FILES.keys():
        sys.exit(f"error: unknown pipeline {unknown.pop()!r}; expected one of {', '.join(FILES)}")
    print(*(FILES[name] for name in names), sep="\n")
