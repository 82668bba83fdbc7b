"""The objects of the API: enumerations and data classes.

Times are naive local times; None means not set. Sizes are bytes. Nothing here calls a server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Dict, Iterable, List, Literal, Mapping, Optional, Tuple, Union

from .exceptions import CommandExecutionError
from .results import Denial as Denial
from .results import FileChange as FileChange
from .results import KeepResult as KeepResult
from .results import KeptPath as KeptPath
from .snapshots import ForkOrigin as ForkOrigin
from .snapshots import MergeConflict as MergeConflict
from .snapshots import Merged as Merged
from .snapshots import MergedPath as MergedPath
from .snapshots import MergeLeftOut as MergeLeftOut
from .snapshots import Restored as Restored
from .snapshots import Snapshot as Snapshot
from .snapshots import SnapshotList as SnapshotList
from .words import AskScope as AskScope
from .words import ChangeKind as ChangeKind
from .words import ChangeStatus as ChangeStatus
from .words import ConflictKind as ConflictKind
from .words import ConflictResolution as ConflictResolution
from .words import ExportFormat as ExportFormat
from .words import Outcome as Outcome
from .words import PatternType as PatternType
from .words import Permission as Permission
from .words import RedactFormat as RedactFormat
from .words import Risk as Risk
from .words import RuleOrigin as RuleOrigin
from .words import RuntimeType as RuntimeType
from .words import SandboxStatus as SandboxStatus
from .words import SessionStatus as SessionStatus
from .words import SnapshotReason as SnapshotReason
from .words import SyncMode as SyncMode
from .words import TransactionKind as TransactionKind
from .words import TransactionState as TransactionState


@dataclass(frozen=True)
class GitUser:
    """The user of git: ``user.name`` and ``user.email``. An empty one is not configured."""

    name: str = ""
    email: str = ""


@dataclass
class ResourceLimits:
    """Limits of what a sandbox uses; None means no limit."""

    memory_bytes: Optional[int] = None
    cpu_quota: Optional[int] = None
    """Microseconds of processor time in each 100 ms."""
    cpu_shares: Optional[int] = None
    """Weight against other sandboxes, from 2 to 262144."""
    pids_limit: Optional[int] = None
    disk_bytes: Optional[int] = None
    """The bytes of the sandbox's changes; ``disk_inodes`` limits the number of entries."""
    disk_inodes: Optional[int] = None

    def to_dict(self) -> Dict[str, int]:
        """Return the limits that are set, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Optional[int]]) -> ResourceLimits:
        """Make limits from a mapping. Raises ValueError for an unknown name."""
        known = cls.__dataclass_fields__
        for name in data:
            if name not in known:
                raise ValueError(f"unknown resource limit {name!r}: it is one of {', '.join(known)}")
        return cls(**data)


@dataclass
class PermissionRule:
    """A rule: the permission of the paths that match a pattern."""

    pattern: str
    permission: Permission = Permission.READ
    type: PatternType = PatternType.GLOB
    priority: int = 0
    """The rule with the higher priority wins."""
    origin: RuleOrigin = RuleOrigin.RULE
    strict: bool = False
    """For the permission none: commands cannot create the hidden paths. Without it a command may
    create entries of its own there, which are never applied.
    """
    redact: Optional[RedactFormat] = None
    """For the permission read: the files show their keys, and masks instead of their values."""
    substitute: str = ""
    """For the permission read: the files show the content of this one. A name without a slash is a
    file beside the one that the rule matches; any other path begins at the root of the workspace or
    mount.
    """
    keep: bool = False
    """For the permission write, in a mount: when a command has ended, the regular files that it
    changed are applied without a review, below a root that the server's configuration marks with
    ``keep``. Marked paths, executables and links always wait.
    """
    keep_keys: List[str] = field(default_factory=list)
    """With ``keep``: of JSON files only these keys are applied."""

    def to_dict(self) -> Dict[str, Any]:
        """Return the rule as a dictionary, with the last six attributes only if they are not the defaults."""
        data: Dict[str, Any] = {
            "pattern": self.pattern,
            "permission": Permission(self.permission).value,
            "type": PatternType(self.type).value,
            "priority": self.priority,
        }
        if self.strict:
            data["strict"] = True
        if self.redact is not None:
            data["redact"] = RedactFormat(self.redact).value
        if self.substitute:
            data["substitute"] = self.substitute
        if self.keep:
            data["keep"] = True
        if self.keep_keys:
            data["keep_keys"] = list(self.keep_keys)
        return data if self.origin == RuleOrigin.RULE else {**data, "origin": RuleOrigin(self.origin).value}


RuleLike = Union[PermissionRule, Mapping[str, Any]]
"""A rule, or a mapping: ``pattern``, and optionally the other attributes of a rule."""


@dataclass
class SandboxUsage:
    """What a sandbox uses, from a bounded look at its changes."""

    pending_changes: int
    """The number of changes that were neither applied nor synchronized."""
    pending_changes_more: bool
    """Whether there are more changes than that."""
    disk_bytes: int
    disk_bytes_more: bool


@dataclass
class AllowedHost:
    """A host that a sandbox may reach."""

    host: str
    """Such as "example.com:443"."""
    until: Optional[datetime] = None
    """When it ends to be allowed; None means never."""


@dataclass
class PathGrant:
    """A path of the workspace that was granted beside the rules."""

    path: str
    directory: bool
    """The grant covers everything below the path, too."""
    permission: Permission
    until: Optional[datetime] = None
    """When it ends; None means never."""


@dataclass
class Ask:
    """A refusal that waits for an answer. Programs inside choose its names and paths."""

    id: str
    path: str
    """What was to be opened, made or changed; empty for a host."""
    permission: Permission
    """The permission of the path."""
    needed: Permission
    """The permission that would have allowed the operation."""
    operation: str
    host: str = ""
    """The name of a host that no rule allows. What is granted is its port 443."""
    rule: str = ""
    """The pattern of the rule that decided; empty if none did."""
    exec_id: str = ""
    """The command."""
    program: str = ""
    pid: int = 0
    """The id of the process on the host; 0 if unknown."""
    since: Optional[datetime] = None
    until: Optional[datetime] = None
    """When it is refused without an answer."""
    waiting: int = 0
    """The number of processes that wait for the answer."""
    mount: str = ""
    """The mount that the path is in; empty for the workspace. An answer in a mount counts once."""


@dataclass
class AskList:
    """The refusals that wait for an answer, the oldest first."""

    asks: List[Ask] = field(default_factory=list)
    version: str = ""
    """Identifies this list."""


@dataclass
class PathLock:
    """A lock of a path, with all below it, or a request that waits for locks of others."""

    sandbox: str
    """The name of the sandbox that has it."""
    path: str
    """Empty for the root."""
    own: bool = False
    """It belongs to the sandbox that was asked about."""
    advisory: bool = False
    """Other sandboxes may still write; only their locks are refused."""
    waits: bool = False
    since: Optional[datetime] = None
    until: Optional[datetime] = None
    """When it ends; None means when its sandbox stops."""


@dataclass
class BoardMessage:
    """A message of a sandbox. All but ``topic`` and ``text`` is set by the sandbox's supervisor."""

    seq: int
    """Higher than that of every earlier message of the board."""
    sandbox: str
    """The name of the sandbox."""
    sandbox_id: str
    by: str
    """"agent": an agent that works in the sandbox. "user": whoever controls the sandbox."""
    topic: str
    text: str
    """What the sender wrote: data, which may contain anything."""
    time: Optional[datetime] = None


