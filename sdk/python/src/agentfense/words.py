"""The enumerations of the API. The value of each member is its word."""

from __future__ import annotations

from enum import Enum

from ._generated import PatternType as PatternType
from ._generated import Permission as Permission
from ._generated import Risk as Risk


class RuleOrigin(str, Enum):
    """Where a rule comes from: a policy, or a flag of the command line such as --hide, which has its own rank."""

    RULE = "rule"
    FLAG = "flag"
    HIDE = "hide"


class RedactFormat(str, Enum):
    """The format of a masked file, which shows its keys but not its values."""

    ENV = "env"
    JSON = "json"
    YAML = "yaml"
    TOML = "toml"


class SnapshotReason(str, Enum):
    """Why a snapshot was taken: for ``checkpoint``, or because it has what was there before a restore or a merge."""

    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    MERGE = "merge"


class AskScope(str, Enum):
    """For what an answer to an ask counts: the opens that wait, or the sandbox."""

    ONCE = "once"
    SANDBOX = "sandbox"


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
    """How a path differs from the source. A rename is a deletion and an addition."""

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
    """Not applied: the change differs from the review."""
    LEFT_OUT = "left_out"
    """Never applied: see ``FileDiff.left_out``."""


class ConflictKind(str, Enum):
    """What a conflict is about."""

    TEXT = "text"
    """Both changed the same lines."""
    BINARY = "binary"
    """Both changed a file that is not merged by lines."""
    TOO_LARGE = "too_large"
    NO_BASE = "no_base"
    """Both changed a file of which a version cannot be read."""
    MODE = "mode"
    DELETE_MODIFY = "delete_modify"
    """One deleted what the other changed."""
    RENAME_EDIT = "rename_edit"
    """The sandbox renamed what the source changed."""
    TYPE_CHANGE = "type_change"
    BOTH_ADDED = "both_added"
    DIRECTORY = "directory"
    """Its directory is missing, or in conflict."""
    HIDDEN = "hidden"
    """The source has an entry there that the policy hides."""
    HIDDEN_BELOW = "hidden_below"
    """It replaces a directory with entries that the sandbox did not delete."""
    CHANGED_MEANWHILE = "changed_meanwhile"
    """The source changed it during the apply."""
    LINK = "link"
    """Both changed the target of a symbolic link; only a merge has it."""
    REFUSED = "refused"
    """A policy does not permit the change; only a merge has it."""


class ExportFormat(str, Enum):
    """The format of an export (docs/export.md)."""

    AGENTFS = "agentfs"
    """An SQLite database that AgentFS opens. It has the audit log and the policy, too."""
    TAR = "tar"
    """An archive of the files, without deletions."""
    OCI = "oci"
    """An image with one layer."""
    PATCH = "patch"
    """A patch for ``git apply``, without binary files and directories."""


class ConflictResolution(str, Enum):
    """What ``apply`` does with lines that the source and the sandbox have both changed.

    In ``merge``, ours is the version of the sandbox that gets the changes, and theirs that of the other one.
    """

    OURS = "ours"
    """The source's lines win; the source keeps its version of a file that is not merged by lines."""
    THEIRS = "theirs"
    """The sandbox's lines win, and its version of a file that is not merged by lines."""
    MARKERS = "markers"
    """Both are placed between conflict markers, as git does."""


class SyncMode(str, Enum):
    """When a sandbox's changes reach its codebase."""

    ON_EXEC = "on_exec"
    """When a command ends."""
    ON_STOP = "on_stop"
    """When the sandbox stops."""
    MANUAL = "manual"
    """Only by ``apply``: the changes wait for a review."""


class ChangeKind(str, Enum):
    """How a path of a sandbox's view changed."""

    CREATED = "created"
    MODIFIED = "modified"
    """The content, the mode or the times."""
    DELETED = "deleted"
    RENAMED = "renamed"
    LOST = "lost"
    """In a watch only: there were too many changes at the path and below to report all."""


class TransactionKind(str, Enum):
    """What a transaction is: an apply, also one by rules with keep, or what reverses another transaction."""

    APPLY = "apply"
    KEEP = "keep"
    UNDO = "undo"
    REDO = "redo"


class TransactionState(str, Enum):
    """How a transaction ended."""

    PENDING = "pending"
    """It has not ended, or its process was killed."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    """The source is as before."""
