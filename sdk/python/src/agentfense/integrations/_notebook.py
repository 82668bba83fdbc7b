"""The sandbox of a notebook: made by its first cell, kept with its shell until the kernel ends."""

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
"""A permission and the pattern of the paths that have it."""


@dataclass
class Wish:
    """What a cell asks of the sandbox; what it does not name stays as it is."""

    directory: Optional[str] = None
    runtime: Optional[RuntimeType] = None
    preset: Optional[str] = None
    policy: Optional[str] = None
    """A policy file, in place of a preset."""
    grants: List[Grant] = field(default_factory=list)

    @property
    def base(self) -> Optional[str]:
        """What the rules start from, in words; None if that is not said."""
        return f"policy {self.policy}" if self.policy else self.preset and f"preset {self.preset}"

    @property
    def rules(self) -> List[PermissionRule]:
        """The rules of the preset or policy."""
        return Policy.load(self.policy).rules if self.policy else get_preset(self.preset or DEFAULT_PRESET)


def rules_of(directory: Path, base: Sequence[PermissionRule], grants: Iterable[Grant]) -> List[PermissionRule]:
    """Return a preset's or a policy's rules and what options add, ranked as those of the command line.

    What is hidden is above all else; other permissions are above what the base shows, but below what it hides.
    ValueError where it leaves no room for that.
    """
    rules = list(base)
    top = max((rule.priority for rule in rules), default=0)
    hidden = min((rule.priority for rule in rules if rule.permission is Permission.NONE), default=top + 2)
    shown = max((rule.priority for rule in rules if rule.permission is not Permission.NONE), default=hidden - 2)
    for permission, pattern in grants:
        if permission is not Permission.NONE and shown >= hidden - 1:
            raise ValueError(f"{permission.value} {pattern!r}: no priority is between what the rules show and hide")
        priority = top + 100 if permission is Permission.NONE else hidden - 1
        rules += _rules(directory, PermissionRule(pattern, permission, PatternType.GLOB, priority))
    return rules


def _rules(directory: Path, rule: PermissionRule) -> List[PermissionRule]:
    """Return what a rule of an option means: one that names a directory is about all below it, too."""
    name = rule.pattern.strip("/")
    if not (directory / name).is_dir():
        return [rule]
    if rule.permission is Permission.NONE and "/" not in rule.pattern.rstrip("/"):
        return [replace(rule, pattern=name), replace(rule, pattern=name + "/")]  # at any depth, whatever has that name
    return [replace(rule, pattern="/" + name, type=PatternType.DIRECTORY)]


class Notebook:
    """A notebook's one sandbox and the shell that its cells share."""

    def __init__(self) -> None:
        self.sandbox: Optional[Sandbox] = None
        self.directory = Path()
        self.base = ""
        """What its rules start from, in words."""
        self._rules: List[PermissionRule] = []
        self.grants: List[Grant] = []
        self._session: Optional[SessionWrapper] = None

    def use(self, wish: Wish) -> Sandbox:
        """Return the sandbox as a cell wants it, made or started if need be.

        InvalidConfigurationError where the sandbox that is there cannot become that.
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

        CommandTimeoutError after ``timeout`` seconds. An interrupt ends the command; the shell stays.
        """
        with self._shell().exec_stream(_script(cell) if python else cell, timeout) as stream:
            show(stream.chunks())
            code = stream.exit_code
        assert code is not None  # the stream has ended
        return code

    def _shell(self) -> SessionWrapper:
        assert self.sandbox is not None
        if self._session is not None and not self._is_there(self._session):
            print("sandbox: the shell had ended; this is a new one", file=sys.stderr)
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
        """End all that runs in the sandbox; what it changed stays, and the next cell starts it again."""
        if self.sandbox is not None:
            self._session = None
            self.sandbox.stop()

    def remove(self) -> None:
        """Destroy the sandbox and what it changed."""
        if self.sandbox is not None:
            self.sandbox.destroy()
            self.sandbox = self._session = None


def _script(cell: str) -> str:
    end = "END_" + secrets.token_hex(16)
    return f"python3 - <<'{end}'\n{cell}\n{end}\n"


def show(chunks: Iterable[OutputChunk]) -> None:
    """Write output as it comes to this process's outputs, each to its own."""
    outputs = {"stdout": _Output(sys.stdout), "stderr": _Output(sys.stderr)}
    for chunk in chunks:
        outputs[chunk.stream].write(chunk.data)
    for output in outputs.values():
        output.write(b"", final=True)


class _Output:
    """Text of bytes that may end within a character."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes, final: bool = False) -> None:
        self._file.write(self._decoder.decode(data, final))
        self._file.flush()
