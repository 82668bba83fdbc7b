"""Conversion between the API's messages and this package's objects."""

from __future__ import annotations

import json
import re
import stat
from datetime import datetime, timedelta
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from . import types as t
from ._arguments import PathLike, bytes_of, path_of, text_of
from ._gen.sandbox.v1 import common_pb2, history_pb2, sandbox_pb2
from .exceptions import InvalidConfigurationError, PolicyError, SandboxError
from .presets import as_rules

Seconds = Union[int, float]


def named(enum: Any, prefix: str, number: int, fallback: str) -> str:
    """Return the name of an enumeration's value without its prefix; ``fallback`` for an unknown number."""
    name: str = enum.Name(number) if number in enum.values() else ""
    known = name.startswith(prefix) and not name.endswith("_UNSPECIFIED")
    return name[len(prefix) :].lower() if known else fallback


def number_of(enum: Any, prefix: str, value: str) -> Any:
    return enum.Value(prefix + value.upper())


# Paths

_ESCAPE = re.compile(rb"\\x(5c|[89a-f][0-9a-f])")
_SURROGATE = re.compile("[\udc80-\udcff]")


def encode_path(path: PathLike, name: str = "path") -> str:
    """Return a path in the API's spelling: bytes that are not UTF-8, which Python has as surrogates, are escaped.

    Raises TypeError for what is not a path, and ValueError for other surrogates.
    """
    plain = _ESCAPE.sub(lambda m: b"\\x5cx" + m.group(1), path_of(path, name).encode("utf-8", "surrogateescape"))
    return _SURROGATE.sub(lambda m: f"\\x{ord(m.group()) - 0xDC00:02x}", plain.decode("utf-8", "surrogateescape"))


def decode_path(text: str) -> str:
    """Return the path that encode_path was given."""
    raw = _ESCAPE.sub(lambda m: bytes([int(m.group(1), 16)]), text.encode())
    return raw.decode("utf-8", "surrogateescape")


def inside_path(path: PathLike) -> str:
    """Return the common form "x" of "/workspace/x", "/x" and "x"."""
    path = path_of(path)
    if path == "/workspace" or path.startswith("/workspace/"):
        path = path[len("/workspace") :]
    return path.lstrip("/")


# Times


def time_of(stamp: Timestamp) -> Optional[datetime]:
    """Return a naive local time; None if it is not set."""
    return datetime.fromtimestamp(stamp.seconds + stamp.nanos / 1e9) if stamp.seconds else None


def stamp_of(time: datetime) -> Timestamp:
    """Return a time of the API. A naive time is local."""
    stamp = Timestamp()
    stamp.FromMicroseconds(round(time.timestamp() * 1_000_000))
    return stamp


def span_of(duration: Duration) -> timedelta:
    """Return a duration as a timedelta."""
    return timedelta(seconds=duration.seconds, microseconds=duration.nanos / 1000)


def seconds_of(timeout: Union[timedelta, Seconds, None], name: str = "timeout") -> Optional[float]:
    """Return a time-out in seconds. Raises TypeError for other types, and ValueError unless it is above 0."""
    if timeout is None:
        return None
    try:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: want seconds or a timedelta, not {timeout!r}") from None
    if not 0 < seconds < 1e9:
        raise ValueError(f"{name} {timeout!r}: want more than 0 seconds, or None")
    return seconds


def duration_of(seconds: Optional[float]) -> Optional[Duration]:
    """Return a duration of the API."""
    if seconds is None:
        return None
    duration = Duration()
    duration.FromNanoseconds(max(1, round(seconds * 1e9)))
    return duration


# Rules


def wire_rules(rules: Optional[Sequence[t.RuleLike]], name: str = "permissions") -> Any:
    """Return rules of the API. Raises PolicyError for a malformed one."""
    try:
        checked = as_rules(rules, name)
    except ValueError as cause:
        raise PolicyError(str(cause)) from None
    return [
        common_pb2.PermissionRule(
            pattern=rule.pattern,
            permission=number_of(common_pb2.Permission, "PERMISSION_", rule.permission.value),
            type=number_of(common_pb2.PatternType, "PATTERN_TYPE_", rule.type.value),
            priority=rule.priority,
            origin=number_of(common_pb2.RuleOrigin, "RULE_ORIGIN_", _ORIGINS.get(rule.origin, rule.origin.value)),
            own=rule.permission is t.Permission.NONE and not rule.strict,
            redact=number_of(
                common_pb2.RedactFormat, "REDACT_FORMAT_", rule.redact.value if rule.redact else "unspecified"
            ),
            substitute=rule.substitute,
            keep=rule.keep,
            keep_keys=rule.keep_keys,
        )
        for rule in checked
    ]


