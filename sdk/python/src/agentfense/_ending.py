"""How a command that is streamed ends."""

from __future__ import annotations

from typing import Any, List, Optional

from ._results import denial_of, file_change_of
from ._wire import decode_path
from .results import Denial, FileChange


class Ending:
    """What the last message of a command's output tells."""

    exit_code: Optional[int] = None
    """Set once the command has ended; 128 and its number where a signal ended it."""
    conflict_count: int = 0
    exec_id: str = ""
    denied_count: int = 0
    changed_count: int = 0
    sync_held: bool = False

    def __init__(self) -> None:
        self.conflicts: List[str] = []
        self.denied: List[Denial] = []
        self.changed: List[FileChange] = []

    def note(self, message: Any) -> None:
        """Take a message that may be the last."""
        if message.exec_id:
            self.exec_id = message.exec_id
        if message.HasField("exit_code"):
            self.exit_code = message.exit_code
            self.conflicts = [decode_path(path) for path in message.conflicts]
            self.conflict_count = message.conflict_count
            self.denied = [denial_of(denial) for denial in message.denied]
            self.denied_count = message.denied_count
            self.changed = [file_change_of(change) for change in message.changed]
            self.changed_count = message.changed_count
            self.sync_held = message.sync_held


class Ended:
    """How a streamed command has ended."""

    _ending: Ending

    @property
    def exit_code(self) -> Optional[int]:
        """The command's exit code, None until it has ended."""
        return self._ending.exit_code

    @property
    def exec_id(self) -> str:
        """Of the command's records in the audit log; empty until it is known, at the command's end at the latest."""
        return self._ending.exec_id

    @property
    def denied(self) -> List[Denial]:
        """What the policy refused the command, as in ``ExecResult``; empty until it has ended."""
        return self._ending.denied

    @property
    def denied_count(self) -> int:
        """How many refusals there were, repeats included."""
        return self._ending.denied_count

    @property
    def changed(self) -> List[FileChange]:
        """What the command changed in the sandbox's view, as in ``ExecResult``; empty until it has ended."""
        return self._ending.changed

    @property
    def changed_count(self) -> int:
        """How many changes there were."""
        return self._ending.changed_count

    @property
    def sync_held(self) -> bool:
        """Whether the sandbox keeps its changes for ``apply``, as in ``ExecResult``."""
        return self._ending.sync_held
