"""The asynchronous classes, on a real server."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Awaitable, Callable

import pytest
from conftest import LIMIT, on_both

from agentfense import (
    AsyncSandbox,
    AsyncSandboxClient,
    CommandExecutionError,
    CommandTimeoutError,
    ConflictError,
    FileNotFoundError,
    InvalidConfigurationError,
    Permission,
    PermissionDeniedError,
    ResourceLimitExceededError,
    SandboxNotFoundError,
    SandboxStatus,
    SessionNotFoundError,
    SessionStatus,
)
from agentfense._connection import AsyncConnection
from agentfense._errors import Call


async def wait_until(what: str, true: Callable[[], Awaitable[bool]]) -> None:
    async def wait() -> None:
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), LIMIT)


async def gone(sandbox: AsyncSandbox) -> bool:
    return not (await sandbox.run("kill -0 $(cat output/pid)")).success


async def test_the_first_example(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project) as sb:
        result = await sb.run("cat main.py; cat .env; exit 3")
        assert (result.stdout, result.exit_code, sb.status) == ("print('hello')\n", 3, SandboxStatus.RUNNING)
        with pytest.raises(CommandExecutionError):
            await sb.run("exit 3", raise_on_error=True)
        with pytest.raises(CommandTimeoutError):
            await sb.run("sleep 1000", timeout=0.3)
        assert (await sb.exec("cat", stdin=b"\xff")).stdout_bytes == b"\xff"
    with pytest.raises(SandboxNotFoundError):
        await AsyncSandbox.connect(sb.id)


@on_both
async def test_streams(async_sandbox: AsyncSandbox) -> None:
    stream = async_sandbox.exec_stream("echo out; echo err >&2; exit 4")
    chunks = {(chunk.stream, chunk.data) async for chunk in stream.chunks()}
    assert chunks == {("stdout", b"out\n"), ("stderr", b"err\n")}
    assert stream.exit_code == 4
    assert [data async for data in async_sandbox.exec_stream("echo out")] == [b"out\n"]
    with pytest.raises(CommandTimeoutError):
        _ = [data async for data in async_sandbox.exec_stream("sleep 1000", timeout=timedelta(seconds=0.2))]
    with pytest.raises(InvalidConfigurationError):
        _ = [data async for data in async_sandbox.exec_stream("")]


async def test_leaving_a_stream_ends_its_command(async_sandbox: AsyncSandbox) -> None:
    limit = timedelta(minutes=5)
    async with async_sandbox.exec_stream("echo $$ > output/pid; echo x; exec sleep 1000", timeout=limit) as stream:
        assert await stream.__anext__() == b"x\n"
    await wait_until("the command ends", lambda: gone(async_sandbox))
    stream = async_sandbox.exec_stream("echo $$ > output/pid; echo x; exec sleep 1000", timeout=limit)
    assert await stream.__anext__() == b"x\n"
    del stream
    await wait_until("the command ends", lambda: gone(async_sandbox))


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_ends_the_command(async_sandbox: AsyncSandbox, streamed: bool) -> None:
    command, limit = "echo $$ > output/pid; exec sleep 1000", timedelta(minutes=5)

    async def read() -> None:
        async for _ in async_sandbox.exec_stream(command, timeout=limit):
            pass

    running = read() if streamed else async_sandbox.exec(command, timeout=limit)
    task = asyncio.ensure_future(running)

    async def started() -> bool:
        return (await async_sandbox.run("test -s output/pid")).success

    await wait_until("the command runs", started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until("the command ends", lambda: gone(async_sandbox))


@on_both
async def test_sessions(async_sandbox: AsyncSandbox) -> None:
    async with async_sandbox.session() as session:
        await session.exec("cd src; a=5")
        assert (await session.exec("echo $a; pwd")).stdout == f"5\n{async_sandbox.info.workspace}/src\n"
        assert [data async for data in session.exec_stream("echo s")] == [b"s\n"]
    assert session.status is SessionStatus.CLOSED
    session = await async_sandbox.session(env={"A": "1"})
    assert (await session.exec("echo $A")).stdout == "1\n"
    await session.close()
    with pytest.raises(SessionNotFoundError):
        await session.exec("true")


@on_both
async def test_files_changes_policy_audit(async_sandbox: AsyncSandbox, project: Path) -> None:
    sb = async_sandbox
    await sb.write_file("a/b.txt", "one")
    assert await sb.read_file("a/b.txt") == await sb.files.read("a/b.txt", max_bytes=3) == "one"
    for read in (sb.files.read, sb.files.read_bytes, sb.read_file, sb.read_file_bytes):
        with pytest.raises(ResourceLimitExceededError, match=r"larger than 2 bytes$"):
            await read("a/b.txt", max_bytes=2)
    assert "a/b.txt" in await sb.list_files(recursive=True)
    assert (await sb.files.stat("a/b.txt")).changed and not await sb.files.exists("absent")
    with pytest.raises(FileNotFoundError):
        await sb.read_file("absent")
    assert [change.path for change in await sb.diff(names_only=True)] == ["a/b.txt"]
    assert (await sb.apply("a", dry_run=True)).applied_count == 1
    (project / "a").mkdir()
    (project / "a/b.txt").write_text("two")
    with pytest.raises(ConflictError) as caught:
        await sb.apply()
    assert caught.value.paths == ["a/b.txt"]
    (project / "a/b.txt").unlink()
    (project / "a").rmdir()
    assert (await sb.discard()).paths == ["a/b.txt"]
    assert await sb.diff() == []
    await sb.set_policy(preset="read-only")
    assert (await sb.policy.explain("main.py")).permission is Permission.READ
    with pytest.raises(PermissionDeniedError):
        await sb.write_file("main.py", "x")
    async with sb.audit(follow=True, events=["permission_denied"]) as events:
        async for event in events:
            if event.record["path"] == "/main.py":
                break
    assert len([event async for event in sb.audit()]) > 1
    assert (await sb.stats()).execs == 0
    assert (await (await sb.stop()).start()).status is SandboxStatus.RUNNING


async def test_closing_leaves_the_sandbox(async_sandbox: AsyncSandbox) -> None:
    async with await AsyncSandbox.connect(async_sandbox.id) as found:
        assert (await found.run("echo x > output/x")).success
        await found.close()
    assert (await (await async_sandbox.refresh()).run("cat output/x")).stdout == "x\n"


async def test_uploads(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project, preset="full-access", link=False) as sb:
        assert not sb.codebase.linked
        await sb.write_file("a.txt", "host")
        assert (await sb.run("cat a.txt; ./run.sh")).stdout == "hostran\n"
        assert "a.txt" in await sb.list_files()
        async with await AsyncSandbox.from_codebase(sb.codebase_id) as other:
            assert (await other.refresh()).codebase_id == sb.codebase_id
        with pytest.raises(InvalidConfigurationError, match="agentfense apply NAME --attest FILE"):
            await sb.apply(attest=True)


async def test_many_at_once(home: Path, project: Path) -> None:
    """What the package promises is 50; as many calls at once as the tests' machine may take is enough here."""
    async with AsyncSandboxClient() as client:
        codebase = await client.link_codebase("many", "me", str(project))

        async def one(n: int) -> str:
            async with await AsyncSandbox.from_codebase(codebase.id, preset="full-access") as sb:
                results = await asyncio.gather(*(sb.run(f"echo {n}") for _ in range(4)))
                return "".join(result.stdout for result in results)

        assert await asyncio.gather(*map(one, range(8))) == [f"{n}\n" * 4 for n in range(8)]
        await client.delete_codebase(codebase.id)


