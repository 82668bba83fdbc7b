"""A sandbox for agents of the OpenAI Agents SDK: as a session of its sandbox agents, or under its shell tool.

    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from agentfense import AsyncSandbox
    from agentfense.integrations.openai_agents import SandboxSession

    async with await AsyncSandbox.from_local(".") as sb:
        agent = SandboxAgent(name="coder", model=model)
        config = RunConfig(sandbox=SandboxRunConfig(session=SandboxSession(sb)))
        await Runner.run(agent, "Improve the README.", run_config=config)

The agent's commands run in the sandbox, and its patches change the sandbox's view.
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterable, List, Match, Optional, Union

try:
    from agents import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult
    from agents.sandbox import (
        ExecResult,
        ExecTimeoutError,
        ExecTransportError,
        Manifest,
        Permissions,
        User,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        WorkspaceWriteTypeError,
    )
    from agents.sandbox.files import EntryKind, FileEntry
    from agents.sandbox.session import BaseSandboxSession, SandboxSessionState
    from agents.sandbox.snapshot import NoopSnapshot
except ImportError as cause:
    from . import MissingExtraError

    raise MissingExtraError("openai-agents", cause) from cause

from ..async_sandbox import AsyncSandbox
from ..exceptions import SandboxError
from ..types import SandboxStatus, ViewEntry
from ._commands import FILE_BYTES, OUTPUT_BYTES, TIMEOUT, WORKSPACE, Output, collect_async, refusal_in, refusal_of

_LONGER = b"\n[the output was longer]\n"


class SandboxSession(BaseSandboxSession):
    """A sandbox as a session of the Agents SDK. The caller applies its changes and destroys it.

    Files are the sandbox's view, under its policy. If the policy refuses an operation, a path does
    not exist or the sandbox is gone, methods raise the SDK's errors, with an exception of
    ``agentfense`` as the cause. Terminals, other users, ports and snapshots are not supported:
    changes remain in the sandbox, and ``diff`` shows them.

    A command has a time-out of ``timeout`` seconds, unless the caller asks for another.
    ``max_output_bytes`` of its output are kept. Files of more than ``max_file_bytes`` are not read.
    """

    def __init__(
        self,
        sandbox: AsyncSandbox,
        *,
        timeout: float = TIMEOUT,
        max_output_bytes: int = OUTPUT_BYTES,
        max_file_bytes: int = FILE_BYTES,
    ) -> None:
        self._sandbox = sandbox
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._max_file_bytes = max_file_bytes
        self.state = SandboxSessionState(
            type="agentfense", snapshot=NoopSnapshot(id=sandbox.id), manifest=Manifest(root=WORKSPACE)
        )

    async def running(self) -> bool:
        """Return whether the sandbox exists and runs."""
        try:
            await self._sandbox.refresh()
        except SandboxError:
            return False
        return self._sandbox.status is SandboxStatus.RUNNING

    async def _exec_internal(self, *command: Union[str, Path], timeout: Optional[float] = None) -> ExecResult:
        seconds = timeout or self._timeout
        stream = self._sandbox.exec_stream(_line(map(str, command)), timeout=seconds)
        try:
            output = await collect_async(stream, self._max_output_bytes, seconds)
        except SandboxError as error:
            raise ExecTransportError(command=command, cause=error, message=str(error), retryable=False) from error
        if output.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=seconds)
        stderr = output.stderr + (_LONGER if output.truncated else b"")
        return ExecResult(stdout=output.stdout, stderr=stderr, exit_code=output.exit_code)

    # Files

    async def read(self, path: Union[str, Path], *, user: Union[str, User, None] = None) -> io.IOBase:
        """Return a file. Raises WorkspaceReadNotFoundError, or WorkspaceArchiveReadError with the reason."""
        _no_user(user)
        name = self.normalize_path(path)
        try:
            return io.BytesIO(await self._sandbox.files.read_bytes(str(name), max_bytes=self._max_file_bytes))
        except SandboxError as error:
            raise _read_error(name, error) from error

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        name = self.normalize_path(path)
        try:
            await self._sandbox.files.stat(str(name))
        except SandboxError as error:
            raise _read_error(name, error) from error
        command = _line(["head", "-c", str(max_bytes), "--", str(name)])
        output = await collect_async(
            self._sandbox.exec_stream(command, timeout=self._timeout), max_bytes, self._timeout
        )
        if output.exit_code != 0:
            raise WorkspaceArchiveReadError(path=name, context={"reason": refusal_in(output.stderr).kind})
        return output.stdout

    async def write(self, path: Union[str, Path], data: io.IOBase, *, user: Union[str, User, None] = None) -> None:
        """Write a file, and create its missing parent directories.

        Raises WorkspaceArchiveWriteError with the reason.
        """
        _no_user(user)
        name = self.normalize_path(path, for_write=True)
        content: Any = data.read()
        if isinstance(content, str):
            content = content.encode("utf-8")
        if not isinstance(content, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=name, actual_type=type(content).__name__)
        try:
            await self._sandbox.files.write(str(name), bytes(content))
        except SandboxError as error:
            raise WorkspaceArchiveWriteError(
                path=name, context={"reason": _reason(error)}, cause=error, message=str(error), retryable=False
            ) from error

    async def ls(self, path: Union[str, Path], *, user: Union[str, User, None] = None) -> List[FileEntry]:
        """List a directory."""
        _no_user(user)
        name = self.normalize_path(path)
        try:
            return [_entry(entry) for entry in await self._sandbox.files.list(str(name))]
        except SandboxError as error:
            raise _read_error(name, error) from error

    async def persist_workspace(self) -> io.IOBase:
        """Not supported: changes remain in the sandbox; use ``diff`` and ``apply``."""
        raise WorkspaceArchiveReadError(path=Path(WORKSPACE), context={"reason": "a sandbox has no snapshots"})

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Not supported: a sandbox begins with its source directory."""
        raise WorkspaceArchiveWriteError(path=Path(WORKSPACE), context={"reason": "a sandbox has no snapshots"})