_ORIGINS = {t.RuleOrigin.RULE: "unspecified"}
_PATTERN_TYPES = [kind.value for kind in t.PatternType]


def rule_of(message: Any) -> t.PermissionRule:
    """Return a rule."""
    kind = named(common_pb2.PatternType, "PATTERN_TYPE_", message.type, "glob")
    return t.PermissionRule(
        pattern=message.pattern,
        permission=permission_of(message.permission),
        type=t.PatternType(kind if kind in _PATTERN_TYPES else "glob"),
        priority=message.priority,
        origin=t.RuleOrigin(named(common_pb2.RuleOrigin, "RULE_ORIGIN_", message.origin, "rule")),
        strict=permission_of(message.permission) is t.Permission.NONE and not message.own,
        redact=_redact_of(message.redact),
        substitute=message.substitute,
        keep=message.keep,
        keep_keys=list(message.keep_keys),
    )


def _redact_of(number: int) -> Optional[t.RedactFormat]:
    return t.RedactFormat(named(common_pb2.RedactFormat, "REDACT_FORMAT_", number, "")) if number else None


def permission_of(number: int) -> t.Permission:
    """Return a permission."""
    return t.Permission(named(common_pb2.Permission, "PERMISSION_", number, "none"))


def ask_list_of(message: Any) -> t.AskList:
    """Return what waits for an answer."""
    asks = [
        t.Ask(
            id=ask.id,
            path=decode_path(ask.path),
            permission=permission_of(ask.permission),
            needed=permission_of(ask.needed),
            operation=ask.operation,
            host=decode_path(ask.host),
            rule=ask.rule,
            exec_id=ask.exec_id,
            program=decode_path(ask.program),
            pid=ask.pid,
            since=time_of(ask.since),
            until=time_of(ask.until),
            waiting=ask.waiting,
            mount=ask.mount,
        )
        for ask in message.asks
    ]
    return t.AskList(asks, message.version)


def locks_of(message: Any) -> List[t.PathLock]:
    """Return the locks of a board."""
    return [
        t.PathLock(
            sandbox=lock.sandbox,
            path=decode_path(lock.path),
            own=lock.own,
            advisory=lock.advisory,
            waits=lock.waits,
            since=time_of(lock.since),
            until=time_of(lock.until),
        )
        for lock in message.locks
    ]


def message_page_of(message: Any) -> t.MessagePage:
    """Return messages of a board."""
    return t.MessagePage([_message_of(sent) for sent in message.messages], message.next, message.lost)


def _message_of(message: Any) -> t.BoardMessage:
    return t.BoardMessage(
        seq=message.seq,
        sandbox=message.sandbox,
        sandbox_id=message.sandbox_id,
        by=message.by,
        topic=message.topic,
        text=message.text,
        time=time_of(message.time),
    )


def query_result_of(message: Any) -> t.QueryResult:
    """Return what a query found."""
    return t.QueryResult(
        list(message.columns), [[_query_value_of(v) for v in row.values] for row in message.rows], message.more
    )


def _query_value_of(value: Any) -> Union[int, float, str, bytes, None]:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found: Union[int, float, str, bytes] = getattr(value, kind)
    return found.decode(errors="surrogateescape") if kind == "text_bytes" and isinstance(found, bytes) else found


def board_of(message: Any) -> t.Board:
    """Return who uses a board."""
    return t.Board(
        [
            t.BoardMember(
                member.sandbox,
                member.sandbox_id,
                _message_of(member.status) if member.HasField("status") else None,
            )
            for member in message.members
        ],
        [
            t.BoardTopic(topic.topic, topic.messages, _message_of(topic.last) if topic.HasField("last") else None)
            for topic in message.topics
        ],
    )


# Sandboxes

_LIMITS = ("memory_bytes", "cpu_quota", "cpu_shares", "pids_limit", "disk_bytes", "disk_inodes")