@pytest.mark.parametrize("during", ["link", "create sandbox", "start"])
async def test_cancelling_from_local_leaves_nothing(
    async_client: AsyncSandboxClient, project: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    real = AsyncConnection._fit

    async def cancel(connection: AsyncConnection, request: Any, about: Call) -> Any:
        if about.operation == during:
            task.cancel()
        return await real(connection, request, about)

    monkeypatch.setattr(AsyncConnection, "_fit", cancel)
    task = asyncio.ensure_future(AsyncSandbox.from_local(project, owner_id="cancelled"))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await async_client.list_codebases("cancelled") == [] and await async_client.list_sandboxes() == []


async def test_variables_and_usage(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project, env={"A": "its own"}) as sb:
        assert (await sb.run("echo $A")).stdout == "its own\n"
        (listed,) = await sb.client.list_sandboxes(sb.codebase_id, usage=True)
        assert listed.variables == ["A"] and listed.usage is not None and listed.usage.pending_changes == 0


async def test_name_and_expiry(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project, name="named", expires_in=3600, auto_start=False) as sb:
        made = await AsyncSandbox.from_codebase(sb.codebase_id, name="other", expires_in=7200, auto_start=False)
        async with made:
            assert [s.id for s in await sb.client.list_sandboxes(sb.codebase_id, name="other")] == [made.id]
            assert (sb.info.name, made.info.name) == ("named", "other")
            assert sb.info.expires_at is not None and made.info.expires_at is not None
            assert made.info.expires_at - sb.info.expires_at > timedelta(minutes=59)


async def test_a_closed_client(home: Path) -> None:
    client = AsyncSandboxClient()
    assert (await client.list_codebases(), client.same_host) == ([], True)
    await client.close()
    await client.close()
    with pytest.raises(InvalidConfigurationError, match="the client is closed"):
        await client.list_codebases()


def test_a_second_event_loop(home: Path) -> None:
    client = AsyncSandboxClient()

    async def use() -> None:
        await client.list_codebases()

    async def close() -> None:
        await use()
        await client.close()

    # asyncio.run would leave the tests after it without a loop, for which pytest-asyncio makes one that nobody closes.
    with closing(asyncio.new_event_loop()) as first, closing(asyncio.new_event_loop()) as second:
        first.run_until_complete(use())
        with pytest.raises(InvalidConfigurationError, match="belongs to another event loop"):
            second.run_until_complete(use())
        first.run_until_complete(close())


async def test_all_pages_of_a_view_are_listed(async_sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await async_sandbox.files.list()
    connection, pages = async_sandbox.client._connection, []
    call = connection.call

    async def by_two(method: str, request: Any, *more: Any) -> Any:
        request.page_size = 2
        pages.append(await call(method, request, *more))
        return pages[-1]

    monkeypatch.setattr(connection, "call", by_two)
    assert await async_sandbox.files.list() == whole
    assert len(pages) == (len(whole) + 1) // 2 > 2
