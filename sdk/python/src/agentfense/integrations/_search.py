"""The records that a command finds in a sandbox."""

from __future__ import annotations

import shlex
from typing import Generator, Iterator, List

from ..exceptions import CommandTimeoutError, SandboxError
from ..sandbox import Sandbox
from ._commands import RefusedError, is_clean, refusal_of

_SECONDS = 30
_BYTES = 16 << 20


class Search(Iterator[bytes]):
    """The records that a command writes, until it ends or there are enough."""

    def __init__(self, sandbox: Sandbox, argv: List[str], end: bytes) -> None:
        command = " ".join(map(shlex.quote, argv)) + " 2>/dev/null"
        self._stream = sandbox.exec_stream(command, timeout=_SECONDS, env={"LC_ALL": "C"})
        self._end = end
        self._records = self._read()
        self.cut = False
        """Whether records are missing."""

    def stop(self) -> None:
        """End the command: there are enough records."""
        self.cut = True
        self._records.close()

    def __next__(self) -> bytes:
        return next(self._records)

    def _read(self) -> Generator[bytes, None, None]:
        record, room = bytearray(), _BYTES
        try:
            with self._stream as stream:
                for chunk in stream.chunks():
                    room -= len(chunk.data)
                    *ends, rest = chunk.data.split(self._end)
                    for end in ends:
                        yield bytes(record + end)
                        record.clear()
                    record += rest
                    if room < 0:
                        self.cut = True
                        return
        except CommandTimeoutError:
            self.cut = True
        except SandboxError as error:
            raise RefusedError(refusal_of(error)) from None


def is_at(path: str, root: str) -> bool:
    """Return whether a path that the sandbox reported is at or below the searched one."""
    return is_clean(path) and (path + "/").startswith(root.rstrip("/") + "/")
