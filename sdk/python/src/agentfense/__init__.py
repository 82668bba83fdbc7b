"""Run AI agents and untrusted commands on a real directory, under a policy.

    from agentfense import Sandbox

    with Sandbox.from_local(".") as sb:
        print(sb.run("ls").stdout)

Modules that talk to the server are imported when they are first used, so that importing the package
is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

from . import exceptions, presets, types
from ._version import __version__
from .exceptions import (
    ChangesLostWarning,
    CodebaseError,
    CodebaseNotFoundError,
    CommandExecutionError,
    CommandTimeoutError,
    ConflictError,
    ConnectionError,
    ExecEndedError,
    ExecError,
    ExecNotFoundError,
    FileNotFoundError,
    InvalidConfigurationError,
    PermissionDeniedError,
    PolicyError,
    ResourceLimitExceededError,
    SandboxError,
    SandboxNotFoundError,
    SandboxNotRunningError,
    SessionClosedError,
    SessionError,
    SessionNotFoundError,
    UploadError,
    VersionMismatchError,
)
from .presets import (
    PRESET_AGENT_SAFE,
    PRESET_DEVELOPMENT,
    PRESET_FULL_ACCESS,
    PRESET_NOTHING,
    PRESET_READ_ONLY,
    PRESET_VIEW_ONLY,
    PRESETS,
    extend_preset,
    get_preset,
    get_preset_dicts,
    list_presets,
    register_preset,
)
from .results import Denial, FileChange, KeepResult, KeptPath
from .types import (
    AllowedHost,
    ApplyResult,
    Ask,
    AskList,
    AskScope,
    AuditEvent,
    Board,
    BoardMember,
    BoardMessage,
    BoardTopic,
    ChangeGroup,
    ChangeStatus,
    Codebase,
    ConflictKind,
    ConflictResolution,
    DetachedExec,
    Diff,
    DiscardResult,
    ExecResult,
    Explanation,
    FileDiff,
    FileInfo,
    FileState,
    ForkOrigin,
    GitUser,
    Hunk,
    LogRecord,
    MessagePage,
    Mount,
    Outcome,
    OutputChunk,
    PathGrant,
    PathLock,
    PathOutcome,
    PatternType,
    Permission,
    PermissionRule,
    RedactFormat,
    ResourceLimits,
    Restored,
    Reversal,
    ReversedPath,
    Risk,
    RuleMatch,
    RuleOrigin,
    RuntimeType,
    SandboxSecret,
    SandboxStatus,
    SandboxUsage,
    Session,
    SessionStatus,
    Snapshot,
    SnapshotList,
    SnapshotReason,
    Stats,
    SyncMode,
    Transaction,
    UploadResult,
    ViewEntry,
)
from .types import Sandbox as SandboxInfo
from .words import ChangeKind, TransactionKind, TransactionState

if TYPE_CHECKING:
    from . import utils
    from .async_client import AsyncSandboxClient, AsyncSessionWrapper
    from .async_sandbox import AsyncSandbox
    from .client import SandboxClient, SessionWrapper
    from .policy import Policy
    from .sandbox import Sandbox
    from .utils import (
        count_files,
        generate_codebase_name,
        generate_owner_id,
        human_readable_size,
        parse_ignore_file,
        walk_directory,
    )

_LATER = {
    "Sandbox": "sandbox",
    "AsyncSandbox": "async_sandbox",
    "Policy": "policy",
    "SandboxClient": "client",
    "SessionWrapper": "client",
    "AsyncSandboxClient": "async_client",
    "AsyncSessionWrapper": "async_client",
    "walk_directory": "utils",
    "parse_ignore_file": "utils",
    "human_readable_size": "utils",
    "generate_codebase_name": "utils",
    "generate_owner_id": "utils",
    "count_files": "utils",
}


def __getattr__(name: str) -> Any:
    # _LATER maps the name of each class to its module.
    if name == "utils":
        return importlib.import_module(".utils", __name__)
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("." + _LATER[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AllowedHost",
    "Ask",
    "AskList",
    "AskScope",
    "PathGrant",
    "PathLock",
    "Board",
    "BoardMember",
    "BoardMessage",
    "BoardTopic",
    "MessagePage",
    "Mount",
    "SandboxSecret",
    "Sandbox",
    "AsyncSandbox",
    "SandboxClient",
    "SessionWrapper",
    "AsyncSandboxClient",
    "AsyncSessionWrapper",
    "types",
    "presets",
    "exceptions",
    "utils",
    "DetachedExec",
    "ApplyResult",
    "AuditEvent",
    "LogRecord",
    "ChangeKind",
    "ChangeGroup",
    "ChangeStatus",
    "Codebase",
    "Denial",
    "Diff",
    "DiscardResult",
    "ExecResult",
    "Explanation",
    "FileChange",
    "FileDiff",
    "FileInfo",
    "FileState",
    "GitUser",
    "Hunk",
    "KeepResult",
    "KeptPath",
    "ConflictKind",
    "ConflictResolution",
    "Outcome",
    "OutputChunk",
    "PathOutcome",
    "PatternType",
    "Permission",
    "PermissionRule",
    "Policy",
    "ResourceLimits",
    "Reversal",
    "ReversedPath",
    "Risk",
    "RuleMatch",
    "RedactFormat",
    "RuleOrigin",
    "RuntimeType",
    "SandboxInfo",
    "SandboxStatus",
    "SandboxUsage",
    "Session",
    "SessionStatus",
    "SnapshotReason",
    "SnapshotList",
    "Snapshot",
    "Restored",
    "ForkOrigin",
    "SyncMode",
    "Stats",
    "Transaction",
    "TransactionKind",
    "TransactionState",
    "UploadResult",
    "ViewEntry",
    "PRESETS",
    "PRESET_AGENT_SAFE",
    "PRESET_DEVELOPMENT",
    "PRESET_FULL_ACCESS",
    "PRESET_NOTHING",
    "PRESET_READ_ONLY",
    "PRESET_VIEW_ONLY",
    "extend_preset",
    "get_preset",
    "get_preset_dicts",
    "list_presets",
    "register_preset",
    "ChangesLostWarning",
    "CodebaseError",
    "CodebaseNotFoundError",
    "CommandExecutionError",
    "CommandTimeoutError",
    "ConflictError",
    "ConnectionError",
    "ExecError",
    "ExecNotFoundError",
    "ExecEndedError",
    "FileNotFoundError",
    "InvalidConfigurationError",
    "PermissionDeniedError",
    "PolicyError",
    "ResourceLimitExceededError",
    "SandboxError",
    "SandboxNotFoundError",
    "SandboxNotRunningError",
    "SessionClosedError",
    "SessionError",
    "SessionNotFoundError",
    "UploadError",
    "VersionMismatchError",
    "count_files",
    "generate_codebase_name",
    "generate_owner_id",
    "human_readable_size",
    "parse_ignore_file",
    "walk_directory",
    "__version__",
]
