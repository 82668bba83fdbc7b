"""How what was made is removed, also where this user's own server was lost meanwhile."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Awaitable, Callable, Optional, Union

from ._connection import AsyncConnection, Connection
from ._interrupts import complete, complete_async
from .async_client import AsyncSandboxClient
from .client import SandboxClient
from .exceptions import (
    ChangesLostWarning,
    CodebaseNotFoundError,
    ConnectionError,
    SandboxError,
    SandboxNotFoundError,
)
from .types import Codebase, Sandbox


def remove(
    client: SandboxClient, sandbox_id: Optional[str], codebase_id: Optional[str], *, unused_only: bool = False
) -> int:
    """Remove a sandbox, and then a codebase, and return how many changes were lost.

    What is not there is removed already.
    """
    lost = 0
    if sandbox_id is not None:
        with suppress(SandboxNotFoundError):
            lost = client.destroy_sandbox(sandbox_id, unused_only=unused_only)
    if codebase_id is not None:
        with suppress(CodebaseNotFoundError):
            client.delete_codebase(codebase_id)
    return lost


async def remove_async(
    client: AsyncSandboxClient, sandbox_id: Optional[str], codebase_id: Optional[str], *, unused_only: bool = False
) -> int:
    """Remove a sandbox, and then a codebase, and return how many changes were lost.

    What is not there is removed already.
    """
    lost = 0
    if sandbox_id is not None:
        with suppress(SandboxNotFoundError):
            lost = await client.destroy_sandbox(sandbox_id, unused_only=unused_only)
    if codebase_id is not None:
        with suppress(CodebaseNotFoundError):
            await client.delete_codebase(codebase_id)
    return lost


def clean_up(client: SandboxClient, work: Callable[[SandboxClient], None]) -> None:
    """Remove things with a client or, where this user's own server was lost, with the server in its place.

    That is started if need be. It has what the lost one had, for the state directory is the same.
    """
    lost = client._connection
    try:
        work(client)
    except ConnectionError:
        if not lost.endpoint.found:
            raise
        with SandboxClient(*lost.asked[:2], token=lost.asked[2]) as other:
            if not _follows(other._connection, lost):
                raise
            work(other)


async def clean_up_async(client: AsyncSandboxClient, work: Callable[[AsyncSandboxClient], Awaitable[None]]) -> None:
    """Remove things as ``clean_up`` does."""
    lost = client._connection
    try:
        await work(client)
    except ConnectionError:
        if not lost.endpoint.found:
            raise
        async with AsyncSandboxClient(*lost.asked[:2], token=lost.asked[2]) as other:
            await other.open()
            if not _follows(other._connection, lost):
                raise
            await work(other)


def _follows(now: Union[Connection, AsyncConnection], lost: Union[Connection, AsyncConnection]) -> bool:
    return now.endpoint.found and now.endpoint.token_file == lost.endpoint.token_file


def give_up(client: SandboxClient, sandbox: Optional[Sandbox], codebase: Optional[Codebase]) -> None:
    """Remove what was made before something failed, which is what the caller hears of, and close the client.

    With a codebase all sandboxes of it are removed. One that somebody has used meanwhile stays, and its codebase.
    """

    def work(server: SandboxClient) -> None:
        if sandbox is not None:
            remove(server, sandbox.id, None, unused_only=True)
        if codebase is not None:
            for left in server.list_sandboxes(codebase.id):
                remove(server, left.id, None, unused_only=True)
            remove(server, None, codebase.id)

    def end() -> None:
        with client, suppress(SandboxError):
            clean_up(client, work)

    complete(end)


async def give_up_async(client: AsyncSandboxClient, sandbox: Optional[Sandbox], codebase: Optional[Codebase]) -> None:
    """Remove what was made as ``give_up`` does."""

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


def warn_of_rest(sandbox_id: str, why: SandboxError) -> None:
    """Say that a sandbox is left, where another exception is on its way."""
    # Filters may make an exception of it, which would hide that one.
    with suppress(RuntimeWarning):
        warnings.warn(f"sandbox {sandbox_id} could not be destroyed: {why}", RuntimeWarning, stacklevel=3)


def warn_of_upload(directory: str) -> None:
    """Say that a directory was uploaded which would have been linked."""
    warnings.warn(
        f"the token may not link {directory}, so it is uploaded",
        UserWarning,
        stacklevel=3,
    )


def warn_of_lost(sandbox_id: str, lost: int, stacklevel: int = 3) -> None:
    """Say how many changes were lost with a sandbox, if any were."""
    if lost:
        changes = "1 change" if lost == 1 else f"{lost} changes"
        warnings.warn(
            f"sandbox {sandbox_id} was destroyed with {changes} not applied: call apply() to keep changes, "
            "or discard() to drop them",
            ChangesLostWarning,
            stacklevel=stacklevel,
        )
