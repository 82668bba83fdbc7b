"""The removal of sandboxes and codebases, even if your own server died, for an event loop."""

from __future__ import annotations

from contextlib import suppress
from typing import Awaitable, Callable, Optional

from ._connection import AsyncConnection
from ._interrupts import complete_async
from .async_client import AsyncSandboxClient
from .exceptions import CodebaseNotFoundError, ConnectionError, SandboxError, SandboxNotFoundError
from .types import Codebase, Sandbox


async def remove_async(
    client: AsyncSandboxClient, sandbox_id: Optional[str], codebase_id: Optional[str], *, unused_only: bool = False
) -> int:
    """Remove a sandbox and then a codebase, if they exist, and return the number of lost changes."""
    lost = 0
    if sandbox_id is not None:
        with suppress(SandboxNotFoundError):
            lost = await client.destroy_sandbox(sandbox_id, unused_only=unused_only)
    if codebase_id is not None:
        with suppress(CodebaseNotFoundError):
            await client.delete_codebase(codebase_id)
    return lost


async def clean_up_async(client: AsyncSandboxClient, work: Callable[[AsyncSandboxClient], Awaitable[None]]) -> None:
    """Do clean-up work with a client or, if your own server died, with its successor.

    The package starts a successor if necessary. It has the same state directory, and so the same
    sandboxes.
    """
    lost = client._connection
    try:
        await work(client)
    except ConnectionError:
        if not lost.endpoint.found:
            raise
        async with AsyncSandboxClient(*lost.asked[:2], token=lost.asked[2]) as other:
            await other.open()  # async only
            if not _follows(other._connection, lost):
                raise
            await work(other)


def _follows(now: AsyncConnection, lost: AsyncConnection) -> bool:
    return now.endpoint.found and now.endpoint.token_file == lost.endpoint.token_file


async def give_up_async(client: AsyncSandboxClient, sandbox: Optional[Sandbox], codebase: Optional[Codebase]) -> None:
    """Remove what was made before an error, which the caller raises, and close the client.

    With a codebase, removes all its sandboxes. If a sandbox was used meanwhile, it remains, and so
    does its codebase.
    """

    async def work(server: AsyncSandboxClient) -> None:
        if sandbox is not None:
            await remove_async(server, sandbox.id, None, unused_only=True)
        if codebase is not None:
            for left in await server.list_sandboxes(codebase.id):
                await remove_async(server, left.id, None, unused_only=True)
            await remove_async(server, None, codebase.id)

    async def end() -> None:
        async with client:
            with suppress(SandboxError):
                await clean_up_async(client, work)

    await complete_async(end)
