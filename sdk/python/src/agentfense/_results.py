"""The results of commands, from the API's messages."""

from __future__ import annotations

from typing import Any, Optional

from ._gen.sandbox.v1 import sandbox_pb2
from ._wire import decode_path, named, permission_of, span_of
from .results import Denial, FileChange, KeepResult, KeptPath
from .types import ExecResult
from .words import ChangeKind


def exec_result_of(message: Any, command: str) -> ExecResult:
    """Return the result of a command."""
    return ExecResult(
        stdout=message.stdout,
        stderr=message.stderr,
        exit_code=message.exit_code,
        duration=span_of(message.duration),
        command=command,
        stdout_bytes=message.stdout_bytes or message.stdout.encode(),
        stderr_bytes=message.stderr_bytes or message.stderr.encode(),
        stdout_truncated=message.stdout_truncated,
        stderr_truncated=message.stderr_truncated,
        conflicts=[decode_path(path) for path in message.conflicts],
        conflict_count=message.conflict_count,
        exec_id=message.exec_id,
        denied=[denial_of(denial) for denial in message.denied],
        denied_count=message.denied_count,
        changed=[file_change_of(change) for change in message.changed],
        changed_count=message.changed_count,
        sync_held=message.sync_held,
        keep=keep_result_of(message),
    )


def keep_result_of(message: Any) -> Optional[KeepResult]:
    """Return what the end of a command kept."""
    if not message.HasField("keep"):
        return None
    return KeepResult(
        kept=[_kept_path_of(path) for path in message.keep.kept],
        kept_count=message.keep.kept_count,
        not_kept=[_kept_path_of(path) for path in message.keep.not_kept],
        not_kept_count=message.keep.not_kept_count,
        note=message.keep.note,
    )


def _kept_path_of(message: Any) -> KeptPath:
    return KeptPath(message.mount, decode_path(message.path), list(message.keys), message.reason)


def denial_of(message: Any) -> Denial:
    """Return an operation that the policy refused."""
    return Denial(
        path=decode_path(message.path),
        operation=message.operation,
        permission=permission_of(message.permission),
        rule=message.rule,
        rule_index=message.rule_index,
        program=decode_path(message.program),
        pid=message.pid,
        count=message.count,
        mount=message.mount,
        lock=decode_path(message.lock),
    )


def file_change_of(message: Any) -> FileChange:
    """Return a change that a command made."""
    kind = named(sandbox_pb2.ChangeKind, "CHANGE_KIND_", message.kind, "modified")
    return FileChange(decode_path(message.path), ChangeKind(kind), decode_path(message.old_path), message.mount)
