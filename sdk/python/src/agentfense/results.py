"""What a command was refused and what it changed, as its result tells."""

from __future__ import annotations

from dataclasses import dataclass

from .words import ChangeKind, Permission


@dataclass
class Denial:
    """What the policy refused a command."""

    path: str
    """Relative to the workspace."""
    operation: str
    """What was tried: ``open``, ``unlink``, …; ``various`` for what was too much to be told each."""
    permission: Permission
    """What the path has."""
    rule: str = ""
    """Pattern of the rule that decided, as it was written; empty where none did."""
    rule_index: int = -1
    """Of that rule among the sandbox's, from 0; -1 where none decided."""
    program: str = ""
    """Of the process that tried, at most 15 bytes of its name."""
    pid: int = 0
    """Of that process, as the host sees it; 0 where it is not known."""
    count: int = 1
    """How often."""


@dataclass
class FileChange:
    """What became of a path of a sandbox's view."""

    path: str
    """Relative to the workspace."""
    kind: ChangeKind
    old_path: str = ""
    """Where it was, if it was renamed. All below a renamed directory was, too."""
