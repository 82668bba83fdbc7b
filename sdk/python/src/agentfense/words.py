"""The API's enumerations, each member its word."""

from __future__ import annotations

from enum import Enum

from ._generated import PatternType as PatternType
from ._generated import Permission as Permission
from ._generated import Risk as Risk


class RuleOrigin(str, Enum):
    """Who made a rule: a policy; or a flag of the command line, --hide or another, which rank in their own way."""

    RULE = "rule"
    FLAG = "flag"
    HIDE = "hide"


class SandboxStatus(str, Enum):
    """The state of a sandbox."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"


class SessionStatus(str, Enum):
    """The state of a session."""

    UNKNOWN = "unknown"
    ACTIVE = "active"
    CLOSED = "closed"


class RuntimeType(str, Enum):
    """What confines a sandbox's processes."""

    BWRAP = "bwrap"
    DOCKER = "docker"


class ChangeStatus(str, Enum):
    """What became of a path. A rename is a deletion and an addition."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RETYPED = "retyped"


class Outcome(str, Enum):
    """What apply did, or would do, with a path."""

    APPLIED = "applied"
    PRESENT = "present"
    KEPT = "kept"
    CONFLICT = "conflict"
    REFUSED = "refused"
    FAILED = "failed"
    SKIPPED = "skipped"
    CHANGED_SINCE_REVIEW = "changed_since_review"
    """Left out: it is not what was reviewed."""
    LEFT_OUT = "left_out"
    """No apply takes it: see ``FileDiff.left_out``."""


class SyncMode(str, Enum):
    """When what a sandbox changes reaches its codebase."""

    ON_EXEC = "on_exec"
    """When a command ends."""
    ON_STOP = "on_stop"
    """When the sandbox stops."""
    MANUAL = "manual"
    """By ``apply`` alone: the changes wait for a review."""


class ChangeKind(str, Enum):
    """What became of a path of a sandbox's view."""

    CREATED = "created"
    MODIFIED = "modified"
    """Its content, or its mode or times."""
    DELETED = "deleted"
    RENAMED = "renamed"
    LOST = "lost"
    """Of a watch alone: more has changed at the path and below than could be told."""