@dataclass
class ExportLeftOut:
    """A change that an export does not have."""

    path: str
    reason: str
    """Why, for people."""


@dataclass
class Exported:
    """What an export has."""

    size: int = 0
    """Size of the file in bytes."""
    entries: int = 0
    """Files, directories, links and special files, as ``diff`` lists them."""
    deletions: int = 0
    """Deletions among the changes. A tar archive does not hold them."""
    left_out: List[ExportLeftOut] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)
    """What else the file does not have, for people."""


@dataclass
class QueryResult:
    """What a query found."""

    columns: List[str] = field(default_factory=list)
    rows: List[List[Union[int, float, str, bytes, None]]] = field(default_factory=list)
    """A value for each column. A text that is not UTF-8 has surrogates, as paths do."""
    more: bool = False
    """There are more rows."""


@dataclass
class MessagePage:
    """Messages of a board, the oldest first."""

    messages: List[BoardMessage] = field(default_factory=list)
    next: int = 0
    """``after`` for the messages that follow."""
    lost: int = 0
    """The number of messages that followed ``after`` and are no longer kept."""


@dataclass
class BoardMember:
    """A sandbox that runs."""

    sandbox: str
    sandbox_id: str
    status: Optional[BoardMessage] = None
    """What it works on; None means that it has not said."""


