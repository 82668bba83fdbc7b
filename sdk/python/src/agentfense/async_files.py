"""The files of a sandbox as a command inside sees them, for an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Union

from ._errors import MAX_READ
from .exceptions import FileNotFoundError
from .types import ViewEntry

if TYPE_CHECKING:
    from ._arguments import PathLike
    from ._requests import Timeout
    from ._watch import AsyncFileWatch
    from .async_client import AsyncSandboxClient


class AsyncSandboxFiles:
    """A sandbox's own view: the codebase, and what the sandbox changed, under its policy.

    "/workspace/x", "/x" and "x" are one path. FileNotFoundError is raised also for what the policy hides, and
    PermissionDeniedError for what it does not let the sandbox do.
    """

    def __init__(self, client: AsyncSandboxClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def read(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> str:
        """Return a file's text. Bytes that are not UTF-8 become replacement characters. See read_bytes."""
        content = await self.read_bytes(path, max_bytes=max_bytes)
        return content.decode("utf-8", "replace")

    async def read_bytes(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> bytes:
        """Return a file's content. ResourceLimitExceededError where that is more than ``max_bytes``, None for any.

        A command can make a file of any size without using its disk up: ``exec_stream`` of ``cat`` gives it in pieces.
        """
        return await self._client.read_view(self._id, path, max_bytes=max_bytes)

    async def write(self, path: PathLike, content: Union[str, bytes]) -> None:
        """Store a file, with the directories it needs; the sandbox has to run.

        What is there already has to be a regular file, and one that the sandbox may read, too.
        """
        await self._client.write_view(self._id, path, content)

    async def list(self, path: PathLike = "", recursive: bool = False) -> List[ViewEntry]:
        """List a directory by path, or all that is below it, each directory before what is in it."""
        found: List[ViewEntry] = []
        for entry in await self._client.list_view(self._id, path):
            found.append(entry)
            if recursive and entry.is_dir:
                found += await self.list(entry.path, True)
        return found

    async def stat(self, path: PathLike) -> ViewEntry:
        """Describe a file or directory."""
        return await self._client.stat_view(self._id, path)

    async def exists(self, path: PathLike) -> bool:
        """Tell whether the sandbox sees something at a path."""
        try:
            await self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def watch(self, path: PathLike = "", recursive: bool = True, *, timeout: Timeout = None) -> AsyncFileWatch:
        """Return what changes at a path and below, from when it is entered: an iterator for ``async for``.

        Without ``recursive`` it is the path itself and what is in it directly. ``timeout``, seconds or a timedelta, is
        how long the watch lasts; None is until the sandbox is stopped or the watch is closed, by ``aclose()`` or
        leaving its ``async with`` block. Iterating waits for the next change, and ends with the watch. It raises
        SandboxNotRunningError, and ResourceLimitExceededError if 64 watch the sandbox already.

        Changes by commands and by the server are reported at once: uploads, other sandboxes of the codebase, discarded
        changes. Changes that other programs make to the files of a codebase are reported for directories that a process
        in the sandbox has looked into. Changes of a path in quick succession become one; a rename is a deletion and a
        creation. Paths that the policy hides are never reported. A change of kind LOST means that earlier changes were
        lost, because there were too many.
        """
        return self._client.watch_view(self._id, path, recursive, timeout=timeout)
