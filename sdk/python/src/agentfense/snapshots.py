"""What the server says of the states of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import List, Optional

from .words import SnapshotReason


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
    """The command that ran with ``checkpoint``, escaped, or the name of the snapshot that was restored."""
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
