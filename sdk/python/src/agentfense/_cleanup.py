# Made from _async_cleanup.py by make gen: do not edit.

"""How what was made is removed, also where this user's own server was lost meanwhile, for threads."""

from __future__ import annotations

from contextlib import suppress
from typing import Callable, Optional

from ._connection import Connection
from ._interrupts import complete
from .client import SandboxClient
from .exceptions import CodebaseNotFoundError, ConnectionError, SandboxError, SandboxNotFoundError
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


def _follows(now: Connection, lost: Connection) -> bool:
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
