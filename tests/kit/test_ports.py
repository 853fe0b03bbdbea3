"""Each process takes its ports from a share of its own."""

from __future__ import annotations

import subprocess
import sys

_CODE = "from tests.kit.ports import free_ports; print(*free_ports(50), flush=True); input()"


def test_processes_that_live_at_the_same_time_share_no_ports() -> None:
    command = (sys.executable, "-c", _CODE)
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    shares = []
    for process in processes:
        assert process.stdout
        shares.append({(int(port) - 12_000) // 500 for port in process.stdout.readline().split()})
    for process in processes:
        assert process.communicate("\n")[0] == "" and process.returncode == 0
    assert len(set.union(*shares)) == len(shares) and all(len(share) == 1 for share in shares)
