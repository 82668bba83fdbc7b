"""One real server for all tests: the one that the package starts by itself, in a state directory of its own."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import AsyncIterator, Iterator, List

import pytest

from agentfense import AsyncSandbox, AsyncSandboxClient, Sandbox, SandboxClient

LIMIT = 60.0
"""Seconds after which a wait has failed."""


def wait_until(what: str, true: object, limit: float = LIMIT) -> None:
    """Wait until ``true()``. A condition, not a time: the limit only ends a test that has failed."""
    assert callable(true)
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"not within {limit:g} s: {what}"
        time.sleep(0.01)


def processes_of(home: Path) -> List[int]:
    """Return the processes that work for the state directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"AGENTFENSE_HOME={home}".encode() in environ and b"agentfense" in command:
                found.append(int(entry.name))
    return found


def stop_server(home: Path) -> None:
    """End the server of a state directory, and see that nothing stays."""
    state = home / "server.json"
    if state.exists():
        os.kill(json.loads(state.read_text())["pid"], signal.SIGTERM)
    wait_until("no process stays", lambda: not processes_of(home))
    assert not state.exists()


def check_clean(home: Path) -> None:
    """Fail if a sandbox, a codebase, a process or a mount is left."""
    sandboxes = home / "sandboxes"
    assert sorted(p.name for p in sandboxes.iterdir() if not p.name.startswith(".")) == []
    assert str(home) not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    binary = os.environ.get("AGENTFENSE_BINARY")
    assert binary and os.access(binary, os.X_OK), "set AGENTFENSE_BINARY to the built program: run make python"
    for name in [name for name in os.environ if name.startswith("AGENTFENSE_") and name != "AGENTFENSE_BINARY"]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="af-") as directory:
        home = Path(directory).resolve() / "home"
        os.environ["AGENTFENSE_HOME"] = str(home)
        yield home
        if home.exists():
            try:
                check_clean(home)
            finally:
                stop_server(home)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory such as somebody works in."""
    root = tmp_path / "project"
    for name, content in {
        "main.py": "print('hello')\n",
        "README.md": "# project\n",
        ".env": "TOKEN=secret\n",
        "src/lib.py": "x = 1\n",
        "secrets/key.txt": "secret\n",
        "output/.keep": "",
        "build/out.o": "object\n",
        ".gitignore": "build/\n",
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("main.py")
    (root / "empty").mkdir()
    return root


@pytest.fixture
def client(home: Path) -> Iterator[SandboxClient]:
    with SandboxClient() as client:
        yield client


@pytest.fixture
async def async_client(home: Path) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient() as client:
        yield client


@pytest.fixture
def sandbox(home: Path, project: Path) -> Iterator[Sandbox]:
    """A linked directory in which everything may be written."""
    with Sandbox.from_local(project, preset="full-access") as sandbox:
        yield sandbox


@pytest.fixture
async def async_sandbox(home: Path, project: Path) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.from_local(project, preset="full-access") as sandbox:
        yield sandbox
