"""Changes and audit events as lines for people. Text from a sandbox cannot control the terminal."""

from __future__ import annotations

from typing import Any, Dict

from ..types import AuditEvent, ChangeStatus, FileDiff, Risk

_LETTERS = {ChangeStatus.ADDED: "A", ChangeStatus.MODIFIED: "M", ChangeStatus.DELETED: "D", ChangeStatus.RETYPED: "T"}


def escaped(text: str, keep: str = "") -> str:
    """Return a text with invisible characters escaped as in the audit log, except those in ``keep``."""
    return "".join(c if c.isprintable() or c in keep else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    byte = code - 0xDC00  # a byte of a name that is not UTF-8, see os.fsdecode
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else f"\\u{{{code:x}}}"


def change_line(change: FileDiff) -> str:
    """Return a line about a change: a letter, the path, and its risk."""
    notes = []
    if change.risk is not Risk.NONE:
        notes.append(escaped(change.risk_reason) or change.risk.value)
    if change.source_changed:
        notes.append("changed outside, too")
    return f"{_LETTERS[change.status]} {escaped(change.path)}" + (f" ({'; '.join(notes)})" if notes else "")


def audit_line(event: AuditEvent) -> str:
    """Return a line about an audit event. The log has escaped its texts."""
    tell = {
        "command_executed": _executed,
        "permission_denied": _denied,
        "file_changed": _changed,
        "resource_limit_exceeded": _limit,
        "events_omitted": _omitted,
    }.get(event.event)
    said = tell(event.record) if tell else ", ".join(map(str, event.record.get("paths", ())))
    return f"{event.event} {said}".rstrip()


def _executed(record: Dict[str, Any]) -> str:
    argv = record.get("argv", [])
    command = argv[2] if argv[:2] == ["/bin/sh", "-c"] and len(argv) == 3 else " ".join(argv)
    end = "timed out" if record.get("timed_out") else f"exit code {record.get('exit_code')}"
    if record.get("oom_killed"):
        end += ", out of memory"
    return f"[{end}] {command}"


def _denied(record: Dict[str, Any]) -> str:
    rule = record.get("rule")
    by = f'by "{rule}"' if rule else "by default"
    times = f", {record['count']} times" if record.get("count", 1) > 1 else ""
    return f"{record.get('operation')} {record.get('path')}: {record.get('permission')} {by}{times}"


def _changed(record: Dict[str, Any]) -> str:
    lists = [f"{kind} {path}" for kind in ("created", "modified", "deleted") for path in record.get(kind, ())]
    lists += [f"renamed {pair['from']} to {pair['to']}" for pair in record.get("renamed", ())]
    return ", ".join(lists)


def _omitted(record: Dict[str, Any]) -> str:
    counts = [f"{count.get('records')} {count.get('event')}" for count in record.get("events", ())]
    return f"only counted: {', '.join(counts)}"


def _limit(record: Dict[str, Any]) -> str:
    return f"{record.get('resource')} {record.get('limit')}"