@dataclass
class BoardTopic:
    """A topic of which messages are kept."""

    topic: str
    messages: int
    last: Optional[BoardMessage] = None


@dataclass
class Board:
    """Which sandboxes of a codebase run, and of what they talk."""

    members: List[BoardMember] = field(default_factory=list)
    topics: List[BoardTopic] = field(default_factory=list)
    """The topic that was used last comes first."""


@dataclass
class Mount:
    """A directory of the server's host that a sandbox shows besides its workspace."""

    source: str
    """The absolute path on the server's host, below a root of its configuration (mounts.roots)."""
    place: str = ""
    """The absolute path inside; empty means the same as ``source``."""
    name: str = ""
    """The name, for ``mount`` of other methods; empty means the last element of ``place``."""
    mode: str = ""
    """"ro", which "" means too: all can be read. "cow": all can be read and written. Or a preset, such
    as "development". What is written waits for ``apply``.
    """
    rules: List[PermissionRule] = field(default_factory=list)
    """Rules instead of a mode, with patterns that begin at ``source``."""


MountLike = Union[Mount, Mapping[str, Any]]
"""A mount, or a mapping: ``source``, optionally ``place``, ``name``, ``mode``, ``rules``."""


@dataclass
class SandboxSecret:
    """A secret of the server that a sandbox uses. Nothing returns its value."""

    name: str
    """The name of the variable in the sandbox that has a placeholder."""
    hosts: List[str]
    """The hosts that get the value, such as "api.example.com:443"."""


@dataclass
class Sandbox:
    """The server's description of a sandbox. Exported as ``SandboxInfo``."""

    id: str
    codebase_id: str
    status: SandboxStatus
    permissions: List[PermissionRule] = field(default_factory=list)
    """The rules, as the client sent them."""
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
    """The sandbox's name on the command line."""
    owner_id: str = ""
    sync_held: bool = False
    """Whether changes reach the codebase only by ``apply``, because a token without the scope apply ran a command."""
    sync: Optional[SyncMode] = None
    """When changes reach the codebase; None from a server that does not report it."""
    workspace: str = "/workspace"
    """The directory in which commands see the codebase; for a linked one it may be the host's path."""
    home: str = "private"
    """The home directory of commands: "private" is new at each start, "keep" is kept."""
    variables: List[str] = field(default_factory=list)
    """The names of the variables that all commands have."""
    allow_net: List[AllowedHost] = field(default_factory=list)
    """The hosts that commands may reach."""
    net_limits: List[str] = field(default_factory=list)
    """The limits of the network, such as "out=50M", with those of the server's configuration."""
    publish: List[str] = field(default_factory=list)
    """The ports inside that the server's host shows, as "HOSTPORT:PORT"."""
    publish_address: str = ""
    """The address of these ports on the server's host."""
    ask_timeout: Optional[timedelta] = None
    """How long refusals wait for an answer; None means that they do not wait."""
    board: bool = False
    """Programs inside may use the board of the codebase."""
    git: str = ""
    """The clean repository that commands see: "clean:DEPTH" or "clean:all"; empty: that of the codebase."""
    unsaved_branches: int = 0
    """How many branches, tags and stashes of it have commits that are nowhere else."""
    grants: List[PathGrant] = field(default_factory=list)
    """The paths that were granted beside the permissions."""
    mounts: List[Mount] = field(default_factory=list)
    """The directories of the server's host that it shows besides its workspace."""
    scratch: List[str] = field(default_factory=list)
    """The directories of the workspace with contents that are neither reviewed nor applied."""
    secrets: List[SandboxSecret] = field(default_factory=list)
    """The secrets that commands use and do not know."""
    usage: Optional[SandboxUsage] = None
    """What the sandbox uses, if ``list_sandboxes`` asked for it and the server can tell."""


