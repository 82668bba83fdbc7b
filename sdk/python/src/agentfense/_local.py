"""The steps of ``from_local`` that are the same for threads and event loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from . import types as t
from ._uploads import Noted, git_user
from .policy import PolicyLike, rules_of
from .utils import PathLike, check_directory, generate_codebase_name


class Local:
    """A directory of this host from which a sandbox is created. The parameters are those of ``from_local``."""

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
            raise ValueError("ignore_patterns apply to uploads only: write them to .sandboxignore, or do not set link")
        self.rules = rules_of(policy, preset, permissions)
        self.ignore_patterns = ignore_patterns
        self.called = codebase_name or generate_codebase_name(self.directory)
        self.noted: Optional[Noted] = None
        """The record of the upload; None if nothing was uploaded."""
        self._link = link

    @property
    def has_to_link(self) -> bool:
        """Whether the caller requires a link."""
        return bool(self._link)

    def links(self, same_host: bool) -> bool:
        """Return whether to link the directory."""
        return same_host and not self.ignore_patterns if self._link is None else self._link

    def note(self) -> Noted:
        """Begin a record of the upload."""
        self.noted = Noted(self.directory)
        return self.noted

    def settings(self, made: t.Codebase, given: Optional[t.GitUser]) -> Dict[str, Any]:
        """Return the sandbox's settings that the caller did not give. Runs the program for the git user."""
        return {
            "sync": None if made.linked else t.SyncMode.MANUAL,
            "at_host_path": made.linked,
            "git_user": git_user(self.directory) if given is None else given,
        }

    def remember(self, sandbox_id: str, made: t.Codebase) -> str:
        """Store the record of the upload, and return why ``apply`` cannot bring changes back, or an empty string."""
        return self.noted.remember(sandbox_id, made.id, self.rules) if self.noted else ""
