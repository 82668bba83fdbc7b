"""What the server says of the states of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import List, Optional

from .words import ChangeStatus, ConflictKind, SnapshotReason


@dataclass
class Snapshot:
    """A state of a sandbox."""

    name: str
    """``s`` and a number, unique in the sandbox."""
    label: str = ""
    created_at: Optional[datetime] = None
    reason: Optional[SnapshotReason] = None
    """None if somebody asked for it."""
    command: str = ""
    """The command that ran with ``checkpoint``, escaped; the snapshot that was restored; or what was merged."""
    parent: str = ""
    """The name of the snapshot of which this state was made; empty for the codebase. Only a list has it."""


@dataclass
class ForkOrigin:
    """The state with which a fork began."""

    sandbox_id: str
    sandbox_name: str
    snapshot: str = ""
    """The name of the snapshot; empty for the state of that time."""


@dataclass
class SnapshotList:
    """The snapshots of a sandbox as a tree."""

    snapshots: List[Snapshot] = field(default_factory=list)
    """Parents come before their children."""
    present: str = ""
    """The name of the snapshot of which the present state was made; empty for the codebase."""
    fork_of: Optional[ForkOrigin] = None
    """None if the sandbox is not a fork."""


@dataclass
class Restored:
    """What a restore did."""

    snapshot: Snapshot
    kept: Optional[Snapshot] = None
    """What was there before; None if another snapshot has it, or if there were no changes."""
    left_mounts: List[str] = field(default_factory=list)
    """The names of mounts that the snapshot does not have, and which stay as they were."""


@dataclass
class MergedPath:
    """What a merge did, or would do, at a path."""

    path: str
    status: Optional[ChangeStatus] = None
    """The change of the sandbox that gets it; None if its entry stays as it is."""
    merged: bool = False
    """The content has the changes of both."""
    resolved: Optional[ConflictKind] = None
    """The conflict that ``on_conflict`` decided."""


@dataclass
class MergeConflict:
    """Why a path cannot be merged."""

    path: str
    kind: Optional[ConflictKind] = None
    """None for a kind that this version does not know."""
    reason: str = ""


@dataclass
class MergeLeftOut:
    """A change that no merge takes."""

    path: str = ""
    """Empty for a mount as a whole."""
    mount: str = ""
    """Empty for the workspace."""
    reason: str = ""


@dataclass
class Merged:
    """What a merge did, or with ``dry_run`` would do. The lists have as much as fits into a message."""

    paths: List[MergedPath] = field(default_factory=list)
    """Empty if there are conflicts."""
    path_count: int = 0
    changed_count: int = 0
    """How many of the paths the merge changes."""
    conflicts: List[MergeConflict] = field(default_factory=list)
    """What prevents the merge; only with ``dry_run``."""
    conflict_count: int = 0
    left_out: List[MergeLeftOut] = field(default_factory=list)
    left_out_count: int = 0
    kept: Optional[Snapshot] = None
    """What was there before; None if nothing was changed."""
