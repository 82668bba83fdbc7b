"""Leaks of tests: processes, mounts, control groups, containers, directories, and records of a server."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List

LIMIT = 60.0
"""Seconds after which a wait has failed."""

_MARK = "PYTEST_AGENTFENSE_RUN"
"""A variable that all our processes inherit, whatever becomes of their parents."""


def wait_until(what: str, true: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait until ``true()``. A condition, not a time: the limit only ends a test that has failed."""
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"not within {limit:g} s: {what}"
        time.sleep(0.01)


def _processes(has: Callable[[List[bytes], bytes], bool]) -> Dict[int, str]:
    """Return the other processes of whose environment and command line ``has`` is true."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if has(environ, command):
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def processes_of(home: Path) -> List[int]:
    """Return the processes that work for a state directory."""
    variable = f"AGENTFENSE_HOME={home}".encode()
    return list(_processes(lambda environ, command: variable in environ and b"agentfense" in command))


def mounts_of(directory: Path) -> List[str]:
    """Return the mounts that name a directory or what is below it."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]


def groups_of(home: Path) -> List[str]:
    """Return the control groups of all sandboxes that a state directory has ever had: each has an audit log."""
    names = {path.name.split(".")[0] for path in (home / "audit").glob("*.jsonl")}
    if not names:
        return []
    return [root for root, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(root) in names]


def left_in(home: Path) -> Dict[str, List[str]]:
    """Return what is left of a state directory's sandboxes and codebases, by what it is; nothing where all is well."""

    def names(of: str) -> List[str]:
        directory = home / of
        return [p.name for p in directory.iterdir() if p.name != "lock" and not p.name.startswith(".")]

    found = {of: sorted(names(of)) for of in ("sandboxes", "codebases") if (home / of).exists()}
    found["mounts"], found["control groups"] = mounts_of(home), groups_of(home)
    return {what: left for what, left in found.items() if left}


@contextmanager
def counted() -> Iterator[Path]:
    """Give a directory in which all that is temporary is made, and fail if anything stays, there or as a process."""
    base = Path(tempfile.mkdtemp(prefix="af-")).resolve()
    base.chmod(0o711)  # an ordinary user may have a directory in it
    before = {name: os.environ.get(name) for name in ("TMPDIR", _MARK)}
    children = set(_children())
    os.environ["TMPDIR"], os.environ[_MARK] = str(base), base.name
    tempfile.tempdir = None
    try:
        yield base
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        tempfile.tempdir = None
    mark = f"{_MARK}={base.name}".encode()
    end = time.monotonic() + LIMIT
    while True:
        left: Dict[str, object] = {
            "processes": _processes(lambda environ, command: mark in environ),
            "children": sorted(set(_children()) - children),
            "mounts": mounts_of(base),
            "directories": sorted(p.name for p in base.iterdir() if not p.name.startswith("pytest-of-")),
        }
        left = {what: those for what, those in left.items() if those}
        if not left or time.monotonic() > end:
            break
        time.sleep(0.02)
    assert not left, f"left by the tests: {left}"
    subprocess.run(["rm", "-rf", str(base)], check=True)


def _children() -> List[int]:
    """Return our own children, those that nobody has waited for too."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