def wire_resources(resources: Union[t.ResourceLimits, Mapping[str, Any], None]) -> Any:
    """Return limits of the API. Raises InvalidConfigurationError for an unknown name."""
    if resources is None:
        return None
    try:
        limits = resources if isinstance(resources, t.ResourceLimits) else t.ResourceLimits.from_dict(resources)
        return sandbox_pb2.ResourceLimits(**limits.to_dict())
    except (ValueError, TypeError) as cause:
        raise InvalidConfigurationError(f"resources: {cause}") from None


def wire_runtime(runtime: Optional[t.RuntimeType]) -> Any:
    """Return a runtime of the API. Raises InvalidConfigurationError for an unknown one."""
    if runtime is None:
        return 0
    try:
        return number_of(sandbox_pb2.RuntimeType, "RUNTIME_TYPE_", t.RuntimeType(runtime).value)
    except ValueError as cause:
        raise InvalidConfigurationError(f"runtime: {cause}: want bwrap or docker") from None


_MOUNT_FIELDS = ("source", "place", "name", "mode", "rules")


def wire_mounts(mounts: Sequence[t.MountLike]) -> Any:
    """Return mounts of the API. Raises InvalidConfigurationError for what is none."""
    if isinstance(mounts, (str, bytes, t.Mount, Mapping)) or not hasattr(mounts, "__iter__"):
        raise InvalidConfigurationError("mounts: want a list of Mount objects or mappings")
    return [_wire_mount(mount, f"mounts[{i}]") for i, mount in enumerate(mounts)]


def _wire_mount(mount: t.MountLike, what: str) -> Any:
    if not isinstance(mount, t.Mount):
        if not isinstance(mount, Mapping):
            raise InvalidConfigurationError(f"{what}: want a Mount or a mapping, not {type(mount).__name__}")
        unknown = [str(key) for key in mount if key not in _MOUNT_FIELDS]
        if unknown or "source" not in mount:
            wrong = f"unknown key {unknown[0]!r}" if unknown else "source is missing"
            raise InvalidConfigurationError(f"{what}: {wrong}: the keys are {', '.join(_MOUNT_FIELDS)}")
        mount = t.Mount(**mount)
    return sandbox_pb2.Mount(
        source=encode_path(mount.source, f"{what}: source"),
        place=encode_path(mount.place, f"{what}: place"),
        name=text_of(mount.name, f"{what}: name"),
        mode=text_of(mount.mode, f"{what}: mode"),
        rules=wire_rules(mount.rules, f"{what}: rules"),
    )


def _mount_of(message: Any) -> t.Mount:
    return t.Mount(
        source=decode_path(message.source),
        place=decode_path(message.place),
        name=message.name,
        mode=message.mode,
        rules=[rule_of(rule) for rule in message.rules],
    )


def sandbox_of(message: Any) -> t.Sandbox:
    """Return the description of a sandbox."""
    limits = {name: getattr(message.resources, name) or None for name in _LIMITS}
    return t.Sandbox(
        id=message.id,
        codebase_id=message.codebase_id,
        status=t.SandboxStatus(named(common_pb2.SandboxStatus, "SANDBOX_STATUS_", message.status, "error")),
        permissions=[rule_of(rule) for rule in message.permissions],
        labels=dict(message.labels),
        runtime=t.RuntimeType(named(sandbox_pb2.RuntimeType, "RUNTIME_TYPE_", message.runtime, "bwrap")),
        image=message.image or None,
        resources=t.ResourceLimits(**limits) if any(limits.values()) else None,
        created_at=time_of(message.created_at),
        started_at=time_of(message.started_at),
        stopped_at=time_of(message.stopped_at),
        expires_at=time_of(message.expires_at),
        status_reason=message.status_reason,
        name=message.name,
        owner_id=message.owner_id,
        sync_held=message.sync_held,
        sync=_SYNC.get(message.sync),
        workspace=decode_path(message.workspace) or "/workspace",
        home=message.home or "private",
        variables=[decode_path(name) for name in message.variables],
        allow_net=[t.AllowedHost(allowed.host, time_of(allowed.until)) for allowed in message.allow_net],
        net_limits=list(message.net_limits),
        publish=list(message.publish),
        publish_address=message.publish_address,
        ask_timeout=message.ask_timeout.ToTimedelta() if message.HasField("ask_timeout") else None,
        board=message.board,
        git=message.git,
        unsaved_branches=message.unsaved_branches,
        grants=[
            t.PathGrant(decode_path(grant.path), grant.directory, permission_of(grant.permission), time_of(grant.until))
            for grant in message.grants
        ],
        mounts=[_mount_of(mount) for mount in message.mounts],
        scratch=[decode_path(path) for path in message.scratch],
        secrets=[t.SandboxSecret(secret.name, list(secret.hosts)) for secret in message.secrets],
        usage=_usage_of(message.usage) if message.HasField("usage") else None,
    )


