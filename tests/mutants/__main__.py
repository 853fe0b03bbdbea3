"""`python -m tests.mutants`: puts each fault into a copy of the checkout, and runs the test file that has to fail then.

Prints a line for each; exits with 1 if one was not caught, or does not apply any longer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import ROOT, Mutant, mutants

_COPIES = 2  # that are tested at the same time
_PATIENCE_S = 600
_PASSED, _FAILED = 0, 1  # pytest's exit codes


def copy(folder: Path) -> Path:
    """A copy of the files that git knows, or would add."""
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def judged(mutant: Mutant, tree: Path) -> str:
    """Whether a fault was caught in a copy, in a word; the copy is as it was afterwards."""
    file, before = tree / mutant.file, (tree / mutant.file).read_text()
    try:
        file.write_text(mutant.mutated(tree))
    except (ValueError, SyntaxError) as error:
        return f"DOES NOT APPLY: {error}"
    packages = os.pathsep.join(str(tree / "clients" / each) for each in ("python", "spark"))
    command = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.caught_by)
    # A session of its own, so that what the tests have started ends with them.
    ran = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": packages},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = ran.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return "HANGS"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)
        ran.communicate()
        file.write_text(before)
    words = {_PASSED: "SURVIVED", _FAILED: "caught"}
    return words.get(ran.returncode) or f"NO TEST RAN: {said[-500:]}"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="part of the path of the files to change; all by default")
    wanted = [mutant for mutant in mutants() if parser.parse_args(given).only in mutant.file]
    with tempfile.TemporaryDirectory(prefix="jq-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(_COPIES):
            trees.put(copy(Path(folder) / str(number)))

        def judge(mutant: Mutant) -> str:
            tree = trees.get()
            try:
                found = judged(mutant, tree)
            finally:
                trees.put(tree)
            print(f"{found:10} {mutant.file}: {mutant.says} ({mutant.caught_by})", flush=True)
            return found

        with ThreadPoolExecutor(_COPIES) as pool:
            found = list(pool.map(judge, wanted))
    caught = found.count("caught")
    print(f"{caught} of {len(found)} faults were caught")
    return 0 if found and caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