@dataclass
class Codebase:
    """The files from which sandboxes are created: uploaded ones, or a linked directory of the server's host."""

    id: str
    name: str
    owner_id: str
    size: int = 0
    """The bytes of all files; 0 for a linked directory."""
    file_count: int = 0
    created_at: Optional[datetime] = None
    updated_at: Optional[datetime] = None
    linked: bool = False


@dataclass
class ExecResult:
    """The result of a command."""

    stdout: str
    """Text, with replacement characters for bytes that are not UTF-8."""
    stderr: str
    exit_code: int
    """128 and the number of the signal, if a signal ended the command."""
    duration: Optional[timedelta] = None
    command: str = ""
    stdout_bytes: bytes = b""
    """The exact output."""
    stderr_bytes: bytes = b""
    stdout_truncated: bool = False
    """Whether the end of the output is missing, because it did not fit into a message."""
    stderr_truncated: bool = False
    conflicts: List[str] = field(default_factory=list)
    """The paths that both the command and someone outside changed."""
    conflict_count: int = 0
    exec_id: str = ""
    """The id of the command's records in the audit log; empty if the command could not start."""
    denied: List[Denial] = field(default_factory=list)
    """The operations that the policy refused to the command and its processes, in the order of the
    first attempts. At most 1000, and as many as fit into a message.
    """
    denied_count: int = 0
    """The number of refused operations, including repetitions."""
    changed: List[FileChange] = field(default_factory=list)
    """The changes that the command made in the sandbox's view, by path. At most 1000, and as many
    as fit into a message; ``diff`` returns all.
    """
    changed_count: int = 0
    sync_held: bool = False
    """Whether changes reach the codebase only by ``apply``, because a token without the scope apply ran a command."""
    keep: Optional[KeepResult] = None
    """What the end of the command applied without a review, because rules with ``keep`` say so; None
    if no mount has such a rule.
    """

    @property
    def success(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def output(self) -> str:
        """The standard output, followed by the standard error."""
        return self.stdout + self.stderr

    def raise_on_error(self) -> ExecResult:
        """Raise CommandExecutionError unless the exit code is 0; return this result."""
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
    """The path relative to the codebase's root."""
    name: str
    is_dir: bool
    size: int
    modified_at: Optional[datetime] = None
    mode: int = 0
    """The type and the permission bits, as st_mode."""
    symlink_target: str = ""


@dataclass
class ViewEntry:
    """A file or directory as a sandbox sees it."""

    path: str
    """The path relative to the workspace."""
    name: str
    is_dir: bool
    size: int
    permission: Permission
    modified_at: Optional[datetime] = None
    mode: int = 0
    """The type and the permission bits, as st_mode."""
    symlink_target: str = ""
    changed: bool = False
    """Whether the content is the sandbox's own, not the codebase's."""


@dataclass
class UploadResult:
    """What the server stored of an uploaded file."""

    codebase_id: str
    file_path: str
    size: int
    checksum: str
    """The MD5 of the content, in hexadecimal."""


@dataclass
class Session:
    """The server's description of a session."""

    id: str
    sandbox_id: str
    status: SessionStatus
    shell: str = "/bin/bash"
    created_at: Optional[datetime] = None
    closed_at: Optional[datetime] = None


@dataclass
class FileState:
    """The state of a path."""

    mode: int
    size: int
    symlink_target: str = ""
    sha256: str = ""
    """The SHA-256 of a regular file's content, in hexadecimal, if ``diff`` shows the file as new."""
    link_count: int = 0
    """The number of names that the sandbox has for the file; 0 if it is unknown."""


@dataclass
class Hunk:
    """A run of changed lines of a text file, with the lines around it."""

    id: str
    """Selects the hunk in ``apply(hunks=…)``."""
    old_start: int
    """The first line in the old file, from 1; without old lines, the line before it."""
    old_lines: int
    new_start: int
    new_lines: int
    pieces: List[Hunk] = field(default_factory=list)
    """The parts that can be applied by themselves, if there are several."""


@dataclass
class FileDiff:
    """A change of a sandbox against its source. ``inserted`` and ``deleted`` are numbers of lines."""

    path: str
    status: ChangeStatus
    risk: Risk = Risk.NONE
    risk_reason: str = ""
    source_changed: bool = False
    """Whether the source changed too, after the sandbox first changed the path."""
    old: Optional[FileState] = None
    new: Optional[FileState] = None
    binary: bool = False
    too_large: bool = False
    inserted: int = 0
    deleted: int = 0
    patch: str = ""
    """The patch in git's format, with replacement characters for bytes that are not UTF-8; may be empty."""
    patch_bytes: bytes = b""
    """The exact patch."""
    patch_omitted: bool = False
    old_content_unknown: bool = False
    group: str = ""
    """The name of the change's group, empty for none; see ``Diff.groups``."""
    renamed_from: str = ""
    """For an added file, the deleted path that had the same content."""
    renamed_to: str = ""
    """For a deleted file, the added path that has the same content."""
    own: bool = False
    """Whether the policy hides the source's entry at this path: the change has no patch and is never applied."""
    left_out: str = ""
    """Why apply never takes the change; empty if it may."""
    id: str = ""
    """Selects all of the change in ``apply(hunks=…)``; empty for a list of names, and for what no apply takes."""
    mode_id: str = ""
    """Selects the change of the mode, if the file has hunks, too."""
    hunks: List[Hunk] = field(default_factory=list)
    """The hunks of the patch that can be applied by themselves."""


@dataclass
class ChangeGroup:
    """Changes that a review may show as one.

    A group is what a tool installed, what git ignores, or git's own record of commits. It has no
    change of a file that git tracks.
    """

    name: str
    lines: List[str]
    """A description for people; escaped for a terminal."""
    count: int


class Diff(List[FileDiff]):
    """The changes of a sandbox: a list, those with a risk first, then by path.

    ``digest`` identifies what the list shows, for ``apply(reviewed=…)``: paths, types, modes, link
    targets and contents. It is empty for a list of names. ``groups`` are the groups that the
    changes name.
    """

    digest: str = ""
    groups: List[ChangeGroup]

    def __init__(self, changes: Iterable[FileDiff] = ()) -> None:
        """Make a list of changes without groups."""
        super().__init__(changes)
        self.groups = []
        self._shown: Optional[Tuple[FileDiff, ...]] = None  # everything that the digest covers, if known


Reviewed = Union[Diff, str, None]
"""A result of ``diff`` or its digest; None means the current changes."""


@dataclass
class PathOutcome:
    """What apply did, or would do, with one path."""

    path: str
    outcome: Outcome
    reason: str = ""
    status: Optional[ChangeStatus] = None
    hunks: int = 0
    """How many parts of the file ``apply(hunks=…)`` selected; 0 if it was all."""
    of_hunks: int = 0
    """How many parts there are."""
    merged: bool = False
    """With ``APPLIED``: the source had changed, too, and has the changes of both now."""
    conflicts: int = 0
    """If it is merged: at how many places the changes contradicted each other."""
    conflict_kind: Optional[ConflictKind] = None
    """With ``CONFLICT``: what the conflict is about."""


@dataclass
class ApplyResult:
    """What apply did, or with ``dry_run`` would do."""

    results: List[PathOutcome]
    """The outcomes, those that were not applied first; as many as fit into a message."""
    result_count: int
    applied_count: int
    written_again: List[str] = field(default_factory=list)
    """The paths that the sandbox changed again meanwhile; the later version is still a change."""
    transaction_id: str = ""
    """What ``undo_transaction`` takes back; empty for an uploaded directory, and if nothing was applied."""
    commit: str = ""
    """The commit, if ``to_branch`` was given."""
    statement: bytes = b""
    """The statement, if ``attest`` was given: ``ssh-keygen -Y sign -n agentfense-attest`` signs it."""


@dataclass
class CommittedFile:
    """A file that a commit of a sandbox changes against its first parent."""

    path: str
    status: Optional[ChangeStatus]
    outcome: str = ""
    """What ``apply_commits`` does with it: "left_out" if it is hidden, "refused" if it stops the call."""
    reason: str = ""
    """The reason of ``outcome``."""
    risk: Risk = Risk.NONE
    """What it could do on the host, by its name."""
    risk_reason: str = ""


@dataclass
class Commit:
    """A commit that commands made in the clean repository. Its texts are those of the sandbox."""

    branch: str
    """The branch of the sandbox, or "HEAD"."""
    current: bool
    """Whether the branch is checked out."""
    id: str
    author: str
    """Name and address; it may be cut, as the subject."""
    subject: str
    signed: bool = False
    merge: bool = False
    files: List[CommittedFile] = field(default_factory=list)
    """As many as fit into a message."""
    file_count: int = 0
    applied: bool = False
    """Whether ``apply_commits`` has applied it, and no undo took that back."""


@dataclass
class Commits:
    """The commits of a sandbox: of the branch that is checked out first, and parents before children."""

    source: str
    """The commit of the source of which the clean repository was made."""
    commits: List[Commit] = field(default_factory=list)


@dataclass
class AppliedCommit:
    """A commit that was made anew, or with ``dry_run`` would be."""

    old_id: str
    """Its id in the sandbox."""
    id: str
    """The id of the new commit; empty with ``dry_run``, and if it is left out."""
    author: str
    subject: str
    left_out: bool = False
    """It changes nothing but hidden files."""


@dataclass
class StoppedFile:
    """A file of a commit that is left out, or that stops ``apply_commits``."""

    path: str
    commit: str
    """The commit of the sandbox."""
    reason: str
    conflict: bool = False
    """Whether the source's branch conflicts with it; otherwise the policy is the reason."""


@dataclass
class AppliedCommits:
    """What apply_commits did, or with ``dry_run`` would do. The lists have as many as fit into a message."""

    base: str
    """The commit of the source that the branch continues."""
    commit: str
    """The last new commit; empty with ``dry_run``."""
    commits: List[AppliedCommit] = field(default_factory=list)
    left_out: List[StoppedFile] = field(default_factory=list)
    refused: List[StoppedFile] = field(default_factory=list)
    """What would stop it; only with ``dry_run``."""
    commit_count: int = 0
    left_out_count: int = 0
    refused_count: int = 0
    lost_signatures: int = 0
    branch: str = ""
    """The branch that is new, or was moved."""
    checked_out: bool = False
    """Whether it is the one that is checked out."""
    transaction_id: str = ""
    """What undo takes back; empty for a new branch, and with ``dry_run``."""


@dataclass
class BranchMove:
    """A branch of the source's repository that was moved from one commit to another."""

    branch: str
    from_commit: str
    to_commit: str


@dataclass
class Transaction:
    """An apply to a linked directory or to the source of a mount, or its undo."""

    id: str
    kind: TransactionKind
    state: TransactionState
    time: Optional[datetime]
    sandbox_id: str
    """The sandbox of which the changes are. It may be destroyed."""
    sandbox_name: str
    path_count: int
    mount: str = ""
    """The mount to whose source they were applied; empty for the codebase."""
    codebase_id: str = ""
    """The linked codebase to which they were applied."""
    reverses: str = ""
    """The transaction that this one reverses."""
    reversed_by: str = ""
    """The transaction that reverses this one."""
    expired: bool = False
    """Whether it can no longer be reversed, because the previous versions are not stored."""
    image_bytes: int = 0
    """The size of the stored previous versions."""
    branch: Optional[BranchMove] = None
    """The branch that was moved along, of commits applied to the branch that is checked out."""


@dataclass
class ReversedPath:
    """A path that undo or redo changed, or would change."""

    path: str
    status: Optional[ChangeStatus]
    """How the source changes."""
    conflict: str = ""
    """Why the path prevents it; empty if it does not."""


@dataclass
class Reversal:
    """What undo or redo did, or with ``dry_run`` would do."""

    of: Transaction
    """The transaction that is reversed."""
    kind: TransactionKind
    transaction_id: str
    """The transaction that reverses it; empty with ``dry_run``."""
    paths: List[ReversedPath]
    """The paths, those with a conflict first; as many as fit into a message."""
    path_count: int
    conflict_count: int
    given_back: bool
    """Whether the sandbox has the undone changes again."""


@dataclass
class DiscardResult:
    """What discard did, or with ``dry_run`` would do."""

    paths: List[str]
    path_count: int
    written_again: List[str] = field(default_factory=list)


@dataclass
class RuleMatch:
    """A rule that matches a path."""

    rule_index: int
    """The index among the sandbox's rules, from 0; -1 for a rule that is not one of them."""
    why: str


@dataclass
class Explanation:
    """The permission of a path, and the rule that decides."""

    path: str
    permission: Permission
    reason: str
    rule: Optional[PermissionRule] = None
    """The rule that decides; None if no rule matches."""
    rule_index: int = -1
    traversable: bool = False
    ancestor: str = ""
    """The hidden directory that contains the path."""
    matches: List[RuleMatch] = field(default_factory=list)


@dataclass
class AuditEvent:
    """A record of a sandbox's audit log."""

    seq: int
    """The number of the record, from 1."""
    event: str
    """``command_executed``, ``permission_denied``, …"""
    time: Optional[datetime] = None
    record: Dict[str, Any] = field(default_factory=dict)
    """The fields of the record."""
    line: str = ""
    """The exact line of the log, for verifying its hash."""


@dataclass
class DetachedExec:
    """A command that keeps running without its client."""

    exec_id: str
    argv: List[str]
    """The program and its arguments, or the text of a session's command. At most the first 4 KiB."""
    session_id: Optional[str] = None
    """The id of the session in which the command runs."""
    started_at: Optional[datetime] = None
    exit_code: Optional[int] = None
    """None while the command runs; 128 and the number of the signal that ended it; 124 after a time-out."""

    @property
    def running(self) -> bool:
        """Whether the command still runs."""
        return self.exit_code is None


@dataclass
class LogRecord:
    """The beginning of a detached command, a piece of its output, or its end."""

    exec_id: str
    time: Optional[datetime] = None
    argv: List[str] = field(default_factory=list)
    """Set in the record of the beginning."""
    continued: bool = False
    """With ``argv``: whether earlier output was dropped or came before these records."""
    stream: str = ""
    """``stdout`` or ``stderr``, in a record of output."""
    data: bytes = b""
    exit_code: Optional[int] = None
    """Set in the record of the end."""
    lost_bytes: int = 0
    """The bytes of output that a full disk did not store."""


@dataclass
class Stats:
    """What a running sandbox uses; None for what the host does not count."""

    memory_bytes: Optional[int]
    memory_peak_bytes: Optional[int]
    cpu_time: Optional[timedelta]
    pids: Optional[int]
    """The number of processes and threads."""
    delta_bytes: int
    delta_inodes: int
    execs: int
    sessions: int
    oom_kills: int
    pids_max_hits: int
    view_requests: Dict[str, int] = field(default_factory=dict)
    """The number of requests that the view's file system answered, by kind."""