def _usage_of(message: Any) -> t.SandboxUsage:
    return t.SandboxUsage(
        message.pending_changes, message.pending_changes_more, message.disk_bytes, message.disk_bytes_more
    )


_SYNC = {
    sandbox_pb2.SYNC_MODE_ON_EXEC: t.SyncMode.ON_EXEC,
    sandbox_pb2.SYNC_MODE_ON_STOP: t.SyncMode.ON_STOP,
    sandbox_pb2.SYNC_MODE_MANUAL: t.SyncMode.MANUAL,
}


def wire_sync(sync: Union[t.SyncMode, str, None]) -> Any:
    """Return a sync mode of the API. Raises ValueError for an unknown one."""
    if sync is None:
        return int(sandbox_pb2.SYNC_MODE_UNSPECIFIED)
    wanted = t.SyncMode(sync)
    return next(value for value, mode in _SYNC.items() if mode is wanted)


# Commands


def chunk_of(message: Any) -> Optional[t.OutputChunk]:
    """Return a piece of output; None for a message without one."""
    if message.type == sandbox_pb2.ExecOutput.OUTPUT_TYPE_STDOUT:
        return t.OutputChunk("stdout", message.data)
    if message.type == sandbox_pb2.ExecOutput.OUTPUT_TYPE_STDERR:
        return t.OutputChunk("stderr", message.data)
    return None


def wire_stdin(stdin: Union[str, bytes, None]) -> Dict[str, Any]:
    """Return the fields of a request with a command's input."""
    if stdin is None or isinstance(stdin, str):
        return {"stdin": text_of(stdin or "", "stdin", ": pass bytes")}
    return {"stdin_bytes": bytes_of(stdin, "stdin")}


def session_of(message: Any) -> t.Session:
    """Return the description of a session."""
    return t.Session(
        id=message.id,
        sandbox_id=message.sandbox_id,
        status=t.SessionStatus(named(common_pb2.SessionStatus, "SESSION_STATUS_", message.status, "unknown")),
        shell=message.shell,
        created_at=time_of(message.created_at),
        closed_at=time_of(message.closed_at),
    )


# Codebases and files


def codebase_of(message: Any) -> t.Codebase:
    """Return the description of a codebase."""
    return t.Codebase(
        id=message.id,
        name=message.name,
        owner_id=message.owner_id,
        size=message.size,
        file_count=message.file_count,
        created_at=time_of(message.created_at),
        updated_at=time_of(message.updated_at),
        linked=message.linked,
    )


def file_info_of(message: Any) -> t.FileInfo:
    """Return a file of a codebase."""
    return t.FileInfo(
        path=decode_path(message.path),
        name=decode_path(message.name),
        is_dir=message.is_dir,
        size=message.size,
        modified_at=time_of(message.modified_at),
        mode=message.mode,
        symlink_target=decode_path(message.symlink_target),
    )


def view_entry_of(message: Any) -> t.ViewEntry:
    """Return an entry of a sandbox's view."""
    path = decode_path(message.path)
    return t.ViewEntry(
        path=path,
        name=path.rsplit("/", 1)[-1],
        is_dir=stat.S_ISDIR(message.mode),
        size=message.size,
        permission=permission_of(message.permission),
        modified_at=time_of(message.modified_at),
        mode=message.mode,
        symlink_target=decode_path(message.symlink_target),
        changed=message.origin != sandbox_pb2.VIEW_ORIGIN_SOURCE,
    )


def upload_result_of(message: Any) -> t.UploadResult:
    """Return the result of an upload."""
    return t.UploadResult(message.codebase_id, decode_path(message.file_path), message.size, message.checksum)


# Changes


def _state_of(message: Any, field: str) -> Optional[t.FileState]:
    if not message.HasField(field):
        return None
    state = getattr(message, field)
    return t.FileState(state.mode, state.size, decode_path(state.symlink_target), state.sha256, state.link_count)


def _change(number: int) -> str:
    return named(sandbox_pb2.ChangeStatus, "CHANGE_STATUS_", number, "")


