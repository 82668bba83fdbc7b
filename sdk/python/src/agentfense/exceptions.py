"""What can go wrong, one class for each kind.

Everything that this package raises of its own is a SandboxError, except ValueError for arguments that no server need
be asked about.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

GrpcCode = Tuple[int, str]
"""A gRPC status: its number and its name, such as ``(5, "not found")``."""


class SandboxError(Exception):
    """The root of all errors of this package."""

    def __init__(self, message: str = "", details: Any = None, grpc_code: Optional[GrpcCode] = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.grpc_code = grpc_code
        self.not_started = False
        """Whether the server says of a command that nothing of it has run."""

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(vars(self)))


def _rebuild(cls: Any, message: str, state: Any) -> SandboxError:
    error: SandboxError = cls.__new__(cls)
    Exception.__init__(error, message)
    vars(error).update(state)
    return error


class ConnectionError(SandboxError):
    """The server cannot be reached, or was lost."""

    def __init__(self, endpoint: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"cannot reach the server at {endpoint}", **more)
        self.endpoint = endpoint


class SandboxNotFoundError(SandboxError):
    """There is no such sandbox, for this caller."""

    def __init__(self, sandbox_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"sandbox {sandbox_id}: no such sandbox", **more)
        self.sandbox_id = sandbox_id


class SandboxNotRunningError(SandboxError):
    """The sandbox has to run for that."""

    def __init__(self, sandbox_id: str = "", current_status: str = "", message: str = "", **more: Any) -> None:
        status = f" (it is {current_status})" if current_status else ""
        super().__init__(message or f"sandbox {sandbox_id}: sandbox is not running{status}", **more)
        self.sandbox_id = sandbox_id
        self.current_status = current_status
        """``pending``, ``stopped`` or ``error``."""


class ConflictError(SandboxError):
    """Changes conflict with the source, which is not what the sandbox saw any more: nothing was applied."""

    def __init__(self, sandbox_id: str = "", paths: Sequence[str] = (), message: str = "", **more: Any) -> None:
        super().__init__(message or f"sandbox {sandbox_id}: conflict with the source: {', '.join(paths)}", **more)
        self.sandbox_id = sandbox_id
        self.paths = list(paths)
        """As many as there was room for; ``apply`` with ``dry_run`` has all."""


class CodebaseError(SandboxError):
    """A codebase cannot do that."""


class CodebaseNotFoundError(CodebaseError):
    """There is no such codebase, for this caller."""

    def __init__(self, codebase_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"codebase {codebase_id}: no such codebase", **more)
        self.codebase_id = codebase_id


class FileNotFoundError(CodebaseError):
    """There is no such file in a codebase, or in a sandbox's view."""

    def __init__(self, codebase_id: str = "", file_path: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"{file_path}: no such file", **more)
        self.codebase_id = codebase_id
        self.file_path = file_path


class UploadError(CodebaseError):
    """A file cannot be stored."""

    def __init__(self, file_path: str = "", codebase_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"upload {file_path}: failed", **more)
        self.file_path = file_path
        self.codebase_id = codebase_id


class CommandTimeoutError(SandboxError):
    """A command took longer than it may, and was ended."""

    def __init__(
        self, command: str = "", timeout_seconds: Optional[float] = None, message: str = "", **more: Any
    ) -> None:
        limit = "the server's limit" if timeout_seconds is None else f"{timeout_seconds:g} s"
        super().__init__(message or f"command {command!r}: took longer than {limit}", **more)
        self.command = command
        self.timeout_seconds = timeout_seconds


class CommandExecutionError(SandboxError):
    """A command ended with an exit code other than 0."""

    def __init__(
        self, command: str = "", exit_code: int = 1, stdout: str = "", stderr: str = "", message: str = "", **more: Any
    ) -> None:
        last = stderr.strip().rsplit("\n", 1)[-1]
        super().__init__(message or f"command {command!r}: exit code {exit_code}{': ' + last if last else ''}", **more)
        self.command = command
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


class PermissionDeniedError(SandboxError):
    """The policy, or the caller's token, does not allow that."""

    def __init__(self, operation: str = "", path: str = "", message: str = "", **more: Any) -> None:
        what = f"{operation} {path}".strip()
        super().__init__(message or f"{what}: permission denied", **more)
        self.operation = operation
        self.path = path


class SessionError(SandboxError):
    """A session cannot do that."""

    def __init__(self, session_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"session {session_id}: error", **more)
        self.session_id = session_id


class SessionNotFoundError(SessionError):
    """There is no such session, for this caller."""

    def __init__(self, session_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(session_id, message or f"session {session_id}: no such session", **more)


class SessionClosedError(SessionError):
    """The session is closed."""

    def __init__(self, session_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(session_id, message or f"session {session_id}: session is closed", **more)


class ExecError(SandboxError):
    """A command that was attached to, or detached, cannot do that."""

    def __init__(self, exec_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"exec {exec_id}: error", **more)
        self.exec_id = exec_id


class ExecNotFoundError(ExecError):
    """There is no such command: of its sandbox the detached ones are known that run, and the last that have ended."""

    def __init__(self, exec_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(exec_id, message or f"exec {exec_id}: no such exec", **more)


class ExecEndedError(ExecError):
    """The command has ended, or was left."""

    def __init__(self, exec_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(exec_id, message or f"exec {exec_id}: the command has ended", **more)


class ResourceLimitExceededError(SandboxError):
    """A limit, a quota or the disk is full."""

    def __init__(self, resource_type: str = "", limit: Any = None, message: str = "", **more: Any) -> None:
        of = "" if limit is None else f" of {limit}"
        super().__init__(message or f"{resource_type}: the limit{of} is exceeded", **more)
        self.resource_type = resource_type
        """What there may be only so many of: ``bytes``, ``files``, ``sandboxes``; else what was done."""
        self.limit = limit
        """How many; None where no limit of the server's was met, or it is not told."""


class ChangesLostWarning(UserWarning):
    """A sandbox was destroyed with changes that were neither applied nor carried over."""


class InvalidConfigurationError(SandboxError):
    """What was asked for makes no sense, or this host or server cannot do it."""


class VersionMismatchError(InvalidConfigurationError):
    """The server, or the program that would be one, does not fit this package; the text says which to upgrade."""


class PolicyError(InvalidConfigurationError, ValueError):
    """A rule, a policy, or its file, is malformed."""

    def __init__(self, message: str = "", file: str = "", line: Optional[int] = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.file = file
        self.line = line
