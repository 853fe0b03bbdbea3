"""Run a unit's ExecStart in its sandbox, as near to it as this can be had without systemd.

    unshare --mount python -m tests.deploy.systemd.sandbox UNIT INSTANCE FOLDER

The root is a read-only file system of its own with the host's programs; in it FOLDER/environment is /opt/jobqueue,
FOLDER/etc is /etc/jobqueue, FOLDER/state the state directory, and FOLDER/manager holds the socket `notify`. Here are
DynamicUser, ProtectSystem, ProtectHome, PrivateTmp, PrivateDevices, ProtectProc, ProcSubset, NoNewPrivileges, no
capabilities, LoadCredential, the limits, UMask, and the filters of seccomp.py. PrivateUsers and IPAddressDeny are not.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.deploy.systemd.seccomp import restrict
from tests.deploy.systemd.unit import Unit

USER = 61_200
"""One of those that DynamicUser takes."""
_ETC = ("passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "host.conf", "ld.so.cache", "localtime", "ssl")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


def main() -> None:
    file, instance, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).resolve()
    unit = Unit(file, instance)
    capabilities = range(int(_LAST_CAPABILITY.read_text()) + 1)
    command, environment = unit.one("ExecStart").split(), _environment(unit)
    root = Path(tempfile.mkdtemp(prefix="root-", dir=folder))
    _build(root, folder, unit)
    os.chroot(root)
    os.chdir("/")
    _limit(resource.RLIMIT_NOFILE, int(unit.one("LimitNOFILE")))
    _limit(resource.RLIMIT_CORE, int(unit.one("LimitCORE")))
    os.umask(int(unit.one("UMask"), 8))
    libc = ctypes.CDLL(None)
    for each in capabilities:
        assert libc.prctl(_PR_CAPBSET_DROP, each, 0, 0, 0) == 0
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    restrict(unit)
    os.execve(command[0], command, environment)  # noqa: S606  # the program of the unit


def _limit(name: int, most: int) -> None:
    """Set a limit, if this machine does not have a lower one already: a container may not raise it."""
    hard = resource.getrlimit(name)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(name, (most, most))


def _environment(unit: Unit) -> dict[str, str]:
    """What systemd sets, and what the test asks for as a drop-in would: JOBQUEUE_…"""
    given = dict(line.split("=", 1) for line in unit.all("Environment"))
    asked = {name: value for name, value in os.environ.items() if name.startswith("JOBQUEUE_")}
    system = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
    system["CREDENTIALS_DIRECTORY"] = unit.credentials
    if unit.all("Type") == ["notify"]:
        system["NOTIFY_SOCKET"] = "/run/systemd/notify"
        system |= {"WATCHDOG_USEC": f"{unit.one('WatchdogSec')}000000", "WATCHDOG_PID": str(os.getpid())}
    return system | given | asked


def _build(root: Path, folder: Path, unit: Unit) -> None:
    _mount(root, "-t", "tmpfs", "-o", "nosuid,nodev,mode=755")
    _programs(root)
    _configuration(root, folder / "etc")
    _devices(root)
    _bind(folder / "environment", root / "opt/jobqueue")
    _bind(folder / "manager", root / "run/systemd")
    for name in unit.all("StateDirectory"):
        _state(root, folder / "state", name)
    _credentials(root, folder / "etc", unit)
    for name in ("tmp", "var/tmp"):
        (root / name).mkdir(parents=True)
        _mount(root / name, "-t", "tmpfs", "-o", "nosuid,nodev,mode=1777")
    (root / "proc").mkdir()
    _mount(root / "proc", "-t", "proc", "-o", "hidepid=invisible,subset=pid", kind="proc")
    (root / "sys").mkdir()
    _bind(Path("/sys"), root / "sys", recursive=True)
    _mount(root, "-o", "remount,ro")


def _programs(root: Path) -> None:
    """Those of the system and, where it is elsewhere, this Python."""
    for name in ("usr", "bin", "sbin", "lib", "lib64"):
        host = Path("/", name)
        if host.is_symlink():
            (root / name).symlink_to(host.readlink())
        elif host.exists():
            _bind(host, root / name)
    if not sys.base_prefix.startswith("/usr"):
        _bind(Path(sys.base_prefix), root / sys.base_prefix.removeprefix("/"))


def _configuration(root: Path, own: Path) -> None:
    etc = root / "etc"
    etc.mkdir()
    for host in (Path("/etc", name) for name in _ETC):
        if host.is_dir():
            shutil.copytree(host, etc / host.name, symlinks=True)
        elif host.exists():
            shutil.copy(host, etc)
    _bind(own, etc / "jobqueue")


def _devices(root: Path) -> None:
    (root / "dev").mkdir()
    for name in _DEVICES:
        (root / "dev" / name).touch()
        _mount(root / "dev" / name, "--bind", kind=f"/dev/{name}")


def _state(root: Path, folder: Path, name: str) -> None:
    """As with DynamicUser: /var/lib/NAME points into a folder that only root may enter from outside."""
    folder.mkdir(exist_ok=True)
    os.chown(folder, USER, USER)
    folder.chmod(0o700)
    place = root / "var/lib/private" / name
    place.mkdir(parents=True)
    _mount(place, "--bind", kind=str(folder))
    (root / "var/lib" / name).symlink_to(f"private/{name}")


def _credentials(root: Path, etc: Path, unit: Unit) -> None:
    """Copies that nobody but the user of the unit may read. A file that is missing ends the start."""
    place = root / unit.credentials.removeprefix("/")
    place.mkdir(parents=True)
    for line in unit.all("LoadCredential"):
        name, _, source = line.partition(":")
        (place / name).write_bytes((etc / Path(source).relative_to("/etc/jobqueue")).read_bytes())
        (place / name).chmod(0o400)
        os.chown(place / name, USER, USER)
    place.chmod(0o500)
    os.chown(place, USER, USER)


def _bind(source: Path, target: Path, *, recursive: bool = False) -> None:
    """Show a folder, read-only."""
    target.mkdir(parents=True, exist_ok=True)
    _mount(target, "--rbind" if recursive else "--bind", kind=str(source))
    _mount(target, "-o", "remount,bind,ro")


def _mount(place: Path, *options: str, kind: str = "tmpfs") -> None:
    subprocess.run(["/usr/bin/mount", *options, kind, str(place)], check=True, timeout=20)


if __name__ == "__main__":
    main()
