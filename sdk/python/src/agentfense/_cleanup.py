# Made from _async_cleanup.py by make gen: do not edit.

"""The removal of sandboxes and codebases, even if your own server died, for threads."""

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
    """Remove a sandbox and then a codebase, if they exist, and return the number of lost changes."""
    lost = 0
    if sandbox_id is not None:
        with suppress(SandboxNotFoundError):
            lost = client.destroy_sandbox(sandbox_id, unused_only=unused_only)
    if codebase_id is not None:
        with suppress(CodebaseNotFoundError):
            client.delete_codebase(codebase_id)
    return lost


def clean_up(client: SandboxClient, work: Callable[[SandboxClient], None]) -> None:
    """Do clean-up work with a client or, if your own server died, with its successor.

    The package starts a successor if necessary. It has the same state directory, and so the same
    sandboxes.
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
    """Remove what was made before an error, which the caller raises, and close the client.

    With a codebase, removes all its sandboxes. If a sandbox was used meanwhile, it remains, and so
    does its codebase.
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
