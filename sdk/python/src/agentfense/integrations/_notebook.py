"""The sandbox of a notebook: its first cell creates it, and it keeps its shell until the kernel ends."""

from __future__ import annotations

import codecs
import secrets
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Iterable, List, Optional, Sequence, TextIO, Tuple

from .._generated import DEFAULT_PRESET
from ..client import SessionWrapper
from ..exceptions import InvalidConfigurationError, SessionNotFoundError
from ..policy import Policy
from ..presets import get_preset
from ..sandbox import Sandbox
from ..types import OutputChunk, PatternType, Permission, PermissionRule, RuntimeType, SandboxStatus, SessionStatus
from ..utils import check_directory

Grant = Tuple[Permission, str]
"""A permission for the paths of a pattern."""


@dataclass
class Wish:
    """The settings that a cell asks for. Settings that it does not name remain."""

    directory: Optional[str] = None
    runtime: Optional[RuntimeType] = None
    preset: Optional[str] = None
    policy: Optional[str] = None
    """A policy file, instead of a preset."""
    grants: List[Grant] = field(default_factory=list)

    @property
    def base(self) -> Optional[str]:
        """A description of the preset or policy; None if the cell names none."""
        return f"policy {self.policy}" if self.policy else self.preset and f"preset {self.preset}"

    @property
    def rules(self) -> List[PermissionRule]:
        """The rules of the preset or policy."""
        return Policy.load(self.policy).rules if self.policy else get_preset(self.preset or DEFAULT_PRESET)


def rules_of(directory: Path, base: Sequence[PermissionRule], grants: Iterable[Grant]) -> List[PermissionRule]:
    """Return the rules of a preset or a policy and of options, with the ranks of the command line.

    Rules that hide are above all others. Other permissions are above what the base shows, but below
    what it hides. Raises ValueError if the base leaves no priority for that.
    """
    rules = list(base)
    top = max((rule.priority for rule in rules), default=0)
    hidden = min((rule.priority for rule in rules if rule.permission is Permission.NONE), default=top + 2)
    shown = max((rule.priority for rule in rules if rule.permission is not Permission.NONE), default=hidden - 2)
    for permission, pattern in grants:
        if permission is not Permission.NONE and shown >= hidden - 1:
            raise ValueError(
                f"{permission.value} {pattern!r}: there is no priority between what the rules show and what they hide"
            )
        priority = top + 100 if permission is Permission.NONE else hidden - 1
        rules += _rules(directory, PermissionRule(pattern, permission, PatternType.GLOB, priority))
    return rules


def _rules(directory: Path, rule: PermissionRule) -> List[PermissionRule]:
    """Return the rules for an option. A name that may be a directory includes everything below it."""
    name = rule.pattern.strip("/")
    if not (directory / name).is_dir():
        return [rule]
    if rule.permission is Permission.NONE and "/" not in rule.pattern.rstrip("/"):
        return [replace(rule, pattern=name), replace(rule, pattern=name + "/")]  # at any depth, a file or a directory
    return [replace(rule, pattern="/" + name, type=PatternType.DIRECTORY)]


class Notebook:
    """The single sandbox of a notebook, and the shell that its cells share."""

    def __init__(self) -> None:
        self.sandbox: Optional[Sandbox] = None
        self.directory = Path()
        self.base = ""
        """A description of the preset or policy."""
        self._rules: List[PermissionRule] = []
        self.grants: List[Grant] = []
        self._session: Optional[SessionWrapper] = None

    def use(self, wish: Wish) -> Sandbox:
        """Return the sandbox with the settings of a cell, created or started if necessary.

        Raises InvalidConfigurationError if the existing sandbox cannot get these settings.
        """
        if self.sandbox is None:
            return self._make(wish)
        asked = check_directory(wish.directory).resolve() if wish.directory else self.directory
        if asked != self.directory or wish.runtime not in (None, self.sandbox.runtime):
            raise InvalidConfigurationError(
                f"the sandbox is one of {self.directory} with {self.sandbox.runtime.value}: "
                "remove it first, with %sandbox rm"
            )
        if wish.base:
            self._set_policy(self.sandbox, wish.base, wish.rules, wish.grants)
        elif wish.grants:
            anew = {pattern for _, pattern in wish.grants}
            kept = [grant for grant in self.grants if grant[1] not in anew]
            self._set_policy(self.sandbox, self.base, self._rules, kept + wish.grants)
        return self.sandbox

    def _set_policy(self, sandbox: Sandbox, base: str, rules: List[PermissionRule], grants: List[Grant]) -> None:
        sandbox.set_policy(rules_of(self.directory, rules, grants))
        self.base, self._rules, self.grants = base, rules, grants

    def _make(self, wish: Wish) -> Sandbox:
        directory = check_directory(wish.directory or ".").resolve()
        rules = wish.rules
        made = Sandbox.from_local(
            directory,
            policy=Policy(None, rules_of(directory, rules, wish.grants)),
            runtime=wish.runtime or RuntimeType.BWRAP,
            labels={"notebook": str(directory)[:200]},
        )
        self.sandbox, self.directory = made, directory
        self.base, self._rules, self.grants = (wish.base or f"preset {DEFAULT_PRESET}", rules, wish.grants)
        return made

    def run(self, cell: str, *, python: bool, timeout: float) -> int:
        """Run a cell in the shell, or in a Python that the shell starts, show its output, and return its exit code.

        After ``timeout`` seconds raises CommandTimeoutError. An interrupt ends the command; the
        shell remains.
        """
        with self._shell().exec_stream(_script(cell) if python else cell, timeout) as stream:
            show(stream.chunks())
            code = stream.exit_code
        assert code is not None  # the stream has ended
        return code

    def _shell(self) -> SessionWrapper:
        assert self.sandbox is not None
        if self._session is not None and not self._is_there(self._session):
            print("sandbox: the shell ended; this is a new one", file=sys.stderr)
            self._session = None
        if self._session is None:
            if self.sandbox.refresh().status is not SandboxStatus.RUNNING:
                self.sandbox.start()
            self._session = self.sandbox.session()
        return self._session

    def _is_there(self, session: SessionWrapper) -> bool:
        assert self.sandbox is not None
        try:
            return self.sandbox.client.get_session(session.id).status is SessionStatus.ACTIVE
        except SessionNotFoundError:
            return False

    def stop(self) -> None:
        """Stop the sandbox. Its changes remain, and the next cell starts it again."""
        if self.sandbox is not None:
            self._session = None
            self.sandbox.stop()

    def remove(self) -> None:
        """Destroy the sandbox and its changes."""
        if self.sandbox is not None:
            self.sandbox.destroy()
            self.sandbox = self._session = None


def _script(cell: str) -> str:
    end = "END_" + secrets.token_hex(16)
    return f"python3 - <<'{end}'\n{cell}\n{end}\n"


def show(chunks: Iterable[OutputChunk]) -> None:
    """Write output as it comes to the matching output of this process."""
    outputs = {"stdout": _Output(sys.stdout), "stderr": _Output(sys.stderr)}
    for chunk in chunks:
        outputs[chunk.stream].write(chunk.data)
    for output in outputs.values():
        output.write(b"", final=True)


class _Output:
    """A decoder of output whose pieces may end within a character."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes, final: bool = False) -> None:
        self._file.write(self._decoder.decode(data, final))
        self._file.flush()
