"""The session and the shell of the OpenAI Agents SDK: their interfaces, and its real runner with a scripted model."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, List

import pytest
from agents import Agent, RunConfig, RunContextWrapper, Runner, ShellTool
from agents.sandbox import (
    ExecTimeoutError,
    ExecTransportError,
    SandboxAgent,
    SandboxRunConfig,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.errors import ExecNonZeroError, InvalidManifestPathError
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest
from openai.types.responses import ResponseCustomToolCall
from openai.types.responses.response_function_shell_tool_call import Action, ResponseFunctionShellToolCall
from openai_agent import work

from agentfense import AsyncSandbox, FileDiff, SandboxError, SandboxNotFoundError
from agentfense.integrations.openai_agents import SandboxSession, shell_executor

RULES = [
    {"pattern": "locked.txt", "permission": "read", "priority": 50},
    {"pattern": "name-only.txt", "permission": "view", "priority": 50},
]


@pytest.fixture
async def sandbox(home: Path, project: Path) -> AsyncIterator[AsyncSandbox]:
    (project / "locked.txt").write_text("locked\n")
    (project / "name-only.txt").write_text("name\n")
    async with await AsyncSandbox.from_local(project, preset="development", permissions=RULES) as sandbox:
        yield sandbox


@pytest.fixture
def session(sandbox: AsyncSandbox) -> SandboxSession:
    return SandboxSession(sandbox, timeout=30)


def patch(text: str, call_id: str) -> ResponseCustomToolCall:
    return ResponseCustomToolCall(
        type="custom_tool_call", name="apply_patch", call_id=call_id, input=f"*** Begin Patch\n{text}*** End Patch\n"
    )


def answers(model: ScriptedModel) -> List[str]:
    assert model.last_call is not None and isinstance(model.last_call.input, list)
    items: List[Any] = list(model.last_call.input)
    return [str(item["output"]) for item in items if str(item.get("type", "")).endswith("_output")]


async def test_an_agent_reads_is_refused_changes_and_a_person_applies(home: Path, project: Path) -> None:
    update = "*** Update File: main.py\n@@\n-print('hello')\n+print('better')\n"
    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "cat main.py"}, call_id="1")],
            [function_call("exec_command", {"cmd": "cat .env; ls -a"}, call_id="2")],
            [patch(update, "3")],
            [patch("*** Update File: .env\n@@\n-TOKEN=secret\n+TOKEN=x\n", "4")],
            [function_call("exec_command", {"cmd": "python3 main.py; exit 3"}, call_id="5")],
            [function_call("exec_command", {"cmd": "sleep 2001", "yield_time_ms": 500}, call_id="6")],
            [assistant_message("done")],
        ]
    )
    seen: List[FileDiff] = []

    def approve(changes: List[FileDiff]) -> bool:
        assert (project / "main.py").read_text() == "print('hello')\n"
        seen.extend(changes)
        return True

    assert await work(model, str(project), "improve it", approve) == "done"
    said = answers(model)
    assert "print('hello')" in said[0]
    assert "No such file" in said[1] and "main.py" in said[1] and "\n.env" not in said[1]
    assert "not found" in said[3].lower() or "missing" in said[3].lower()
    assert "better" in said[4] and "exited with code 3" in said[4]
    assert "timed out after 0.500 seconds" in said[5]
    assert [change.path for change in seen] == ["main.py"] and "+print('better')" in seen[0].patch
    assert (project / "main.py").read_text() == "print('better')\n"
    assert (project / ".env").read_text() == "TOKEN=secret\n"


async def test_the_shell_tool_runs_in_the_sandbox(sandbox: AsyncSandbox) -> None:
    call = ResponseFunctionShellToolCall(
        id="s", call_id="s", type="shell_call", status="completed", action=Action(commands=["cat main.py", "cat .env"]),
        environment=None,
    )  # fmt: skip
    model = ScriptedModel([[call], [assistant_message("done")]])
    agent = Agent(name="coder", model=model, tools=[ShellTool(executor=shell_executor(sandbox))])
    result = await Runner.run(agent, "look", run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "done"
    assert "print('hello')" in answers(model)[0] and "No such file" in answers(model)[0]


def request(*commands: str, timeout_ms: Any = None) -> ShellCommandRequest:
    action = ShellActionRequest(list(commands), timeout_ms, 100)
    return ShellCommandRequest(RunContextWrapper(None), ShellCallData("1", action))


async def test_the_shell_maps_time_outs_limits_and_exit_codes(sandbox: AsyncSandbox) -> None:
    execute = shell_executor(sandbox, max_output_bytes=1000)
    result = await execute(request("echo a; echo b >&2; exit 3", "seq 1000", "sleep 2002", "true", timeout_ms=500))
    first, second, third = result.output
    assert (first.stdout, first.stderr, first.exit_code, first.status) == ("a\n", "b\n", 3, "completed")
    assert len(second.stdout) == 1000 and "the output was longer" in second.stderr and second.exit_code == 0
    assert (third.status, third.exit_code, result.max_output_length) == ("timeout", None, 100)


async def test_a_command_returns_both_outputs_and_its_exit_code(session: SandboxSession) -> None:
    result = await session.exec("echo one; echo two >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"one\n", b"two\n", 3)
    assert (await session.exec("printf", "%s", "a b'c", shell=False)).stdout == b"a b'c"
    assert (await session.exec(r"printf '\377\0\303\251'")).stdout == b"\xff\0\xc3\xa9"
    assert (await session.exec("nosuchprogram", shell=False)).exit_code == 127


async def test_a_name_that_is_not_utf8_works_for_files_and_commands(project: Path, session: SandboxSession) -> None:
    (project / os.fsdecode(b"caf\xe9 '\xff\xfe'\n")).write_text("x")
    (name,) = [entry.path for entry in await session.ls(".") if "caf" in entry.path]
    assert os.fsencode(name) == b"/workspace/caf\xe9 '\xff\xfe'\n"
    await session.write(name, io.BytesIO(b"one"))
    assert (await session.read(name)).read() == b"one"
    assert await session._read_bounded(Path(name), max_bytes=2) == b"on"
    assert (await session.exec("cat", name, shell=False)).stdout == b"one"
    assert (await session.exec(shlex.join(["cat", name]))).stdout == b"one"
    await session.rm(name)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(name)


async def test_a_command_that_takes_too_long_is_ended(session: SandboxSession) -> None:
    with pytest.raises(ExecTimeoutError) as raised:
        await session.exec("sleep 2003", timeout=0.5)
    assert raised.value.timeout_s == 0.5
    assert b"sleep 2003" not in (await session.exec("ps ax", shell=["sh", "-c"])).stdout


async def test_the_beginning_of_a_long_output_is_kept(sandbox: AsyncSandbox) -> None:
    result = await SandboxSession(sandbox, max_output_bytes=100_000).exec("yes | head -c 3000000; exit 5")
    assert len(result.stdout) == 100_000 and b"longer" in result.stderr and result.exit_code == 5


async def test_a_cancelled_command_is_ended(session: SandboxSession) -> None:
    task = asyncio.create_task(session.exec("echo begun > output/begun; sleep 2004"))
    await appears(session, "output/begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while b"sleep 2004" in (await session.exec("ps", "ax", shell=False)).stdout:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def appears(session: SandboxSession, path: str) -> None:
    async with asyncio.timeout(60):
        while not await session._sandbox.files.exists(path):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_files_are_read_and_written(session: SandboxSession) -> None:
    content = bytes(range(256)) * 1000
    await session.write(Path("new/dir/a b'ü.bin"), io.BytesIO(content))
    assert (await session.read(Path("/workspace/new/dir/a b'ü.bin"))).read() == content
    assert await session.read_bounded(Path("new/dir/a b'ü.bin"), max_bytes=300) == content[:300]
    await session.write(Path("t.txt"), io.StringIO("text ü"))
    assert (await session.read(Path("t.txt"))).read() == "text ü".encode()
    assert (await session.read_bounded(Path("t.txt"), max_bytes=100)).decode() == "text ü"
    await session.mkdir("d/e", parents=True)
    await session.mv("t.txt", "d/e/t.txt")
    assert await session.same_file("d/e/t.txt", "d/e/../e/t.txt") is True
    await session.rm("d", recursive=True)
    names = {entry.path: entry for entry in await session.ls("/workspace")}
    assert "/workspace/d" not in names and "/workspace/.env" not in names
    assert names["/workspace/src"].is_dir() and names["/workspace/main.py"].size == 15
    assert names["/workspace/link"].kind == "symlink"


async def test_a_file_that_is_too_large_is_not_read(sandbox: AsyncSandbox) -> None:
    session = SandboxSession(sandbox, max_file_bytes=1 << 20)
    await session.exec("truncate -s 1T large")
    await refused(lambda: session.read(Path("large")), WorkspaceArchiveReadError, "too_large")
    assert await session.read_bounded(Path("large"), max_bytes=10) == bytes(10)


async def refused(work: Callable[[], Awaitable[Any]], kind: Any, reason: str) -> None:
    with pytest.raises(kind) as raised:
        await work()
    assert raised.value.context.get("reason") == reason
    assert isinstance(raised.value.__cause__, SandboxError)


async def test_refused_operations(session: SandboxSession, project: Path) -> None:
    for path in (".env", "nope", "secrets/key.txt"):
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path(path))
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read_bounded(Path(path), max_bytes=10)
    await refused(lambda: session.read(Path("name-only.txt")), WorkspaceArchiveReadError, "denied")
    await refused(lambda: session.read(Path("src")), WorkspaceArchiveReadError, "is_directory")
    with pytest.raises(WorkspaceArchiveWriteError) as raised:
        await session.write(Path("locked.txt"), io.BytesIO(b"x"))
    assert raised.value.context["reason"] == "denied"
    for outside in ("/etc/passwd", "../x", "/workspace/../etc/passwd"):
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path(outside))
        with pytest.raises(InvalidManifestPathError):
            await session.write(Path(outside), io.BytesIO(b"x"))
    with pytest.raises(ExecNonZeroError, match="Permission denied"):
        await session.rm("locked.txt")
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.ls("nope")
    assert (project / "locked.txt").read_text() == "locked\n"


async def test_a_file_can_be_created_at_a_hidden_name(session: SandboxSession, project: Path) -> None:
    before = (project / ".env").read_bytes()
    await session.write(Path(".env"), io.BytesIO(b"own"))
    assert (await session.read(Path(".env"))).read() == b"own"
    assert (project / ".env").read_bytes() == before != b"own"


async def test_a_link_does_not_lead_out_of_the_workspace(session: SandboxSession) -> None:
    await session.exec("ln -s /etc/passwd out")
    with pytest.raises(WorkspaceArchiveReadError):
        await session.read(Path("out"))


async def test_unsupported_features(session: SandboxSession) -> None:
    assert not session.supports_pty()
    with pytest.raises(ValueError, match="no other users"):
        await session.read(Path("main.py"), user="me")
    with pytest.raises(WorkspaceWriteTypeError):
        await session.write(Path("x"), NoBytes())
    with pytest.raises(WorkspaceArchiveReadError):
        await session.persist_workspace()
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.hydrate_workspace(io.BytesIO())


class NoBytes(io.IOBase):
    def read(self, size: int = -1) -> Any:
        return 7


async def test_the_session_does_not_own_the_sandbox(session: SandboxSession) -> None:
    async with session:
        assert await session.running()
    assert await session.running()
    await session._sandbox.stop()
    assert not await session.running()


async def test_a_sandbox_that_is_gone(session: SandboxSession) -> None:
    task = asyncio.create_task(session.exec("echo begun > output/begun; sleep 2005"))
    await appears(session, "output/begun")
    await session._sandbox.client.destroy_sandbox(session._sandbox.id)
    with pytest.raises(ExecTransportError):
        await task
    with pytest.raises(ExecTransportError) as raised:
        await session.exec("true")
    assert isinstance(raised.value.cause, SandboxNotFoundError)
    await refused(lambda: session.read(Path("main.py")), WorkspaceArchiveReadError, "gone")
    await refused(lambda: session.write(Path("x"), io.BytesIO(b"")), WorkspaceArchiveWriteError, "gone")
    assert not await session.running()
    agent = SandboxAgent(name="coder", model=ScriptedModel([[assistant_message("done")]]))
    config = RunConfig(sandbox=SandboxRunConfig(session=session), tracing_disabled=True)
    with pytest.raises(ExecTransportError):
        await Runner.run(agent, "work", run_config=config)
