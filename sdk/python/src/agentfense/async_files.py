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
    """The view of a sandbox: its source and its changes, under its policy.

    "/workspace/x", "/x" and "x" are the same path. Methods raise FileNotFoundError for paths that
    do not exist or that the policy hides, and PermissionDeniedError for what the policy does not
    allow. ``mount`` is the name of a mount in which a path is; None means the workspace. Commands
    write in mounts.
    """

    def __init__(self, client: AsyncSandboxClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def read(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ, mount: Optional[str] = None) -> str:
        """Return the text of a file. Bytes that are not UTF-8 become replacement characters. See read_bytes."""
        content = await self.read_bytes(path, max_bytes=max_bytes, mount=mount)
        return content.decode("utf-8", "replace")

    async def read_bytes(
        self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ, mount: Optional[str] = None
    ) -> bytes:
        """Return the content of a file.

        Raises ResourceLimitExceededError for more than ``max_bytes``; None means no bound. A
        command can create a file of any size without using disk space. ``exec_stream`` of ``cat``
        returns a file in pieces.
        """
        return await self._client.read_view(self._id, path, max_bytes=max_bytes, mount=mount)

    async def write(self, path: PathLike, content: Union[str, bytes]) -> None:
        """Write a file, and create its missing parent directories. The sandbox must run.

        If the path exists, it must be a regular file that the sandbox may read.
        """
        await self._client.write_view(self._id, path, content)

    async def list(
        self, path: PathLike = "", recursive: bool = False, *, mount: Optional[str] = None
    ) -> List[ViewEntry]:
        """List a directory by path, with ``recursive`` all below it, each directory before its entries."""
        found: List[ViewEntry] = []
        for entry in await self._client.list_view(self._id, path, mount=mount):
            found.append(entry)
            if recursive and entry.is_dir:
                found += await self.list(entry.path, True, mount=mount)
        return found

    async def stat(self, path: PathLike, *, mount: Optional[str] = None) -> ViewEntry:
        """Return the attributes of a path. A symbolic link is not followed."""
        return await self._client.stat_view(self._id, path, mount=mount)

    async def exists(self, path: PathLike, *, mount: Optional[str] = None) -> bool:
        """Return whether the sandbox sees a path."""
        try:
            await self.stat(path, mount=mount)
        except FileNotFoundError:
            return False
        return True

    def watch(
        self,
        path: PathLike = "",
        recursive: bool = True,
        *,
        timeout: Timeout = None,
        mount: Optional[str] = None,
    ) -> AsyncFileWatch:
        """Return an asynchronous iterator of the changes at a path and below it, from when it is entered.

        Without ``recursive``, it reports the path itself and the entries of the directory.
        ``timeout`` is in seconds, or a timedelta; None means until the sandbox stops, or until
        ``aclose()`` or the end of the ``async with`` block. Iterating waits for the next change.
        Raises SandboxNotRunningError, and ResourceLimitExceededError if the sandbox has 64 watches.

        Changes by commands and by the server (uploads, other sandboxes of the codebase, discarded
        changes) are reported at once. Changes by other programs to the files of a codebase are
        reported for directories that a process in the sandbox has looked into. Changes of a path in
        quick succession become one. A rename is a deletion and a creation. Paths that the policy
        hides are never reported. A change of kind LOST means that there were too many changes to
        keep all.
        """
        return self._client.watch_view(self._id, path, recursive, timeout=timeout, mount=mount)