def shell_executor(
    sandbox: AsyncSandbox, *, timeout: float = TIMEOUT, max_output_bytes: int = OUTPUT_BYTES
) -> Callable[[ShellCommandRequest], Awaitable[ShellResult]]:
    """Return an executor for a ShellTool that runs its commands in a sandbox, one after the other.

    A command has a time-out of ``timeout`` seconds, or less if the model asks for it. Then it is
    killed, and the remaining commands are not run. ``max_output_bytes`` of a command's output are
    kept. If the sandbox is gone, the executor raises.
    """

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        seconds = min(timeout, action.timeout_ms / 1000) if action.timeout_ms else timeout
        done: List[ShellCommandOutput] = []
        for command in action.commands:
            stream = sandbox.exec_stream(command, timeout=seconds)
            done.append(_shell_output(command, await collect_async(stream, max_output_bytes, seconds)))
            if done[-1].status == "timeout":
                break
        return ShellResult(output=done, max_output_length=action.max_output_length)

    return execute


def _shell_output(command: str, output: Output) -> ShellCommandOutput:
    ended = ShellCallOutcome("timeout") if output.timed_out else ShellCallOutcome("exit", output.exit_code)
    stderr = output.stderr + (_LONGER if output.truncated else b"")
    return ShellCommandOutput(
        output.stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), ended, command
    )


_NO_UTF8 = re.compile("[\udc80-\udcff]+")


def _line(argv: Iterable[str]) -> str:
    """Return a command line for a shell, with bytes that are not UTF-8 spelled for printf."""

    def printed(found: Match[str]) -> str:
        octal = "".join(f"\\{byte:03o}" for byte in found[0].encode("utf-8", "surrogateescape"))
        return f"""'"$(printf '{octal}')"'"""  # shlex has quoted the word

    return _NO_UTF8.sub(printed, shlex.join(argv))


def _no_user(user: Union[str, User, None]) -> None:
    if user is not None:
        raise ValueError("user: a sandbox has no other users")


def _reason(error: SandboxError) -> str:
    try:
        return refusal_of(error).kind
    except SandboxError:
        return "gone"


def _read_error(path: Path, error: SandboxError) -> Exception:
    reason = _reason(error)
    if reason == "not_found":
        return WorkspaceReadNotFoundError(path=path, cause=error)
    return WorkspaceArchiveReadError(path=path, context={"reason": reason}, cause=error, retryable=False)


def _entry(entry: ViewEntry) -> FileEntry:
    kind = EntryKind.DIRECTORY if entry.is_dir else EntryKind.SYMLINK if entry.symlink_target else EntryKind.FILE
    return FileEntry(
        path=f"{WORKSPACE}/{entry.path}",
        permissions=Permissions.from_mode(entry.mode),
        owner="root",
        group="root",
        size=entry.size,
        kind=kind,
    )
