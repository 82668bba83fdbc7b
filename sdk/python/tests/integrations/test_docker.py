"""The integrations on the docker runtime: commands, files and refused operations. The image has busybox."""

from __future__ import annotations

import io

import pytest
from agents.sandbox import WorkspaceReadNotFoundError

from agentfense import AsyncSandbox, RuntimeType, Sandbox
from agentfense.integrations.deepagents import SandboxBackend
from agentfense.integrations.openai_agents import SandboxSession

pytestmark = [pytest.mark.docker, pytest.mark.parametrize("runtime", ["docker"], indirect=True)]


def test_the_backend(sandbox: Sandbox) -> None:
    assert sandbox.runtime is RuntimeType.DOCKER
    backend = SandboxBackend(sandbox)
    ran = backend.execute("cat main.py; cat absent; exit 3")
    assert "print('hello')" in ran.output and "No such file" in ran.output and ran.exit_code == 3
    assert backend.write("/workspace/new/a.txt", "one\n").error is None
    assert "one" in str(backend.read("/workspace/new/a.txt"))


async def test_the_session(async_sandbox: AsyncSandbox) -> None:
    session = SandboxSession(async_sandbox, timeout=30)
    result = await session.exec("echo one; echo two >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"one\n", b"two\n", 3)
    await session.write("new/a.txt", io.BytesIO(b"\xff"))
    assert (await session.read("new/a.txt")).read() == b"\xff"
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read("absent")
