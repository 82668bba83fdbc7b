"""A pytest plugin: sandboxes for tests, and what happened in them beside a failure.

Installing the package does not load the plugin, so other test runs are not slowed down. Name it in
the ``conftest.py`` of the root directory:

    pytest_plugins = ["agentfense.integrations.pytest"]

The fixture ``sandbox`` is a sandbox of the test's ``tmp_path``; ``make_sandbox`` creates more. They
end with the test, even if it fails or is interrupted, and after a day if the test run was killed.
The marker ``sandbox`` takes the arguments of ``Sandbox.from_local``, for a test, a class or a
module:

    @pytest.mark.sandbox("example", preset="development")
    def test_agent(sandbox):
        sandbox.run("make test", raise_on_error=True)
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Generator, Iterator, List, Mapping, Optional, Sequence, Tuple

try:
    import pytest
except ImportError as cause:
    from . import MissingExtraError

    raise MissingExtraError("pytest", cause) from cause

from .._generated import DEFAULT_PRESET
from ..exceptions import SandboxError
from ._text import audit_line, change_line, escaped

if TYPE_CHECKING:
    from ..sandbox import Sandbox
    from ..utils import PathLike

SHOWN = 20
"""The most lines of a kind that a failed test shows of a sandbox."""

_LABEL = 200
"""The most characters of a test's id in the labels of its sandboxes."""

EXPIRES_IN = 24 * 3600
"""The default seconds after which the server removes a sandbox that a killed test run left."""

_SETTINGS = {
    "path": "the directory that sandboxes are made of, seen from the root directory (default: the test's tmp_path)",
    "preset": f"the preset of their rules (default: {DEFAULT_PRESET})",
    "policy": "a policy file in place of a preset, seen from the root directory",
    "runtime": "what confines them: bwrap or docker (default: bwrap)",
    "expires_in": f"seconds after which the server ends what a killed test run left (default: {EXPIRES_IN})",
}


class SandboxFactory:
    """Creates the sandboxes of one test. They are destroyed with the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._open = ExitStack()
        self.made: List[Tuple[Path, Sandbox]] = []
        """The directories and their sandboxes, in the order of creation."""

    def __call__(self, path: Optional[PathLike] = None, **options: Any) -> Sandbox:
        """Return a started sandbox of a directory; ``path`` is relative to the root directory.

        ``options`` are those of ``Sandbox.from_local``. Others come from the markers ``sandbox``,
        the nearest first, and then from the settings.
        """
        from ..sandbox import Sandbox

        called = options if path is None else {**options, "path": path}
        asked: Dict[str, Any] = {"expires_in": EXPIRES_IN}
        for more in (_settings(self._request.config), *_marked(self._request.node), called):
            asked = _with(asked, more)
        root = self._request.config.rootpath
        directory = asked.pop("path", None)
        where = root / directory if directory is not None else self._request.getfixturevalue("tmp_path")
        if isinstance(asked.get("policy"), (str, os.PathLike)):
            asked["policy"] = root / asked["policy"]
        asked["labels"] = {"test": self._request.node.nodeid[:_LABEL], **(asked.get("labels") or {})}
        sandbox = self._open.enter_context(Sandbox.from_local(where, **asked))
        self.made.append((where, sandbox))
        return sandbox

    def close(self) -> None:
        """Destroy all sandboxes, the last first."""
        self._open.close()


def _settings(config: pytest.Config) -> Dict[str, Any]:
    said = {name: config.getini(f"sandbox_{name}") for name in _SETTINGS}
    found: Dict[str, Any] = {name: value for name, value in said.items() if value}
    if "expires_in" in found:
        try:
            found["expires_in"] = float(found["expires_in"])
        except ValueError:
            raise pytest.UsageError(f"sandbox_expires_in: {found['expires_in']!r} is not a number of seconds") from None
    return found


def _marked(node: pytest.Item) -> Iterator[Dict[str, Any]]:
    """Yield the arguments of the markers, the nearest last."""
    for mark in reversed(list(node.iter_markers("sandbox"))):
        if len(mark.args) > 1:
            raise pytest.UsageError("marker sandbox: only the path may be a positional argument")
        yield {**dict(zip(("path",), mark.args)), **mark.kwargs}


def _with(asked: Dict[str, Any], more: Mapping[str, Any]) -> Dict[str, Any]:
    """Return options with nearer ones. A policy replaces a preset, and the other way round."""
    replaced: Sequence[str] = ()
    if "policy" in more:
        replaced = ("preset", "permissions")
    elif "preset" in more or "permissions" in more:
        replaced = ("policy",)
    return {**{name: value for name, value in asked.items() if name not in replaced}, **more}


_FACTORY = pytest.StashKey[SandboxFactory]()


@pytest.fixture
def make_sandbox(request: pytest.FixtureRequest) -> Iterator[SandboxFactory]:
    """Create sandboxes: ``make_sandbox(path, **options)``, as ``Sandbox.from_local``. They end with the test."""
    factory = request.node.stash[_FACTORY] = SandboxFactory(request)
    try:
        yield factory
    finally:
        factory.close()


@pytest.fixture
def sandbox(make_sandbox: SandboxFactory) -> Sandbox:
    """Create a sandbox of the test's tmp_path, or as the marker ``sandbox`` and the settings say."""
    return make_sandbox()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the settings."""
    for name, about in _SETTINGS.items():
        parser.addini(f"sandbox_{name}", about)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "sandbox(path, **options): what the test's sandboxes are made of, as for Sandbox.from_local"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what happened in the test's sandboxes."""
    report = yield
    factory = item.stash.get(_FACTORY, None)
    if factory is not None and report.failed and report.when != "teardown":
        report.sections += [(f"sandbox {made.id} of {escaped(str(path))}", _story(made)) for path, made in factory.made]
    return report


def _story(sandbox: Sandbox) -> str:
    """Return the last commands and refused operations, and the changes."""
    try:
        events = deque(sandbox.audit(events=["command_executed", "permission_denied"]), SHOWN)
        changes = sandbox.diff(names_only=True)
    except SandboxError as error:
        return f"what happened in it cannot be told: {escaped(str(error))}"
    lines = [*map(audit_line, events), *(f"changed {change_line(change)}" for change in changes[:SHOWN])]
    if len(changes) > SHOWN:
        lines.append(f"and {len(changes) - SHOWN} more changes")
    return "\n".join(lines)
