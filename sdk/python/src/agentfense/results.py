"""What a command was refused and what it changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List

from .words import ChangeKind, Permission


@dataclass
class Denial:
    """An operation that the policy refused to a command."""

    path: str
    """The path relative to the workspace."""
    operation: str
    """The operation: ``open``, ``unlink``, …; ``various`` if there were too many to list each."""
    permission: Permission
    """The permission of the path."""
    rule: str = ""
    """The pattern of the rule that decided, as written; empty if none did."""
    rule_index: int = -1
    """The index of the rule among the sandbox's rules, from 0; -1 if none decided."""
    program: str = ""
    """The name of the process, at most 15 bytes."""
    pid: int = 0
    """The id of the process on the host; 0 if unknown."""
    count: int = 1
    """The number of attempts."""
    mount: str = ""
    """The name of the mount in which the path is; empty for the workspace."""
    lock: str = ""
    """Whose lock refused it, as ``a lock of the sandbox NAME``; empty if no lock did."""


@dataclass
class KeptPath:
    """A path that a rule with ``keep`` matches."""

    mount: str
    path: str
    """The path relative to the mount."""
    keys: List[str] = field(default_factory=list)
    """The only keys of the file that were applied, or that wait; empty for the whole file."""
    reason: str = ""
    """Why it waits; empty if it was applied."""


@dataclass
class KeepResult:
    """What the end of a command did with the changes that rules with ``keep`` match.

    What was not applied stays in the sandbox; the end of the next command tries again.
    """

    kept: List[KeptPath] = field(default_factory=list)
    """What was applied; the list may be cut."""
    kept_count: int = 0
    not_kept: List[KeptPath] = field(default_factory=list)
    """What waits for ``apply``; the list may be cut."""
    not_kept_count: int = 0
    note: str = ""
    """Why nothing was tried, or not everything; empty if everything was tried."""


@dataclass
class FileChange:
    """A change of a path in a sandbox's view."""

    path: str
    """The path relative to the workspace."""
    kind: ChangeKind
    old_path: str = ""
    """The former path, if it was renamed. A renamed directory moves everything below it."""
    mount: str = ""
    """The name of the mount in which the paths are; empty for the workspace."""
