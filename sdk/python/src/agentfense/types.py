"""What the API's objects are in Python: enumerations and plain data classes.

Times are naive and local, ``None`` where not set. Sizes are bytes. Nothing here talks to a server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Dict, Iterable, List, Literal, Mapping, Optional, Tuple, Union

from .exceptions import CommandExecutionError
from .results import Denial as Denial
from .results import FileChange as FileChange
from .words import ChangeKind as ChangeKind
from .words import ChangeStatus as ChangeStatus
from .words import Outcome as Outcome
from .words import PatternType as PatternType
from .words import Permission as Permission
from .words import Risk as Risk
from .words import RuleOrigin as RuleOrigin
from .words import RuntimeType as RuntimeType
from .words import SandboxStatus as SandboxStatus
from .words import SessionStatus as SessionStatus
from .words import SyncMode as SyncMode


@dataclass(frozen=True)
class GitUser:
    """Who somebody is to git: ``user.name`` and ``user.email``. What is empty is not configured."""

    name: str = ""
    email: str = ""


@dataclass
class ResourceLimits:
    """Bounds on what a sandbox uses; ``None`` is no limit."""

    memory_bytes: Optional[int] = None
    cpu_quota: Optional[int] = None
    """Microseconds of processor time in each 100 ms."""
    cpu_shares: Optional[int] = None
    """Weight against others, 2 to 262144."""
    pids_limit: Optional[int] = None
    disk_bytes: Optional[int] = None
    """Bytes of what the sandbox changes; ``disk_inodes`` are its entries."""
    disk_inodes: Optional[int] = None

    def to_dict(self) -> Dict[str, int]:
        """Return the limits that are set, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Optional[int]]) -> ResourceLimits:
        """Make limits of a mapping. ValueError for a name that is no limit."""
        known = cls.__dataclass_fields__
        for name in data:
            if name not in known:
                raise ValueError(f"unknown resource limit {name!r}: known are {', '.join(known)}")
        return cls(**data)


@dataclass
class PermissionRule:
    """Gives the paths of a pattern a permission."""

    pattern: str
    permission: Permission = Permission.READ
    type: PatternType = PatternType.GLOB
    priority: int = 0
    """The higher wins."""
    origin: RuleOrigin = RuleOrigin.RULE
    strict: bool = False
    """With the permission none: nothing can be made there either. Else a command may make entries of its own where the
    rule hides what the source has; they are never applied."""

    def to_dict(self) -> Dict[str, Any]:
        """Return the rule as plain data, without the origin RULE, and with ``strict`` where it is set."""
        data = {
            "pattern": self.pattern,
            "permission": Permission(self.permission).value,
            "type": PatternType(self.type).value,
            "priority": self.priority,
        }
        if self.strict:
            data["strict"] = True
        return data if self.origin == RuleOrigin.RULE else {**data, "origin": RuleOrigin(self.origin).value}


RuleLike = Union[PermissionRule, Mapping[str, Any]]
"""A rule, or a mapping: ``pattern``, optionally ``permission``, ``type``, ``priority``, ``origin``, ``strict``."""


@dataclass
class SandboxUsage:
    """What a sandbox holds, found by a bounded look."""

    pending_changes: int
    """Changes that were neither applied nor carried over."""
    pending_changes_more: bool
    """There are more than that."""
    disk_bytes: int
    disk_bytes_more: bool


@dataclass
class Sandbox:
    """What the server says of a sandbox. Exported as ``SandboxInfo``."""

    id: str
    codebase_id: str
    status: SandboxStatus
    permissions: List[PermissionRule] = field(default_factory=list)
    """As they were sent."""
    labels: Dict[str, str] = field(default_factory=dict)
    runtime: RuntimeType = RuntimeType.BWRAP
    image: Optional[str] = None
    resources: Optional[ResourceLimits] = None
    created_at: Optional[datetime] = None
    started_at: Optional[datetime] = None
    stopped_at: Optional[datetime] = None
    expires_at: Optional[datetime] = None
    status_reason: str = ""
    """Why the status is ERROR."""
    name: str = ""
    """What the command line calls it."""
    owner_id: str = ""
    sync_held: bool = False
    """Its changes reach the codebase by ``apply`` alone: a token without that scope has run a command in it."""
    sync: Optional[SyncMode] = None
    """When its changes reach the codebase; None is a server that does not tell."""
    workspace: str = "/workspace"
    """Where commands see the codebase: a linked one may be at its path of the host."""
    home: str = "private"
    """The home directory of its commands: "private", which is new with each start, or "keep"."""
    variables: List[str] = field(default_factory=list)
    """Names of the variables that all its commands have."""
    usage: Optional[SandboxUsage] = None
    """What it holds, where ``list_sandboxes`` was asked for it and the server can tell."""


