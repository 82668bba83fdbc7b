"""Cells of a notebook that run in a sandbox.

    %load_ext agentfense.integrations.jupyter

    %%sandbox --preset development --hide '*.csv'
    make report

The first cell creates the sandbox from the notebook's directory. All cells share the sandbox and
its shell, which keeps its directory, variables and functions. ``%%sandbox --python`` runs a cell in
a new ``python3``. ``%sandbox diff`` shows the changes, ``%sandbox apply`` applies them to the
directory, and ``%sandbox -h`` lists the other verbs. The end of the kernel destroys the sandbox and
the changes that were not applied.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
import sys
from collections import deque
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Union

try:
    from IPython.core.error import UsageError
except ImportError as cause:
    from . import MissingExtraError

    raise MissingExtraError("jupyter", cause) from cause

from .._generated import DEFAULT_PRESET
from ..exceptions import CommandExecutionError, SandboxError
from ..presets import list_presets
from ..sandbox import Sandbox
from ..types import Permission, RuntimeType
from ._notebook import Notebook, Wish
from ._text import audit_line, change_line, escaped

TIMEOUT = 3600.0
"""The default time-out of a cell, in seconds."""


class _Helped(Exception):
    """Help was shown."""


class _Parser(argparse.ArgumentParser):
    """A parser of a magic's line, which never ends the kernel."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} -h")

    def exit(self, status: int = 0, message: Optional[str] = None) -> NoReturn:
        raise _Helped


