"""The end of sandboxes: nothing remains after interrupts, cancellations and the loss of a server."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any, Callable, List

import pytest
from conftest import check_clean, stop_server
from test_interrupts import strike, strike_task
from test_server import own_home, pid_of

from agentfense import (
    AsyncSandbox,
    AsyncSandboxClient,
    ConnectionError,
    InvalidConfigurationError,
    Sandbox,
    SandboxClient,
    SandboxError,
    _connection,
)

__all__ = ["own_home", "strike"]


class Own(Exception):
    """What the body of a ``with`` block raises."""


@pytest.mark.parametrize("method", ["destroy_sandbox", "delete_codebase"])
@pytest.mark.parametrize("fails", ["", "start_sandbox"])
def test_an_interrupt_of_destroy_leaves_nothing(
    client: SandboxClient,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    strike: Callable[[], None],
    method: str,
    fails: str,
) -> None:
    """At the end of its block, and where it could not be made."""
    real = getattr(SandboxClient, method)
    struck: List[str] = []

    def call(of: SandboxClient, *arguments: Any, **options: Any) -> Any:
        if not struck:
            struck.append(method)
            strike()
        return real(of, *arguments, **options)

    def fail(*_: Any) -> None:
        raise SandboxError("it failed")

    monkeypatch.setattr(SandboxClient, method, call)
    if fails:
        monkeypatch.setattr(SandboxClient, fails, fail)
    with pytest.raises(KeyboardInterrupt), Sandbox.from_local(project, owner_id="struck"):
        pass
    assert struck
    left = client.list_codebases("struck"), client.list_sandboxes()
    monkeypatch.undo()
    for sandbox in left[1]:
        client.destroy_sandbox(sandbox.id)
    for codebase in left[0]:
        client.delete_codebase(codebase.id)
    assert left == ([], [])


def test_a_sandbox_in_use_is_not_undone(client: SandboxClient, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it could not be made."""
    real = SandboxClient.start_sandbox

    def fail(of: SandboxClient, sandbox_id: str) -> None:
        real(of, sandbox_id)
        client.create_session(sandbox_id)
        raise SandboxError("it failed")

    monkeypatch.setattr(SandboxClient, "start_sandbox", fail)
    with pytest.raises(SandboxError, match="it failed"):
        Sandbox.from_local(project, owner_id="used")
    left = client.list_sandboxes(owner_id="used")
    assert len(left) == 1
    with pytest.raises(SandboxError, match="a command or a session is running in it"):
        client.destroy_sandbox(left[0].id, unused_only=True)
    client.destroy_sandbox(left[0].id)
    client.delete_codebase(left[0].codebase_id)


def test_an_error_says_that_the_command_never_started(client: SandboxClient, project: Path) -> None:
    with Sandbox.from_local(project, owner_id="refused") as sandbox:
        with pytest.raises(InvalidConfigurationError) as refused:
            sandbox.run("true", workdir="/nowhere")
        assert refused.value.not_started


@pytest.mark.parametrize("method", ["destroy_sandbox", "delete_codebase"])
@pytest.mark.parametrize("fails", ["", "start_sandbox"])
async def test_cancellations_of_destroy_leave_nothing(
    async_client: AsyncSandboxClient, project: Path, monkeypatch: pytest.MonkeyPatch, method: str, fails: str
) -> None:
    real = getattr(AsyncSandboxClient, method)
    ended: List[str] = []

    async def call(of: AsyncSandboxClient, *arguments: Any, **options: Any) -> Any:
        await strike_task(task)
        await real(of, *arguments, **options)
        ended.append(method)

    async def fail(*_: Any) -> None:
        raise SandboxError("it failed")

    async def one() -> None:
        async with await AsyncSandbox.from_local(project, owner_id="struck"):
            pass

    monkeypatch.setattr(AsyncSandboxClient, method, call)
    if fails:
        monkeypatch.setattr(AsyncSandboxClient, fails, fail)
    task = asyncio.ensure_future(one())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [method]
    assert (await async_client.list_codebases("struck"), await async_client.list_sandboxes()) == ([], [])


def run_and_kill(sandbox: Sandbox, home: Path) -> None:
    """Let a command run, and the server die."""
    stream = sandbox.exec_stream("echo started; while :; do sleep 0.1; done", timeout=500)
    assert next(iter(stream)) == b"started\n"
    kill(home)


def kill(home: Path) -> None:
    os.kill(pid_of(home), signal.SIGKILL)


