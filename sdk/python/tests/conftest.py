"""One real server for all tests: the package starts it, in a state directory of the tests."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import AsyncIterator, Iterator

import pytest
from dockerd import IMAGE, Daemon, why_not
from leaks import LIMIT, counted, left_in, processes_of, wait_until

from agentfense import AsyncSandbox, AsyncSandboxClient, RuntimeType, Sandbox, SandboxClient

__all__ = ["LIMIT", "check_clean", "need", "on_both", "processes_of", "root", "stop_server", "wait_until"]

REQUIRED = os.environ.get("AGENTFENSE_REQUIRE", "").split(",")
"""What may not be missing, as for the Go tests (internal/lib/testenv)."""


def need(name: str, why_not: str) -> None:
    """Skip a test for want of something, or fail it where AGENTFENSE_REQUIRE asks for that. It is there if "" is."""
    if why_not and name in REQUIRED:
        pytest.fail(f"needs {name}, which AGENTFENSE_REQUIRE asks for: {why_not}")
    if why_not:
        pytest.skip(f"needs {name}: {why_not}")


def root() -> None:
    need("root", "" if os.geteuid() == 0 else "not run as root")


def stop_server(home: Path) -> None:
    """End the server of a state directory, and see that nothing stays."""
    state = home / "server.json"
    if state.exists():
        os.kill(json.loads(state.read_text())["pid"], signal.SIGTERM)
    wait_until("no process stays", lambda: not processes_of(home))
    assert not state.exists()


def check_clean(home: Path) -> None:
    """Fail if a sandbox, a codebase, a mount or a control group is left."""
    assert left_in(home) == {}


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """Where all that is temporary is made: nothing may stay of it, nor of the tests' processes."""
    with counted() as directory:
        yield directory


@pytest.fixture(scope="session", autouse=True)
def counts(base: Path) -> None:
    """Count for all tests."""


@pytest.fixture(scope="session")
def home(base: Path) -> Iterator[Path]:
    binary = os.environ.get("AGENTFENSE_BINARY")
    assert binary and os.access(binary, os.X_OK), "set AGENTFENSE_BINARY to the built program: run make python"
    for name in [name for name in os.environ if name.startswith("AGENTFENSE_") and name != "AGENTFENSE_BINARY"]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="af-") as directory:
        home = Path(directory).resolve() / "home"
        os.environ["AGENTFENSE_HOME"] = str(home)
        # Where a daemon would be: tests that need one start it.
        os.environ["AGENTFENSE_RUNTIME_DOCKER_HOST"] = f"unix://{base}/docker/socket"
        os.environ["AGENTFENSE_RUNTIME_DOCKER_DEFAULT_IMAGE"] = IMAGE
        os.environ["AGENTFENSE_NETWORK_PUBLISH"] = "true"
        os.environ["AGENTFENSE_NETWORK_ALLOW"] = "example.com *.example.org"
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


@pytest.fixture(scope="session")
def docker(base: Path) -> Iterator[Daemon]:
    """A docker daemon of the tests' own, where the server looks for one. No container may stay."""
    need("docker", why_not())
    with Daemon(base / "docker") as daemon:
        yield daemon
        assert daemon.containers() == []


on_both = pytest.mark.parametrize(
    "runtime",
    [pytest.param("bwrap", marks=pytest.mark.anyone), pytest.param("docker", marks=pytest.mark.docker)],
    indirect=True,
)
"""Runs a test on both runtimes, and on bwrap as an ordinary user too. The image has busybox alone."""


@pytest.fixture
def runtime(request: pytest.FixtureRequest, home: Path) -> RuntimeType:
    """What the sandbox runs on."""
    chosen = RuntimeType(getattr(request, "param", "bwrap"))
    if chosen is RuntimeType.DOCKER:
        request.getfixturevalue("docker")
    return chosen


@pytest.fixture
def sandbox(runtime: RuntimeType, project: Path) -> Iterator[Sandbox]:
    """A linked directory in which everything may be written."""
    with Sandbox.from_local(project, preset="full-access", runtime=runtime) as sandbox:
        yield sandbox


@pytest.fixture
async def async_sandbox(runtime: RuntimeType, project: Path) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.from_local(project, preset="full-access", runtime=runtime) as sandbox:
        yield sandbox