class _Grant(argparse.Action):
    """An action that collects the options with a permission, in their order."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Union[str, Sequence[Any], None],
        option_string: Optional[str] = None,
    ) -> None:
        namespace.grants = [*namespace.grants, (self.const, values)]


def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%sandbox", description="Run the cell in the notebook's sandbox.", allow_abbrev=False)
    parser.set_defaults(grants=[])
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--preset", help=f"rules to start from: {', '.join(list_presets())} ({DEFAULT_PRESET})")
    base.add_argument("--policy", metavar="FILE", help="a policy file to start from instead")
    for name, permission, what in (
        ("hide", Permission.NONE, "do not exist"),
        ("view", Permission.VIEW, "are listed, without content"),
        ("read", Permission.READ, "can be read"),
        ("write", Permission.WRITE, "can be changed"),
    ):
        parser.add_argument(f"--{name}", action=_Grant, const=permission, metavar="PATTERN", help=f"paths that {what}")
    parser.add_argument("--dir", help="the sandbox's directory (the notebook's)")
    parser.add_argument("--runtime", type=RuntimeType, help="what confines the processes: bwrap or docker (bwrap)")
    language = parser.add_mutually_exclusive_group()
    language.add_argument(
        "--shell", action="store_true", help="run the cell in the shell /bin/sh, which keeps its state"
    )
    language.add_argument("--python", action="store_true", help="run the cell in a new python3")
    parser.add_argument("--timeout", type=_seconds, default=TIMEOUT, help=f"the time-out in seconds ({TIMEOUT:g})")
    parser.add_argument("--no-raise", action="store_true", help="do not raise an error for an exit code other than 0")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("want more than 0")
    return value


def _line_parser(verbs: Dict[str, Callable[[argparse.Namespace], None]]) -> _Parser:
    parser = _Parser(prog="%sandbox", description="See, keep or drop what the sandbox did.", allow_abbrev=False)
    add = parser.add_subparsers(dest="verb", required=True, metavar="VERB").add_parser
    abouts = {
        "status": "what the sandbox is, and how much is changed",
        "diff": "show what is changed",
        "apply": "bring changes into the directory",
        "discard": "throw changes away",
        "audit": "show what ran, was refused and was changed",
        "stop": "end what runs; the changes stay, and the next cell goes on",
        "rm": "remove the sandbox and its changes",
    }
    for name, about in abouts.items():
        verb = add(name, help=about, description=about, allow_abbrev=False)
        verb.set_defaults(work=verbs[name])
        if name in ("diff", "apply", "discard"):
            verb.add_argument("paths", nargs="*", metavar="PATH", help="only these paths, and everything below them")
        if name in ("apply", "discard"):
            verb.add_argument("--dry-run", action="store_true", help="show what would be done")
        if name == "audit":
            verb.add_argument("-n", type=int, default=50, metavar="N", help="the last N events (50)")
    return parser


class SandboxMagic:
    """The magics ``%%sandbox`` and ``%sandbox`` of one notebook."""

    def __init__(self) -> None:
        self.notebook = Notebook()
        self._pid = os.getpid()
        self._cell = _cell_parser()
        self._line = _line_parser(
            {name: getattr(self, f"_{name}") for name in ("status", "diff", "apply", "discard", "audit", "stop", "rm")}
        )

    def __call__(self, line: str, cell: Optional[str] = None) -> None:
        """Run a cell, or the verb of a line."""
        try:
            if cell is None:
                asked = self._line.parse_args(_words(line))
                asked.work(asked)
            else:
                self._run(self._cell.parse_args(_words(line)), cell)
        except _Helped:
            pass
        except (SandboxError, ValueError) as error:
            raise _told(error, escaped(str(error), keep="\n")) from None
        except KeyboardInterrupt as error:
            raise _told(error, "the cell's command was ended; the sandbox and its shell remain") from None

    def close(self) -> None:
        """Destroy the sandbox, at the end of the kernel."""
        if self._pid == os.getpid():
            try:
                self.notebook.remove()
            except SandboxError as error:
                print(f"sandbox: could not be destroyed: {escaped(str(error))}", file=sys.stderr)

    def _run(self, asked: argparse.Namespace, cell: str) -> None:
        cell = cell.rstrip("\n")
        self.notebook.use(Wish(asked.dir, asked.runtime, asked.preset, asked.policy, asked.grants))
        code = self.notebook.run(cell, python=asked.python, timeout=asked.timeout)
        if code and not asked.no_raise:
            raise CommandExecutionError(cell, code, message=f"exit code {code}")

    def _there(self) -> Sandbox:
        if self.notebook.sandbox is None:
            raise UsageError("%sandbox: there is no sandbox yet: a cell with %%sandbox creates one")
        return self.notebook.sandbox

    def _status(self, _: argparse.Namespace) -> None:
        sandbox, notebook = self._there().refresh(), self.notebook
        options = "".join(f" {permission.value}={escaped(pattern)}" for permission, pattern in notebook.grants)
        print(f"{sandbox.id}: {sandbox.status.value}, {sandbox.runtime.value}, of {escaped(str(notebook.directory))}")
        if sandbox.info.status_reason:
            print(f"why: {escaped(sandbox.info.status_reason)}")
        print(f"rules: {escaped(notebook.base)}{options}")
        print(f"changes: {len(sandbox.diff(names_only=True))}")

    def _diff(self, asked: argparse.Namespace) -> None:
        changes = self._there().diff(asked.paths or None)
        for change in changes:
            print(change_line(change))
            print(escaped(change.patch, keep="\n\t"), end="")
        if not changes:
            print("no changes")

    def _apply(self, asked: argparse.Namespace) -> None:
        result = self._there().apply(asked.paths or None, dry_run=asked.dry_run)
        for one in result.results:
            print(f"{one.outcome.value} {escaped(one.path)}" + (f": {escaped(one.reason)}" if one.reason else ""))
        print(_counted(result.applied_count, "would be applied" if asked.dry_run else "applied"))

    def _discard(self, asked: argparse.Namespace) -> None:
        result = self._there().discard(asked.paths or None, dry_run=asked.dry_run)
        for path in result.paths:
            print(escaped(path))
        print(_counted(result.path_count, "would be discarded" if asked.dry_run else "discarded"))

    def _audit(self, asked: argparse.Namespace) -> None:
        for event in deque(self._there().audit(), max(asked.n, 0)):
            print(f"{event.time:%H:%M:%S} {audit_line(event)}")

    def _stop(self, _: argparse.Namespace) -> None:
        sandbox = self._there()
        self.notebook.stop()
        print(f"{sandbox.id} is stopped; its changes remain")

    def _rm(self, _: argparse.Namespace) -> None:
        sandbox = self._there()
        self.notebook.remove()
        print(f"{sandbox.id} is destroyed")


def _words(line: str) -> List[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"sandbox: {error}") from None


def _told(error: BaseException, text: str) -> BaseException:
    """Return the error so that a notebook shows it as one line, without a traceback of this package."""
    # IPython calls this method of an exception, if it exists.
    error._render_traceback_ = lambda: [f"{type(error).__name__}: {text}"]  # type: ignore[attr-defined]
    return error


def _counted(count: int, what: str) -> str:
    return f"{count} change{'' if count == 1 else 's'} {what}"


_loaded: Dict[int, SandboxMagic] = {}


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; ``%load_ext`` calls this."""
    magic = _loaded[id(shell)] = SandboxMagic()
    shell.register_magic_function(magic, magic_kind="line_cell", magic_name="sandbox")
    atexit.register(magic.close)


def unload_ipython_extension(shell: Any) -> None:
    """Destroy the notebook's sandbox, and remove the magics; ``%unload_ext`` calls this."""
    magic = _loaded.pop(id(shell))
    atexit.unregister(magic.close)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("sandbox", None)
    magic.close()
