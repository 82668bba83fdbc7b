"""The common part of the integrations: the bounded output of commands, and what a sandbox refuses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Optional

from .._async_output import AsyncExecStream
from .._output import ExecStream
from ..exceptions import (
    CodebaseNotFoundError,
    CommandTimeoutError,
    ConnectionError,
    FileNotFoundError,
    InvalidConfigurationError,
    PermissionDeniedError,
    ResourceLimitExceededError,
    SandboxError,
    SandboxNotFoundError,
    SandboxNotRunningError,
    SessionError,
)
from ..sandbox import Sandbox
from ..types import OutputChunk

WORKSPACE = "/workspace"
"""The directory with a sandbox's files."""

OUTPUT_BYTES = 1 << 20
"""The default bound of a command's output, in bytes."""
FILE_BYTES = 10 << 20
"""The default bound of a file that is read, in bytes."""
TIMEOUT = 120
"""The default time-out of a command, in seconds."""
TIMED_OUT = 124
"""The exit code of a command that reached its time-out, as of timeout(1)."""
CANNOT_RUN = 126
"""The exit code of a command that cannot be run, as of a shell."""

_UNAUTHENTICATED = 16


class Output:
    """The output of a command, up to a bound, and its end."""

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._room = max_bytes
        self._seconds = seconds
        # Appended to one buffer: a piece may be a single byte.
        self._both = bytearray()
        self._each = {"stdout": bytearray(), "stderr": bytearray()}
        self.exit_code = TIMED_OUT
        self.timed_out = False
        self.truncated = False

    def add(self, chunk: OutputChunk) -> None:
        """Keep a piece of output, up to the bound."""
        kept = chunk.data[: self._room]
        self._room -= len(kept)
        self.truncated = self.truncated or len(kept) < len(chunk.data)
        self._both += kept
        self._each[chunk.stream] += kept

    def end(self, exit_code: Optional[int]) -> None:
        """Record the end of the command. A stream that was closed early has no exit code."""
        self.exit_code = CANNOT_RUN if exit_code is None else exit_code

    def fail(self, error: SandboxError) -> None:
        """Record a time-out, or why the command cannot be run. Raises other errors."""
        if isinstance(error, CommandTimeoutError):
            self.timed_out = True
            return
        self.exit_code = CANNOT_RUN
        self.add(OutputChunk("stderr", refusal_of(error).text.encode()))

    @property
    def stdout(self) -> bytes:
        """The standard output."""
        return bytes(self._each["stdout"])

    @property
    def stderr(self) -> bytes:
        """The standard error."""
        return bytes(self._each["stderr"])

    @property
    def text(self) -> str:
        """Both streams as they came, and a note of the time-out."""
        text = self._both.decode("utf-8", "replace")
        return f"{text}\n[ended after {self._seconds:g} s: it took too long]" if self.timed_out else text

    def report(self) -> str:
        """Return the text for a model."""
        notes = "\n[the output was longer]" if self.truncated else ""
        return f"{self.text}{notes}\n[exit code {self.exit_code}]".lstrip("\n")


def collect(stream: ExecStream, max_bytes: int, seconds: float, *, whole: bool = False) -> Output:
    """Return the output of a command that runs until its end. Output beyond ``max_bytes`` is dropped.

    With ``whole``, a command that writes more is killed. A command that cannot be run gets a
    shell's exit code.
    """
    output = Output(max_bytes, seconds)
    try:
        with stream:
            for chunk in stream.chunks():
                output.add(chunk)
                if whole and output.truncated:
                    break
        output.end(stream.exit_code)
    except SandboxError as error:
        output.fail(error)
    return output


async def collect_async(stream: AsyncExecStream, max_bytes: int, seconds: float) -> Output:
    """Return the output of a command as ``collect`` does. Cancelling the task ends the command."""
    output = Output(max_bytes, seconds)
    try:
        async with stream:
            async for chunk in stream.chunks():
                output.add(chunk)
        output.end(stream.exit_code)
    except SandboxError as error:
        output.fail(error)
    return output


def run(sandbox: Sandbox, command: str, seconds: float, max_bytes: int) -> Output:
    """Run a command, and return its output."""
    return collect(sandbox.exec_stream(command, timeout=seconds), max_bytes, seconds)


async def run_async(sandbox: Sandbox, command: str, seconds: float, max_bytes: int) -> Output:
    """Run a command as ``run`` does. Cancelling the task ends the command."""
    stream = sandbox.exec_stream(command, timeout=seconds)
    try:
        return await asyncio.to_thread(collect, stream, max_bytes, seconds)
    except asyncio.CancelledError:
        stream.close()
        raise


@dataclass(frozen=True)
class Refusal:
    """Why the sandbox refuses an operation on a path. An agent can react to it."""

    kind: str
    """not_found, denied, is_directory, not_directory, invalid, too_large or failed."""
    text: str


class RefusedError(Exception):
    """The sandbox refuses an operation on a path."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def refused(kind: str, text: str) -> RefusedError:
    """Return the error for an operation that the integration itself refuses."""
    return RefusedError(Refusal(kind, text))


_WORDS = {
    "permission denied": "denied",
    "read-only file system": "denied",
    "operation not permitted": "denied",
    "no such file or directory": "not_found",
    "directory nonexistent": "not_found",
    "is a directory": "is_directory",
    "not a directory": "not_directory",
    "too many levels of symbolic links": "invalid",
    "file name too long": "invalid",
    "no space left on device": "failed",
    "disk quota exceeded": "failed",
}


def refusal_of(error: SandboxError) -> Refusal:
    """Return the refusal for an error about a path. Raises errors about the sandbox, the server and the token."""
    gone = (SandboxNotFoundError, SandboxNotRunningError, CodebaseNotFoundError, ConnectionError, SessionError)
    if isinstance(error, gone) or (error.grpc_code and error.grpc_code[0] == _UNAUTHENTICATED):
        raise error
    by_class = (
        (FileNotFoundError, "not_found"),
        (PermissionDeniedError, "denied"),
        (ResourceLimitExceededError, "too_large"),
        (InvalidConfigurationError, "invalid"),
    )
    text = str(error)
    for kind, name in by_class:
        if isinstance(error, kind):
            return Refusal(_refused(text, name), text)
    return Refusal(_refused(text, "failed"), text)


def refusal_in(said: bytes) -> Refusal:
    """Return the refusal for what a command wrote about a path."""
    line = said.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:500]
    return Refusal(_refused(line, "failed"), line)


def _refused(text: str, otherwise: str) -> str:
    return _WORDS.get(text.rsplit(": ", 1)[-1].strip().lower(), otherwise)


def is_clean(path: str) -> bool:
    """Return whether a path is absolute and has no element such as ``..``."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return path.startswith("/") and "\0" not in path and ".." not in path.split("/")


def in_workspace(path: str) -> bool:
    """Return whether a path is the workspace or below it."""
    return (path + "/").startswith(WORKSPACE + "/")