def test_a_lost_server_leaves_nothing(own_home: Path, project: Path) -> None:
    with pytest.raises(Own), Sandbox.from_local(project) as sandbox:
        run_and_kill(sandbox, own_home)
        raise Own
    check_clean(own_home)
    sandbox.destroy()
    with Sandbox.from_local(project) as sandbox:
        run_and_kill(sandbox, own_home)
    check_clean(own_home)


async def test_a_lost_server_of_an_event_loop_leaves_nothing(own_home: Path, project: Path) -> None:
    with pytest.raises(Own):
        async with await AsyncSandbox.from_local(project) as sandbox:
            stream = sandbox.exec_stream("echo started; while :; do sleep 0.1; done", timeout=500)
            assert await stream.__anext__() == b"started\n"
            kill(own_home)
            raise Own
    check_clean(own_home)
    await stream.aclose()
    await sandbox.destroy()


async def test_a_server_that_is_lost_while_a_sandbox_is_created(
    own_home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of what was lost."""
    create, create_async = SandboxClient.create_sandbox, AsyncSandboxClient.create_sandbox

    def lose(*arguments: Any, **named: Any) -> Any:
        kill(own_home)
        return create(*arguments, **named)

    async def lose_async(*arguments: Any, **named: Any) -> Any:
        kill(own_home)
        return await create_async(*arguments, **named)

    monkeypatch.setattr(SandboxClient, "create_sandbox", lose)
    monkeypatch.setattr(AsyncSandboxClient, "create_sandbox", lose_async)
    with pytest.raises(ConnectionError, match="cannot reach the server"):
        Sandbox.from_local(project)
    check_clean(own_home)
    with pytest.raises(ConnectionError, match="cannot reach the server"):
        await AsyncSandbox.from_local(project)
    check_clean(own_home)


async def test_a_lost_server_that_cannot_be_replaced(
    own_home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the block raised is not hidden, and it can be destroyed later."""
    says = "could not be destroyed: AGENTFENSE_BINARY '/nowhere/agentfense'"
    program = os.environ["AGENTFENSE_BINARY"]
    sandbox, other = Sandbox.from_local(project), await AsyncSandbox.from_local(project)
    kill(own_home)
    monkeypatch.setenv("AGENTFENSE_BINARY", "/nowhere/agentfense")
    with pytest.warns(RuntimeWarning, match=says), pytest.raises(Own), sandbox:
        raise Own
    with pytest.warns(RuntimeWarning, match=says), pytest.raises(Own):
        async with other:
            raise Own
    with pytest.raises(Own), sandbox:  # where a warning is an error
        raise Own
    with pytest.raises(InvalidConfigurationError, match="no such program"), sandbox:
        pass
    monkeypatch.setenv("AGENTFENSE_BINARY", program)
    # The server of another state directory would say that there is no such sandbox.
    monkeypatch.setenv("AGENTFENSE_HOME", str(tmp_path / "home"))
    with pytest.raises(ConnectionError):
        sandbox.destroy()
    with pytest.raises(ConnectionError):
        await other.destroy()
    stop_server(tmp_path / "home")
    monkeypatch.setenv("AGENTFENSE_HOME", str(own_home))
    sandbox.destroy()
    await other.destroy()


def test_a_lost_server_that_was_named_is_not_replaced(own_home: Path, project: Path) -> None:
    with SandboxClient() as client:
        address = client.endpoint
        sandbox = Sandbox.from_local(project, endpoint=address)
    kill(own_home)
    with pytest.raises(ConnectionError), sandbox:
        pass
    with Sandbox.connect(sandbox.id) as found:
        found.destroy(delete_codebase=True)
    sandbox.client.close()


def test_a_client_is_closed_at_once(client: SandboxClient) -> None:
    """A thread of gRPC's own would be waited for."""
    client.list_sandboxes()
    before = threading.active_count()
    with SandboxClient() as other:
        other.list_sandboxes()
        assert threading.active_count() == before


def test_a_connection_that_is_interrupted_is_closed(client: SandboxClient, monkeypatch: pytest.MonkeyPatch) -> None:
    made: List[Any] = []
    real = _connection._channel

    def channel(*arguments: Any) -> Any:
        made.append(real(*arguments))
        return made[-1]

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_connection, "_channel", channel)
    monkeypatch.setattr(_connection.Connection, "_is_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        SandboxClient()
    with pytest.raises(ValueError, match="closed channel"):
        made[0].unary_unary("/any")(b"", timeout=1)
