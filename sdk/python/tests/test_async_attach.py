"""Terminals, pipes, signals and detached commands for an event loop, on a real server; see test_attach.py."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from functools import partial
from typing import Any, Awaitable, Callable, Coroutine

import pytest
from conftest import on_both

from agentfense import (
    AsyncSandbox,
    CommandTimeoutError,
    ConnectionError,
    ExecEndedError,
    ExecNotFoundError,
    InvalidConfigurationError,
    OutputChunk,
    SandboxNotRunningError,
    _attach,
)
from agentfense.async_attach import AsyncAttachedExec

LIMIT = 120
LOOP = "while :; do sleep 0.05; done"


async def until(attached: AsyncAttachedExec, text: bytes) -> bytes:
    """Read until the output ends with a text."""
    seen = b""
    while not seen.endswith(text):
        seen += await attached.__anext__()
    return seen


async def wait_until(what: str, true: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + LIMIT
    while not await true():
        assert time.monotonic() < end, what


async def idle(sandbox: AsyncSandbox) -> bool:
    return (await sandbox.stats()).execs == 0


async def test_a_conversation(async_sandbox: AsyncSandbox) -> None:
    async with async_sandbox.attach(["cat"], timeout=LIMIT) as cat:
        assert cat.exec_id != "" and cat.exit_code is None
        for data in (b"one\n", b"\xff\0\n"):
            await cat.write(data)
            assert await until(cat, b"\n") == data
        await cat.close_stdin()
        await cat.close_stdin()
        assert [data async for data in cat] == [] and cat.exit_code == 0
        with pytest.raises(ValueError, match="the input is closed"):
            await cat.write("more")
        with pytest.raises(ExecEndedError, match=f"exec {cat.exec_id}: the command has ended"):
            await cat.resize(1, 1)
    script = 'read line; echo "$A $line" >&2; exit 5'
    attached = await async_sandbox.attach(["sh", "-c", script], env={"A": "1"}, timeout=LIMIT)
    await attached.write("line\n")
    assert [chunk async for chunk in attached.chunks()] == [OutputChunk("stderr", b"1 line\n")]
    assert await attached.wait() == 5


async def test_input_and_output_at_once(async_sandbox: AsyncSandbox) -> None:
    """Neither side waits for the other, nor for somebody to open it."""
    cat = async_sandbox.attach(["cat"], timeout=LIMIT)

    async def write() -> None:
        for _ in range(20):
            await cat.write(b"x" * 1_000_000)
        await cat.close_stdin()

    async def read() -> int:
        return sum([len(data) async for data in cat])

    assert (await asyncio.gather(write(), read()))[1] == 20_000_000


async def test_a_command_that_does_not_read_is_ended(
    async_sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = await async_sandbox.attach(["sleep", "1000"], timeout=LIMIT)
    monkeypatch.setattr(_attach, "WORK", 0.2)
    with pytest.raises(CommandTimeoutError, match=r"the command has read nothing for 0\.2 s"):
        for _ in range(100):
            await asleep.write(b"x" * 1_000_000)
    await wait_until("the command ends", lambda: idle(async_sandbox))


@on_both
async def test_a_terminal_and_signals(async_sandbox: AsyncSandbox) -> None:
    script = f"stty size; trap 'stty size; exit 3' WINCH; trap 'echo caught' INT; echo ready; {LOOP}"
    async with async_sandbox.attach(["sh", "-c", script], terminal=(24, 80), timeout=LIMIT) as terminal:
        assert await until(terminal, b"ready\r\n") == b"24 80\r\nready\r\n"
        await terminal.signal(signal.SIGINT)
        await until(terminal, b"caught\r\n")
        await terminal.resize(50, 132)
        assert await until(terminal, b"132\r\n") == b"50 132\r\n"
        assert await terminal.wait(LIMIT) == 3
    assert await (await async_sandbox.attach(["sleep", "1000"], timeout=LIMIT)).kill() == 128 + signal.SIGKILL


@pytest.mark.parametrize("how", ["close", "forget", "cancel"])
async def test_leaving_ends_the_command(async_sandbox: AsyncSandbox, how: str) -> None:
    attached = await async_sandbox.attach(["sh", "-c", f"echo started; {LOOP}"], timeout=LIMIT)
    assert await attached.__anext__() == b"started\n"
    if how == "close":
        await attached.aclose()
        with pytest.raises(ExecEndedError, match="it was closed before its end"):
            await attached.wait()
        with pytest.raises(ExecEndedError):
            await attached.write("x")
    elif how == "forget":
        del attached
        gc.collect()
    else:
        reading = asyncio.ensure_future(attached.wait())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    await wait_until("the command ends", lambda: idle(async_sandbox))


async def test_timeouts(async_sandbox: AsyncSandbox) -> None:
    with pytest.raises(CommandTimeoutError, match=r"'sleep 1000': took longer than 0\.3 s"):
        await async_sandbox.attach(["sleep", "1000"], timeout=0.3).wait()
    with pytest.raises(CommandTimeoutError, match=r"'sleep 1000': took longer than 0\.1 s"):
        await async_sandbox.attach(["sleep", "1000"], timeout=LIMIT).wait(0.1)
    await wait_until("the commands end", lambda: idle(async_sandbox))


async def test_a_server_that_does_not_answer(async_sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(_attach, "ANSWER", 0.1)
    monkeypatch.setattr(async_sandbox.client._connection, "talk", never)
    with pytest.raises(ConnectionError, match="does not answer within"):
        await async_sandbox.attach(["true"])


async def test_errors(async_sandbox: AsyncSandbox) -> None:
    sb = async_sandbox
    with pytest.raises(ExecNotFoundError, match="no such exec") as caught:
        await sb.resume("nothing")
    assert caught.value.exec_id == "nothing"
    with pytest.raises(InvalidConfigurationError, match="workdir"):
        await sb.attach(["true"], workdir="no/such")
    with pytest.raises(ValueError, match="want a list of the program"):
        sb.attach("ls -l")
    async with sb.attach(["no-such-program"]) as attached:
        assert [chunk.stream async for chunk in attached.chunks()] == ["stderr"] and attached.exit_code == 127
    attached = await sb.attach(["sleep", "1000"], timeout=LIMIT)
    await sb.stop()
    with pytest.raises(SandboxNotRunningError):
        await attached.wait(LIMIT)
    with pytest.raises(SandboxNotRunningError):
        await sb.execs()


@on_both
async def test_detached_commands(async_sandbox: AsyncSandbox) -> None:
    exec_id = await async_sandbox.exec_detached("echo one; while [ ! -e output/go ]; do sleep 0.05; done; echo two")
    other = await AsyncSandbox.connect(async_sandbox.id)
    assert [(e.exec_id, e.running) for e in await other.execs()] == [(exec_id, True)]
    async with other.resume(exec_id) as attached:
        assert await attached.__anext__() == b"one\n"
    async with other.resume(exec_id, stdout_offset=4) as attached:
        await other.write_file("output/go", "")
        assert [data async for data in attached] == [b"two\n"] and attached.exit_code == 0
    await other.client.close()
    async with async_sandbox.attach(["cat"], detach=True, timeout=LIMIT) as cat:
        pass
    async with async_sandbox.resume(cat.exec_id) as cat:
        await cat.write("still there\n")
        await until(cat, b"there\n")
        assert await cat.kill() == 128 + signal.SIGKILL
    async with async_sandbox.session() as session:
        name = await session.exec_detached("echo hello")
        assert b"".join([data async for data in async_sandbox.resume(name)]) == b"hello\n"


@pytest.mark.parametrize("how", ["attach", "exec_detached"])
async def test_cancelling_during_the_start_leaves_no_command(
    async_sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nobody would know its name."""

    async def and_cancel(start: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        made = await start(*args)
        task.cancel()
        await asyncio.sleep(0)
        return made

    starting: Coroutine[Any, Any, Any]
    if how == "attach":
        begin = AsyncAttachedExec._begin
        monkeypatch.setattr(AsyncAttachedExec, "_begin", lambda attached: and_cancel(begin, attached))
        starting = async_sandbox.attach(["sleep", "1000"], timeout=LIMIT, detach=True).open()
    else:
        client = async_sandbox.client
        monkeypatch.setattr(client, "_start", partial(and_cancel, client._start))
        starting = async_sandbox.exec_detached("sleep 1000", timeout=LIMIT)
    task = asyncio.ensure_future(starting)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [e.exit_code for e in await async_sandbox.execs()] == [128 + signal.SIGKILL]