def change_status_of(number: int) -> Optional[t.ChangeStatus]:
    """Return the status of a change; None for none, and for one of a newer server."""
    word = _change(number)
    return t.ChangeStatus(word) if word else None


def file_diff_of(message: Any) -> t.FileDiff:
    """Return a change of a sandbox."""
    return t.FileDiff(
        path=decode_path(message.path),
        status=t.ChangeStatus(_change(message.status) or "modified"),
        risk=t.Risk(named(sandbox_pb2.Risk, "RISK_", message.risk, "none")),
        risk_reason=message.risk_reason,
        source_changed=message.source_changed,
        old=_state_of(message, "old"),
        new=_state_of(message, "new"),
        binary=message.binary,
        too_large=message.too_large,
        inserted=message.inserted,
        deleted=message.deleted,
        patch=message.patch,
        patch_bytes=message.patch_bytes or message.patch.encode(),
        patch_omitted=message.patch_omitted,
        old_content_unknown=message.old_content_unknown,
        group=message.group,
        renamed_from=decode_path(message.renamed_from),
        renamed_to=decode_path(message.renamed_to),
        own=message.own,
        left_out=message.left_out,
        id=message.id,
        mode_id=message.mode_id,
        hunks=[_hunk_of(h, [_hunk_of(piece, []) for piece in h.pieces]) for h in message.hunks],
    )


def _hunk_of(message: Any, pieces: List[t.Hunk]) -> t.Hunk:
    return t.Hunk(message.id, message.old_start, message.old_lines, message.new_start, message.new_lines, pieces)


def change_group_of(message: Any) -> t.ChangeGroup:
    """Return a group of changes."""
    return t.ChangeGroup(name=message.name, lines=list(message.lines), count=message.count)


def commit_of(message: Any) -> t.Commit:
    """Return a commit of a sandbox."""
    return t.Commit(
        branch=decode_path(message.branch),
        current=message.current,
        id=message.id,
        author=message.author,
        subject=message.subject,
        signed=message.signed,
        merge=message.merge,
        files=[
            t.CommittedFile(
                path=decode_path(file.path),
                status=t.ChangeStatus(_change(file.status)) if _change(file.status) else None,
                outcome=named(sandbox_pb2.CommitOutcome, "COMMIT_OUTCOME_", file.outcome, ""),
                reason=file.reason,
                risk=t.Risk(named(sandbox_pb2.Risk, "RISK_", file.risk, "none")),
                risk_reason=file.risk_reason,
            )
            for file in message.files
        ],
        file_count=message.file_count,
        applied=message.applied,
    )


def applied_commits_of(message: Any) -> t.AppliedCommits:
    """Return the result of apply_commits."""

    def stopped(files: Any) -> List[t.StoppedFile]:
        return [t.StoppedFile(decode_path(file.path), file.commit, file.reason, file.conflict) for file in files]

    return t.AppliedCommits(
        base=message.base,
        commit=message.commit,
        branch=decode_path(message.branch),
        checked_out=message.checked_out,
        transaction_id=message.transaction,
        commits=[
            t.AppliedCommit(getattr(one, "from"), one.id, one.author, one.subject, one.left_out)
            for one in message.commits
        ],
        left_out=stopped(message.left_out),
        refused=stopped(message.refused),
        commit_count=message.commit_count,
        left_out_count=message.left_out_count,
        refused_count=message.refused_count,
        lost_signatures=message.lost_signatures,
    )


def apply_result_of(message: Any) -> t.ApplyResult:
    """Return the result of apply."""
    return t.ApplyResult(
        results=[
            t.PathOutcome(
                path=decode_path(r.path),
                outcome=t.Outcome(named(sandbox_pb2.Outcome, "OUTCOME_", r.outcome, "failed")),
                reason=r.reason,
                status=change_status_of(r.status),
                hunks=r.hunks,
                of_hunks=r.of_hunks,
                merged=r.merged,
                conflicts=r.conflicts,
                conflict_kind=conflict_kind_of(r.conflict_kind),
            )
            for r in message.results
        ],
        result_count=message.result_count,
        applied_count=message.applied_count,
        written_again=[decode_path(path) for path in message.written_again],
        transaction_id=message.transaction_id,
        commit=message.commit,
        statement=message.statement,
    )


def _branch_move_of(message: Any) -> Optional[t.BranchMove]:
    if not message.HasField("branch"):
        return None
    moved = message.branch
    return t.BranchMove(decode_path(moved.branch), moved.from_commit, moved.to_commit)


