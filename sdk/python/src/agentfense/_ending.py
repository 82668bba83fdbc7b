"""The end of a streamed command."""

from __future__ import annotations

from typing import Any, List, Optional

from ._results import denial_of, file_change_of, keep_result_of
from ._wire import decode_path
from .results import Denial, FileChange, KeepResult


class Ending:
    """What the last message of a command's output says."""

    exit_code: Optional[int] = None
    """Set when the command has ended; 128 and the number of the signal that ended it."""
    conflict_count: int = 0
    exec_id: str = ""
    denied_count: int = 0
    changed_count: int = 0
    sync_held: bool = False
    keep: Optional[KeepResult] = None

    def __init__(self) -> None:
        self.conflicts: List[str] = []
        self.denied: List[Denial] = []
        self.changed: List[FileChange] = []

    def note(self, message: Any) -> None:
        """Record a message, which may be the last."""
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
            self.keep = keep_result_of(message)


class Ended:
    """The result of a streamed command."""

    _ending: Ending

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code; None until the command has ended."""
        return self._ending.exit_code

    @property
    def exec_id(self) -> str:
        """The id of the command's records in the audit log; set at the latest when the command has ended."""
        return self._ending.exec_id

    @property
    def denied(self) -> List[Denial]:
        """The operations that the policy refused, as in ``ExecResult``; set when the command has ended."""
        return self._ending.denied

    @property
    def denied_count(self) -> int:
        """The number of refused operations, including repetitions."""
        return self._ending.denied_count

    @property
    def changed(self) -> List[FileChange]:
        """The changes that the command made in the view, as in ``ExecResult``; set when it has ended."""
        return self._ending.changed

    @property
    def changed_count(self) -> int:
        """The number of changes."""
        return self._ending.changed_count

    @property
    def sync_held(self) -> bool:
        """Whether the changes remain in the sandbox until ``apply``, as in ``ExecResult``."""
        return self._ending.sync_held

    @property
    def keep(self) -> Optional[KeepResult]:
        """What the end of the command kept, as in ``ExecResult``; set when it has ended."""
        return self._ending.keep
