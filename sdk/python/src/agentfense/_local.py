"""What ``from_local`` makes of a directory: the part that both kinds of clients have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from . import types as t
from ._uploads import Noted, git_user
from .policy import PolicyLike, rules_of
from .utils import PathLike, check_directory, generate_codebase_name


class Local:
    """A directory of this host of which a sandbox is made. The parameters are those of ``from_local``."""

    def __init__(
        self,
        path: PathLike,
        preset: str,
        permissions: Optional[Sequence[t.RuleLike]],
        policy: Optional[PolicyLike],
        link: Optional[bool],
        ignore_patterns: Optional[Sequence[str]],
        codebase_name: Optional[str],
    ) -> None:
        self.directory: Path = check_directory(path)
        if link and ignore_patterns:
            raise ValueError(
                "ignore_patterns leave files out of an upload alone: name them in .sandboxignore, or leave link unset"
            )
        self.rules = rules_of(policy, preset, permissions)
        self.ignore_patterns = ignore_patterns
        self.called = codebase_name or generate_codebase_name(self.directory)
        self.noted: Optional[Noted] = None
        """What was uploaded; None if nothing was."""
        self._link = link

    @property
    def has_to_link(self) -> bool:
        """Whether the caller insists on a link."""
        return bool(self._link)

    def links(self, same_host: bool) -> bool:
        """Return whether the directory is to be linked."""
        return same_host and not self.ignore_patterns if self._link is None else self._link

    def note(self) -> Noted:
        """Begin to note what is uploaded."""
        self.noted = Noted(self.directory)
        return self.noted

    def settings(self, made: t.Codebase, given: Optional[t.GitUser]) -> Dict[str, Any]:
        """Return what the sandbox of a codebase is given beside what the caller says; it asks the program for that."""
        return {
            "sync": None if made.linked else t.SyncMode.MANUAL,
            "at_host_path": made.linked,
            "git_user": git_user(self.directory) if given is None else given,
        }

    def remember(self, sandbox_id: str, made: t.Codebase) -> str:
        """Remember what was uploaded, and return why ``apply`` cannot bring changes back, empty if it can."""
        return self.noted.remember(sandbox_id, made.id, self.rules) if self.noted else ""