def transaction_of(message: Any) -> t.Transaction:
    """Return a transaction."""
    return t.Transaction(
        id=message.id,
        kind=t.TransactionKind(named(history_pb2.TransactionKind, "TRANSACTION_KIND_", message.kind, "apply")),
        state=t.TransactionState(named(history_pb2.TransactionState, "TRANSACTION_STATE_", message.state, "pending")),
        time=time_of(message.time),
        sandbox_id=message.sandbox_id,
        sandbox_name=message.sandbox_name,
        path_count=message.path_count,
        mount=message.mount,
        codebase_id=message.codebase_id,
        reverses=message.reverses,
        reversed_by=message.reversed_by,
        expired=message.expired,
        image_bytes=message.image_bytes,
        branch=_branch_move_of(message),
    )


def reversal_of(message: Any) -> t.Reversal:
    """Return the result of undo or redo."""
    return t.Reversal(
        of=transaction_of(message.of),
        kind=t.TransactionKind(named(history_pb2.TransactionKind, "TRANSACTION_KIND_", message.kind, "undo")),
        transaction_id=message.transaction_id,
        paths=[
            t.ReversedPath(
                path=decode_path(path.path),
                status=change_status_of(path.status),
                conflict=path.conflict,
            )
            for path in message.paths
        ],
        path_count=message.path_count,
        conflict_count=message.conflict_count,
        given_back=message.given_back,
    )


def conflict_kind_of(value: int) -> Optional[t.ConflictKind]:
    """Return a kind of conflict; None for none, and for one of a newer server."""
    word = named(sandbox_pb2.ConflictKind, "CONFLICT_KIND_", value, "")
    return t.ConflictKind(word) if word else None


def discard_result_of(message: Any) -> t.DiscardResult:
    """Return the result of discard."""
    return t.DiscardResult(
        paths=[decode_path(path) for path in message.paths],
        path_count=message.path_count,
        written_again=[decode_path(path) for path in message.written_again],
    )


def explanation_of(message: Any, path: str) -> t.Explanation:
    """Return the permission of a path with the rule that decides."""
    return t.Explanation(
        path=path,
        permission=permission_of(message.permission),
        reason=message.reason,
        rule=rule_of(message.rule) if message.HasField("rule") else None,
        rule_index=message.rule_index,
        traversable=message.traversable,
        ancestor=decode_path(message.ancestor),
        matches=[t.RuleMatch(match.rule_index, match.why) for match in message.matches],
    )


# Audit and use


def audit_event_of(message: Any) -> t.AuditEvent:
    """Return a record of the audit log."""
    record = json.loads(message.record) if message.record else {}
    return t.AuditEvent(message.seq, message.event, time_of(message.time), record, message.record)


_STREAMS = {1: "stdout", 2: "stderr"}


def log_record_of(message: Any) -> t.LogRecord:
    """Return a record of the output log."""
    return t.LogRecord(
        exec_id=message.exec_id,
        time=time_of(message.time),
        argv=list(message.argv),
        continued=message.continued,
        stream=_STREAMS.get(message.stream, ""),
        data=message.data,
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        lost_bytes=message.lost_bytes,
    )


def stats_of(message: Any) -> t.Stats:
    """Return what a sandbox uses."""

    def given(field: str) -> Any:
        return getattr(message, field) if message.HasField(field) else None

    return t.Stats(
        memory_bytes=given("memory_bytes"),
        memory_peak_bytes=given("memory_peak_bytes"),
        cpu_time=span_of(message.cpu_time) if message.HasField("cpu_time") else None,
        pids=given("pids"),
        delta_bytes=message.delta_bytes,
        delta_inodes=message.delta_inodes,
        execs=message.execs,
        sessions=message.sessions,
        oom_kills=message.oom_kills,
        pids_max_hits=message.pids_max_hits,
        view_requests=dict(message.view_requests),
    )


def detached_exec_of(message: Any) -> t.DetachedExec:
    """Return the description of a detached command."""
    return t.DetachedExec(
        exec_id=message.exec_id,
        argv=list(message.argv),
        session_id=message.session_id or None,
        started_at=time_of(message.started_at),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
    )


def exec_id_of(message: Any) -> str:
    """Return the id in the first message of a detached command."""
    if message is None or not message.exec_id:
        raise SandboxError("exec: the server sent no id for the detached command")
    exec_id: str = message.exec_id
    return exec_id
