"""The exceptions of this package.

All are subclasses of SandboxError. Arguments that are invalid without asking a server raise
ValueError or TypeError.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

GrpcCode = Tuple[int, str]
"""A gRPC status: its number and its name, such as ``(5, "not found")``."""


class SandboxError(Exception):
    """The base class of all exceptions of this package."""

    def __init__(self, message: str = "", details: Any = None, grpc_code: Optional[GrpcCode] = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.grpc_code = grpc_code
        self.not_started = False
        """Whether the server reported that nothing of the command has run."""

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
    """The server cannot be reached, or the connection was lost."""

    def __init__(self, endpoint: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"cannot reach the server at {endpoint}", **more)
        self.endpoint = endpoint


class SandboxNotFoundError(SandboxError):
    """The sandbox does not exist, or the token may not see it."""

    def __init__(self, sandbox_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"sandbox {sandbox_id}: no such sandbox", **more)
        self.sandbox_id = sandbox_id


class SandboxNotRunningError(SandboxError):
    """The sandbox is not running."""

    def __init__(self, sandbox_id: str = "", current_status: str = "", message: str = "", **more: Any) -> None:
        status = f" (it is {current_status})" if current_status else ""
        super().__init__(message or f"sandbox {sandbox_id}: sandbox is not running{status}", **more)
        self.sandbox_id = sandbox_id
        self.current_status = current_status
        """``pending``, ``stopped`` or ``error``."""


class ConflictError(SandboxError):
    """The source, or a sandbox to be merged, changed paths that the sandbox changed too. Nothing was changed."""

    def __init__(self, sandbox_id: str = "", paths: Sequence[str] = (), message: str = "", **more: Any) -> None:
        super().__init__(message or f"sandbox {sandbox_id}: conflict with the source: {', '.join(paths)}", **more)
        self.sandbox_id = sandbox_id
        self.paths = list(paths)
        """The paths in conflict, as many as fit into a message; the call with ``dry_run`` returns all."""


class CodebaseError(SandboxError):
    """An operation on a codebase or its files failed."""


class CodebaseNotFoundError(CodebaseError):
    """The codebase does not exist, or the token may not see it."""

    def __init__(self, codebase_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"codebase {codebase_id}: no such codebase", **more)
        self.codebase_id = codebase_id


class FileNotFoundError(CodebaseError):
    """The file does not exist in the codebase or in the sandbox's view."""

    def __init__(self, codebase_id: str = "", file_path: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"{file_path}: no such file", **more)
        self.codebase_id = codebase_id
        self.file_path = file_path


class UploadError(CodebaseError):
    """The server does not accept a file."""

    def __init__(self, file_path: str = "", codebase_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"upload {file_path}: failed", **more)
        self.file_path = file_path
        self.codebase_id = codebase_id


class CommandTimeoutError(SandboxError):
    """A command reached its time-out and was killed."""

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
    """The policy or the token does not allow the operation."""

    def __init__(self, operation: str = "", path: str = "", message: str = "", **more: Any) -> None:
        what = f"{operation} {path}".strip()
        super().__init__(message or f"{what}: permission denied", **more)
        self.operation = operation
        self.path = path


class SessionError(SandboxError):
    """An operation on a session failed."""

    def __init__(self, session_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"session {session_id}: error", **more)
        self.session_id = session_id


class SessionNotFoundError(SessionError):
    """The session does not exist, or the token may not see it."""

    def __init__(self, session_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(session_id, message or f"session {session_id}: no such session", **more)


class SessionClosedError(SessionError):
    """The session is closed."""

    def __init__(self, session_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(session_id, message or f"session {session_id}: session is closed", **more)


class ExecError(SandboxError):
    """An operation on an attached or detached command failed."""

    def __init__(self, exec_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(message or f"exec {exec_id}: error", **more)
        self.exec_id = exec_id


class ExecNotFoundError(ExecError):
    """The detached command does not exist. A sandbox keeps those that run, and the last 16 that ended."""

    def __init__(self, exec_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(exec_id, message or f"exec {exec_id}: no such exec", **more)


class ExecEndedError(ExecError):
    """The command has ended, or its stream was closed."""

    def __init__(self, exec_id: str = "", message: str = "", **more: Any) -> None:
        super().__init__(exec_id, message or f"exec {exec_id}: the command has ended", **more)


class ResourceLimitExceededError(SandboxError):
    """A limit or a quota is reached, or the disk is full."""

    def __init__(self, resource_type: str = "", limit: Any = None, message: str = "", **more: Any) -> None:
        of = "" if limit is None else f" of {limit}"
        super().__init__(message or f"{resource_type}: the limit{of} is exceeded", **more)
        self.resource_type = resource_type
        """What is limited: ``bytes``, ``files``, ``sandboxes``; else the operation."""
        self.limit = limit
        """The limit; None if it is not a limit of the server, or not known."""


class ChangesLostWarning(UserWarning):
    """A sandbox was destroyed with changes that were neither applied nor synchronized."""


class InvalidConfigurationError(SandboxError):
    """The request is invalid, or this host or server does not support it."""


class VersionMismatchError(InvalidConfigurationError):
    """The server, or the program to start as one, has an incompatible version. The text says which to upgrade."""


class PolicyError(InvalidConfigurationError, ValueError):
    """A rule, a policy or its file is malformed."""

    def __init__(self, message: str = "", file: str = "", line: Optional[int] = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.file = file
        self.line = line
