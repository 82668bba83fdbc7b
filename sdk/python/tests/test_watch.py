"""Watching the files of a sandbox."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, List, Set

import pytest

from agentfense import AsyncSandbox, ChangeKind, Sandbox, SandboxClient, SandboxNotRunningError


def until(watch: Any, wanted: Set[str]) -> List[str]:
    """Read until all that is wanted has been told; return all that has."""
    told: List[str] = []
    for change in watch:
        told.append(f"{change.kind.value} {change.path}")
        if wanted <= set(told):
            return told
    raise AssertionError(f"the watch ended with {told}")


def test_changes_by_commands(sandbox: Sandbox) -> None:
    with (
        sandbox.files.watch(timeout=60) as everywhere,
        sandbox.files.watch("/workspace/src", False, timeout=60) as flat,
    ):
        sandbox.run("echo x > src/new.py; mkdir src/deep; echo y > src/deep/er; rm README.md; mv main.py other.py")
        sandbox.run("echo x >> src/lib.py")
        expected = {
            "created src/new.py",
            "created src/deep",
            "deleted README.md",
            "deleted main.py",
            "created other.py",
        }
        until(everywhere, expected | {"created src/deep/er", "modified src/lib.py"})
        told = until(flat, {"created src/new.py", "created src/deep", "modified src/lib.py"})
        assert {change.split()[1] for change in told} == {"src/new.py", "src/deep", "src/lib.py"}
    assert list(everywhere) == []


def test_changes_by_the_host(sandbox: Sandbox, project: Path) -> None:
    sandbox.run("ls src")
    with sandbox.files.watch("src", timeout=60) as watch:
        (project / "src/lib.py").write_text("x = 2\n")
        change = next(watch)
        assert (change.path, change.kind) == ("src/lib.py", ChangeKind.MODIFIED)


def test_a_watch_ends_at_its_timeout(sandbox: Sandbox) -> None:
    assert list(sandbox.files.watch(timeout=0.2)) == []
    with pytest.raises(ValueError, match="timeout"):
        sandbox.files.watch(timeout=0)


def test_closing_ends_a_waiting_thread(sandbox: Sandbox) -> None:
    watch = sandbox.files.watch()
    told: List[Any] = []
    thread = threading.Thread(target=lambda: told.extend(watch))
    thread.start()
    watch.close()
    thread.join(60)
    assert not thread.is_alive() and told == []


def test_the_sandbox_stops(sandbox: Sandbox, client: SandboxClient) -> None:
    with sandbox.files.watch() as watch:
        sandbox.stop()
        assert list(watch) == []
    with pytest.raises(SandboxNotRunningError):
        next(sandbox.files.watch())


def test_changes_of_hidden_paths_are_not_reported(home: Path, project: Path) -> None:
    with Sandbox.from_local(project, preset="development") as sandbox:
        sandbox.run("ls")
        with sandbox.files.watch(timeout=60) as watch:
            (project / "secret.key").write_text("x")
            sandbox.run("echo x > own.pem; echo x > seen")  # own.pem is the command's own
            seen = until(watch, {"created seen"})
            assert "created own.pem" in seen and not [change for change in seen if "secret.key" in change]


async def test_async(async_sandbox: AsyncSandbox) -> None:
    async with async_sandbox.files.watch("src", timeout=60) as watch:
        await async_sandbox.run("echo x > src/new.py; echo x > elsewhere")
        change = await watch.__anext__()
        assert (change.path, change.kind) == ("src/new.py", ChangeKind.CREATED)
    assert [change async for change in async_sandbox.files.watch(timeout=0.2)] == []


async def test_async_closing_and_cancelling(async_sandbox: AsyncSandbox) -> None:
    async def collect(watch: Any) -> List[Any]:
        return [change async for change in watch]

    async with async_sandbox.files.watch() as watch:
        closed = asyncio.ensure_future(collect(watch))
        await asyncio.sleep(0)
        await watch.aclose()
        assert await asyncio.wait_for(closed, 60) == []
    cancelled = asyncio.ensure_future(collect(async_sandbox.files.watch()))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(cancelled, 60)
    await async_sandbox.stop()
    with pytest.raises(SandboxNotRunningError):
        await collect(async_sandbox.files.watch())
