# Made from async_sandbox_board.py by make gen: do not edit.

"""Locks and messages of a sandbox, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from .types import Board, MessagePage, PathLock

if TYPE_CHECKING:
    from ._requests import Paths, Timeout
    from .client import SandboxClient


class SandboxBoard:
    """The board of a sandbox's codebase: locks of paths, and messages of its sandboxes."""

    def __init__(self, client: SandboxClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    def lock(self, paths: Paths, *, advisory: bool = False, lock_for: Timeout = None, wait: Timeout = None) -> None:
        """Lock paths for the sandbox; see ``lock_paths`` of the client."""
        self._client.lock_paths(self._id, paths, advisory=advisory, lock_for=lock_for, wait=wait)

    def unlock(self, paths: Optional[Paths] = None) -> None:
        """End locks of the sandbox; None means all."""
        self._client.unlock_paths(self._id, paths)

    def locks(self) -> List[PathLock]:
        """Return the locks of the codebase of which the sandbox may know."""
        return self._client.list_locks(self._id)

    def post(self, text: str, topic: str = "", *, as_agent: bool = False) -> int:
        """Post a message and return its number; see ``post_message`` of the client."""
        return self._client.post_message(self._id, text, topic, as_agent=as_agent)

    def read(self, *, after: int = 0, topic: str = "", wait: Timeout = None) -> MessagePage:
        """Return messages, or wait for one; see ``read_messages`` of the client."""
        return self._client.read_messages(self._id, after=after, topic=topic, wait=wait)

    def state(self) -> Board:
        """Return which sandboxes of the codebase run, what they work on, and the topics."""
        return self._client.get_board(self._id)
