"""Refusals that wait for an answer, and grants of paths."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from agentfense import (
    AskScope,
    AsyncSandbox,
    Permission,
    Sandbox,
    SandboxError,
    SandboxNotRunningError,
)


def test_a_refused_open_waits_for_an_answer(home: Path, project: Path) -> None:
    with Sandbox.from_local(project, "view-only", ask_timeout=300) as sandbox:
        assert sandbox.info.ask_timeout == timedelta(minutes=5)
        none = sandbox.policy.asks()
        assert (none.asks, none.version) == ([], "")
        read = []
        reader = threading.Thread(target=lambda: read.append(sandbox.run("cat README.md").stdout))
        reader.start()
        waiting = sandbox.policy.asks(wait=60, after=none)
        (ask,) = waiting.asks
        assert (ask.path, ask.permission, ask.needed) == ("README.md", Permission.VIEW, Permission.READ)
        assert ask.waiting == 1 and ask.program == "cat" and ask.host == "" and ask.until is not None
        with pytest.raises(ValueError):
            sandbox.policy.answer(ask, True, "always")
        sandbox.policy.answer(ask, True, AskScope.SANDBOX)
        reader.join()
        assert read == [(project / "README.md").read_text()]
        assert sandbox.policy.asks(wait=60, after=waiting).asks == []
        with pytest.raises(SandboxError, match="waits no longer"):
            sandbox.policy.answer(ask, False)
        assert [grant.path for grant in sandbox.refresh().info.grants] == ["README.md"]
        sandbox.stop()
        with pytest.raises(SandboxNotRunningError):
            sandbox.policy.asks(wait=1)
        assert sandbox.update(ask_timeout=0).info.ask_timeout is None
        assert sandbox.update(ask_timeout=60).info.ask_timeout == timedelta(minutes=1)
        assert sandbox.update(ask_timeout=timedelta(0)).info.ask_timeout is None


async def test_paths_are_granted(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project, "view-only") as sandbox:
        assert (await sandbox.run("cat main.py")).exit_code == 1
        (grant,) = await sandbox.policy.grant_path("main.py", Permission.READ, grant_for=timedelta(hours=1))
        assert (grant.path, grant.directory, grant.permission) == ("main.py", False, Permission.READ)
        assert grant.until is not None
        assert (await sandbox.run("cat main.py")).exit_code == 0
        assert await sandbox.policy.revoke_path("main.py") == []
        with pytest.raises(SandboxError, match="not granted"):
            await sandbox.policy.revoke_path("main.py")
        with pytest.raises(SandboxError, match="does not ask"):
            await sandbox.policy.asks()
