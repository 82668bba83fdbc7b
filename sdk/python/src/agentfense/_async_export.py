"""The calls that take changes elsewhere and answer queries, for an event loop."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any, BinaryIO, List, Optional, Union

from . import _requests as requests
from . import types as t
from ._arguments import PathLike
from ._async_codebases import AsyncCalls
from ._connection import WORK
from ._errors import Call
from ._requests import Timeout
from ._streams import AsyncStream
from ._wire import decode_path, query_result_of


class AsyncExportCalls(AsyncCalls):
    """The calls that take the changes of a sandbox elsewhere, and answer queries about it."""

    async def export(
        self,
        sandbox_id: str,
        path: PathLike,
        format: Union[t.ExportFormat, str] = t.ExportFormat.AGENTFS,
        *,
        mount: Optional[str] = None,
    ) -> t.Exported:
        """Write what a sandbox changed to a new file, which only its owner can read.

        The file must not exist, and is removed again after an error. What the policy hides is not
        in it; ``left_out`` of the result has what the format cannot hold, too. The sandbox may run.
        ``mount`` is the name of the mount whose changes are meant; None means the workspace.
        Raises FileExistsError, ResourceLimitExceededError for more than 4 GiB, and SandboxError if
        the format cannot hold a change.
        """
        request = requests.export(sandbox_id, format, mount)
        start = partial(self._connection.stream, "ExportChanges", request, WORK)
        file = await asyncio.to_thread(_create, path)
        try:
            with file:
                async with AsyncStream[Any](start, Call("export", sandbox_id), self._connection) as stream:
                    return await _receive(stream, file)
        except BaseException:
            os.unlink(path)
            raise

    async def sql(
        self, sandbox_id: str, statement: str, *, max_rows: int = 10_000, timeout: Timeout = None
    ) -> t.QueryResult:
        """Answer one SELECT statement of SQLite about the tables changes, audit, network and processes.

        ``max_rows`` is at most 1,000,000. ``timeout``, at most 60 seconds, is how long the query
        may take; None means 10 seconds. docs/export.md explains the tables. Raises
        InvalidConfigurationError for another statement and for a mistake in it.
        """
        request = requests.sql(sandbox_id, statement, max_rows, timeout)
        return query_result_of(await self._connection.call("QuerySandbox", request, Call("sql", sandbox_id), WORK))


def _create(path: PathLike) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


async def _receive(stream: AsyncStream[Any], file: BinaryIO) -> t.Exported:
    """Write an export to a file."""
    result = t.Exported()
    left_out: List[t.ExportLeftOut] = result.left_out
    while (message := await stream.read()) is not None:
        if message.HasField("summary"):
            summary = message.summary
            result.size, result.entries, result.deletions = summary.size_bytes, summary.entries, summary.deletions
            result.notes = list(summary.notes)
        elif message.HasField("left_out"):
            left_out.append(t.ExportLeftOut(decode_path(message.left_out.path), message.left_out.reason))
        else:
            await asyncio.to_thread(file.write, message.data)
    return result
