"""What a unit allows of the kernel, set for this process and all that it starts, by libseccomp as systemd does it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess

from tests.deploy.systemd.unit import Unit

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_EQUAL, _MASKED_EQUAL = 4, 7
_PROT_WRITE, _PROT_EXEC, _SHM_EXEC = 2, 4, 0o100000
_FAMILIES = range(1, 46)


class _Condition(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class _Filter:
    """One filter: `otherwise` is what happens to a call that no rule is about."""

    def __init__(self, otherwise: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(otherwise)))
        assert self._context

    def add(self, action: int, call: str, *conditions: _Condition) -> None:
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # another architecture's
            return
        array = (_Condition * len(conditions))(*conditions)
        code = self._library.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), number, len(conditions), array
        )
        assert code == 0, (call, os.strerror(-code))

    def load(self) -> None:
        code = self._library.seccomp_load(self._context)
        assert code == 0, os.strerror(-code)


def restrict(unit: Unit) -> None:
    """Load all filters of the unit; the process then cannot gain privileges any more. Needs no library from then on, so
    it may come after a change of the root."""
    for each in _filters(unit):
        each.load()


def _filters(unit: Unit) -> list[_Filter]:
    filters = [_families(unit.all("RestrictAddressFamilies"))]
    if unit.has("MemoryDenyWriteExecute"):
        filters.append(_no_new_code())
    filters.append(_calls(unit))  # the last: it may refuse to load another
    return filters


def _calls(unit: Unit) -> _Filter:
    """Only the calls of SystemCallFilter."""
    first, *others = unit.all("SystemCallFilter")
    allowed = _names(first.split())
    for line in others:
        assert line.startswith("~")
        allowed -= _names(line.removeprefix("~").split())
    refusals = unit.all("SystemCallErrorNumber")
    made = _Filter(_refused(getattr(errno, refusals[0])) if refusals else _KILL)
    for name in sorted(allowed | _names(["@default"])):
        made.add(_ALLOW, name)
    return made


def _no_new_code() -> _Filter:
    """MemoryDenyWriteExecute: memory is never written to and executed."""
    made, refused = _Filter(_ALLOW), _refused(errno.EPERM)
    both = _PROT_WRITE | _PROT_EXEC
    made.add(refused, "mmap", _Condition(2, _MASKED_EQUAL, both, both))
    for call in ("mprotect", "pkey_mprotect"):
        made.add(refused, call, _Condition(2, _MASKED_EQUAL, _PROT_EXEC, _PROT_EXEC))
    made.add(refused, "shmat", _Condition(2, _MASKED_EQUAL, _SHM_EXEC, _SHM_EXEC))
    return made


def _families(lines: list[str]) -> _Filter:
    """Only sockets of the named families."""
    made = _Filter(_ALLOW)
    allowed = {getattr(socket, name) for line in lines for name in line.split()}
    for family in _FAMILIES if allowed else ():
        if family not in allowed:
            made.add(_refused(errno.EAFNOSUPPORT), "socket", _Condition(0, _EQUAL, family, 0))
    return made


def _refused(error: int) -> int:
    return 0x00050000 | error


def _names(words: list[str]) -> set[str]:
    """The names of calls, those of sets (`@system-service`) and of the sets in these included."""
    found: set[str] = set()
    for word in words:
        if word.startswith("@"):
            found |= _names(_members(word))
        else:
            found.add(word)
    return found


def _members(name: str) -> list[str]:
    command = ("/usr/bin/systemd-analyze", "syscall-filter", "--no-pager", name)
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    lines = (line.strip() for line in said.stdout.splitlines()[1:])
    return [line for line in lines if line and not line.startswith("#")]