@dataclass
class Codebase:
    """Files that sandboxes are made of: uploaded, or a linked directory of the server's host."""

    id: str
    name: str
    owner_id: str
    size: int = 0
    """Bytes of all files; 0 for a linked directory."""
    file_count: int = 0
    created_at: Optional[datetime] = None
    updated_at: Optional[datetime] = None
    linked: bool = False


@dataclass
class ExecResult:
    """How a command ended."""

    stdout: str
    """What is no UTF-8 has replacement characters."""
    stderr: str
    exit_code: int
    """128 and its number where a signal ended the command."""
    duration: Optional[timedelta] = None
    command: str = ""
    stdout_bytes: bytes = b""
    """Exactly what was written."""
    stderr_bytes: bytes = b""
    stdout_truncated: bool = False
    """Output is missing at the end, for want of room."""
    stderr_truncated: bool = False
    conflicts: List[str] = field(default_factory=list)
    """Paths that the command changed and somebody outside did too."""
    conflict_count: int = 0
    exec_id: str = ""
    """Of the command's records in the audit log; empty where it could not be started."""
    denied: List[Denial] = field(default_factory=list)
    """What the policy refused the command and all that it started, up to its end, in the order in which it was tried
    first. At most 1000, and as many as there was room for."""
    denied_count: int = 0
    """How many refusals there were, repeats included."""
    changed: List[FileChange] = field(default_factory=list)
    """What the command changed in the sandbox's view, net and by path. At most 1000, and as many as there was room
    for; ``diff`` has all."""
    changed_count: int = 0
    sync_held: bool = False
    """The sandbox keeps its changes for ``apply``: a token without the scope ``apply`` has run a command in it."""

    @property
    def success(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def output(self) -> str:
        """The standard output, and then the standard error."""
        return self.stdout + self.stderr

    def raise_on_error(self) -> ExecResult:
        """Raise CommandExecutionError unless the exit code is 0; return self."""
        if not self.success:
            raise CommandExecutionError(self.command, self.exit_code, self.stdout, self.stderr)
        return self


@dataclass
class OutputChunk:
    """A piece of a running command's output."""

    stream: Literal["stdout", "stderr"]
    data: bytes


@dataclass
class FileInfo:
    """A file or directory of a codebase."""

    path: str
    """Relative to the codebase's root."""
    name: str
    is_dir: bool
    size: int
    modified_at: Optional[datetime] = None
    mode: int = 0
    """Type and permission bits, as st_mode."""
    symlink_target: str = ""


@dataclass
class ViewEntry:
    """A file or directory as a sandbox sees it."""

    path: str
    """Relative to the workspace."""
    name: str
    is_dir: bool
    size: int
    permission: Permission
    modified_at: Optional[datetime] = None
    mode: int = 0
    """Type and permission bits, as st_mode."""
    symlink_target: str = ""
    changed: bool = False
    """Whether the sandbox, not its codebase, has this content."""


@dataclass
class UploadResult:
    """What was stored of an uploaded file."""

    codebase_id: str
    file_path: str
    size: int
    checksum: str
    """MD5 of the content, in hexadecimal digits."""


@dataclass
class Session:
    """What the server says of a session."""

    id: str
    sandbox_id: str
    status: SessionStatus
    shell: str = "/bin/bash"
    created_at: Optional[datetime] = None
    closed_at: Optional[datetime] = None


@dataclass
class FileState:
    """What a path is or was."""

    mode: int
    size: int
    symlink_target: str = ""
    sha256: str = ""
    """Of a regular file's content, in hexadecimal, where ``diff`` shows it as new."""


@dataclass
class FileDiff:
    """What a sandbox changed at a path; ``inserted`` and ``deleted`` are lines."""

    path: str
    status: ChangeStatus
    risk: Risk = Risk.NONE
    risk_reason: str = ""
    source_changed: bool = False
    """The source is not what the sandbox saw any more."""
    old: Optional[FileState] = None
    new: Optional[FileState] = None
    binary: bool = False
    too_large: bool = False
    inserted: int = 0
    deleted: int = 0
    patch: str = ""
    """In git's format; what is no UTF-8 has replacement characters. Empty where there is no text."""
    patch_bytes: bytes = b""
    """Exactly the patch."""
    patch_omitted: bool = False
    old_content_unknown: bool = False
    group: str = ""
    """The name of the group that the change is in, empty for none; see ``Diff.groups``."""
    renamed_from: str = ""
    """Of an added file: the deleted path that held the same content."""
    renamed_to: str = ""
    """Of a deleted file: the reverse of ``renamed_from``."""
    own: bool = False
    """Made where the policy hides what the source has: never applied, and without a patch."""
    left_out: str = ""
    """Why no apply takes the change; empty if one may."""


@dataclass
class ChangeGroup:
    """Several changes that a review may show as one.

    It is what a tool installed, what git ignores, or git's own record of commits. A change of a file that git tracks
    is in no group.
    """

    name: str
    lines: List[str]
    """What it holds, for people; escaped for a terminal."""
    count: int


class Diff(List[FileDiff]):
    """What a sandbox changed: a list, what could act on the host first, then by path.

    ``digest`` names what it shows, for ``apply(reviewed=…)``: paths, types, modes, link targets and contents. It is
    empty for a list of names. ``groups`` are those that the changes name.
    """

    digest: str = ""
    groups: List[ChangeGroup]

    def __init__(self, changes: Iterable[FileDiff] = ()) -> None:
        """Make a list of changes in no group."""
        super().__init__(changes)
        self.groups = []
        self._shown: Optional[Tuple[FileDiff, ...]] = None  # all that the digest names, where that is known


Reviewed = Union[Diff, str, None]
"""What was reviewed: what ``diff`` returned, or its digest; None is what is there now."""


@dataclass
class PathOutcome:
    """What apply did, or would do, with one path."""

    path: str
    outcome: Outcome
    reason: str = ""
    status: Optional[ChangeStatus] = None


@dataclass
class ApplyResult:
    """What apply did, or would do."""

    results: List[PathOutcome]
    """Those that were not applied first; as many as there was room for."""
    result_count: int
    applied_count: int
    written_again: List[str] = field(default_factory=list)
    """Paths that the sandbox wrote again meanwhile: the later version is still a change."""


@dataclass
class DiscardResult:
    """What discard did, or would do."""

    paths: List[str]
    path_count: int
    written_again: List[str] = field(default_factory=list)


@dataclass
class RuleMatch:
    """A rule that matches a path."""

    rule_index: int
    """Among the sandbox's rules, from 0; -1 for one that is not theirs."""
    why: str


@dataclass
class Explanation:
    """What a path is to a sandbox, and by which rule."""

    path: str
    permission: Permission
    reason: str
    rule: Optional[PermissionRule] = None
    """The rule that decides; None where none does."""
    rule_index: int = -1
    traversable: bool = False
    ancestor: str = ""
    """The directory with which the path is hidden."""
    matches: List[RuleMatch] = field(default_factory=list)


@dataclass
class AuditEvent:
    """One record of a sandbox's audit log."""

    seq: int
    """Its number, from 1."""
    event: str
    """``command_executed``, ``permission_denied``, …"""
    time: Optional[datetime] = None
    record: Dict[str, Any] = field(default_factory=dict)
    """The record's fields."""
    line: str = ""
    """The log's line as it is, whose hash can be verified."""


@dataclass
class DetachedExec:
    """A command that keeps running without its client."""

    exec_id: str
    argv: List[str]
    """The program and its arguments, or the text of a session's command; its beginning, if it is longer than 4 KiB."""
    session_id: Optional[str] = None
    """The session whose command it is."""
    started_at: Optional[datetime] = None
    exit_code: Optional[int] = None
    """None while it runs; 128 and its number where a signal ended the command, 124 at a time-out."""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.exit_code is None


@dataclass
class LogRecord:
    """The beginning of a detached command, a piece of its output, or its end."""

    exec_id: str
    time: Optional[datetime] = None
    argv: List[str] = field(default_factory=list)
    """Where the command begins."""
    continued: bool = False
    """With ``argv``: what it wrote before is kept no longer, or came before."""
    stream: str = ""
    """``stdout`` or ``stderr``, of a piece of output."""
    data: bytes = b""
    exit_code: Optional[int] = None
    """Where the command ends."""
    lost_bytes: int = 0
    """Output that a full disk did not take."""


@dataclass
class Stats:
    """What a running sandbox uses; ``None`` where the host does not count."""

    memory_bytes: Optional[int]
    memory_peak_bytes: Optional[int]
    cpu_time: Optional[timedelta]
    pids: Optional[int]
    """Processes and threads."""
    delta_bytes: int
    delta_inodes: int
    execs: int
    sessions: int
    oom_kills: int
    pids_max_hits: int
    view_requests: Dict[str, int] = field(default_factory=dict)
    """Requests that the view's file system has answered, by kind."""
