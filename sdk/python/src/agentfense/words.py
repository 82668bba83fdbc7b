"""The API's enumerations, each member its word."""

from __future__ import annotations

from enum import Enum


class Permission(str, Enum):
    """What a path is to a sandbox: it does not exist, is listed without its content, can be read, can be changed."""

    NONE = "none"
    VIEW = "view"
    READ = "read"
    WRITE = "write"


class PatternType(str, Enum):
    """How a rule's pattern is read; AUTO tells it from the pattern's text, as a policy file does."""

    GLOB = "glob"
    DIRECTORY = "directory"
    FILE = "file"
    AUTO = "auto"


class RuleOrigin(str, Enum):
    """Who made a rule: a policy; or a flag of the command line, --hide or another, which rank in their own way."""

    RULE = "rule"
    FLAG = "flag"
    HIDE = "hide"


class SandboxStatus(str, Enum):
    """Where a sandbox stands in its life."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"


class SessionStatus(str, Enum):
    """Where a session stands in its life."""

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


class Risk(str, Enum):
    """How a changed file could act outside of the sandbox: tools of the host do what it says, or it is run there."""

    NONE = "none"
    TRUSTED_LATER = "trusted_later"
    RUNS_ON_HOST = "runs_on_host"


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
