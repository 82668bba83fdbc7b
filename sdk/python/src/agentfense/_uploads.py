"""Records of uploads, and bringing changes back into an uploaded directory, with the program ``agentfense``."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from . import types as t
from ._connection import AsyncConnection, Connection
from ._endpoint import Endpoint, state_directory
from ._errors import Call, Refusal, refusal_error
from ._gen.sandbox.v1 import common_pb2
from ._program import find_program
from ._wire import decode_path, encode_path, named, wire_rules
from .exceptions import InvalidConfigurationError, SandboxError

VERB = "__sdk"
_PREFIX = "sb_"


class Noted:
    """The record of what an upload of a directory sent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._status = os.stat(directory)
        self._files: List[Dict[str, Any]] = []

    def add(self, path: str, status: os.stat_result, digest: str) -> None:
        """Record an entry; see Note in _requests.py."""
        self._files.append(
            {
                "path": encode_path(path),
                "dev": status.st_dev,
                "ino": status.st_ino,
                "size": status.st_size,
                "mode": status.st_mode,
                "nlink": status.st_nlink,
                "mtime": status.st_mtime_ns,
                "ctime": status.st_ctime_ns,
                "sha256": digest,
            }
        )

    def remember(self, sandbox_id: str, codebase_id: str, rules: Sequence[t.RuleLike]) -> str:
        """Store the record where the command line does; if that fails, warn and return why, else an empty string."""
        upload = {
            "codebase_id": codebase_id,
            "directory": encode_path(self.directory),
            "dev": self._status.st_dev,
            "ino": self._status.st_ino,
            "rules": _rules(rules),
            "files": self._files,
        }
        try:
            _run("remember", sandbox_id, upload)
        except SandboxError as why:
            text = f"apply() will not bring changes back into {self.directory}: {why}"
            warnings.warn(text, UserWarning, stacklevel=4)
            return text
        return ""


def _rules(rules: Sequence[t.RuleLike]) -> List[Dict[str, Any]]:
    return [
        {
            "pattern": rule.pattern,
            "permission": named(common_pb2.Permission, "PERMISSION_", rule.permission, "none"),
            "type": named(common_pb2.PatternType, "PATTERN_TYPE_", rule.type, "glob"),
            "priority": rule.priority,
            "origin": named(common_pb2.RuleOrigin, "RULE_ORIGIN_", rule.origin, "rule"),
            "own": rule.own,
            **({"redact": named(common_pb2.RedactFormat, "REDACT_FORMAT_", rule.redact, "")} if rule.redact else {}),
            **({"substitute": rule.substitute} if rule.substitute else {}),
        }
        for rule in wire_rules(rules)
    ]


def is_remembered(sandbox_id: str) -> bool:
    """Return whether there is a record of a sandbox's upload."""
    home = state_directory()
    if home is None or not sandbox_id.startswith(_PREFIX) or "/" in sandbox_id:
        return False
    return os.path.lexists(home / "uploads" / "sandboxes" / sandbox_id[len(_PREFIX) :])


def set_rules(sandbox_id: str, rules: Sequence[t.RuleLike]) -> None:
    """Replace the rules in the record of a sandbox's upload, if there is a record."""
    if is_remembered(sandbox_id):
        _run("rules", sandbox_id, _rules(rules))


def remember_fork(sandbox_id: str, fork: t.Sandbox) -> str:
    """Record for a fork what was uploaded for its sandbox; if that fails, warn and return why, else an empty string."""
    if not is_remembered(sandbox_id):
        return ""
    try:
        _run("fork", sandbox_id, {"fork": fork.id, "rules": _rules(fork.permissions)})
    except SandboxError as why:
        text = f"apply() will not bring changes of the fork {fork.id} back into the directory: {why}"
        warnings.warn(text, UserWarning, stacklevel=4)
        return text
    return ""


def forget(sandbox_id: str) -> None:
    """Remove the record of the upload of a destroyed sandbox."""
    if is_remembered(sandbox_id):
        try:
            _run("forget", sandbox_id, None)
        except SandboxError as why:
            text = f"cannot remove the record of the upload for the destroyed sandbox {sandbox_id}: {why}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)


def bring_back(connection: Union[Connection, AsyncConnection], request: Any, reviewed: t.Reviewed) -> t.ApplyResult:
    """Apply changes to the uploaded directory. ``request`` is the request of Apply."""
    wanted = {
        "paths": list(request.paths),
        "dry_run": request.dry_run,
        "digest": request.reviewed_digest,
        "shown": _shown(reviewed),
    }
    answer = _run("apply", request.sandbox_id, wanted, _environment(connection.endpoint, connection.token))
    if answer["error"]:
        error = answer["error"]
        refusal = Refusal(
            kind=error["kind"],
            reason=error["reason"],
            text=error["message"],
            conflicts=[decode_path(path) for path in error["conflicts"] or ()],
            refused=[decode_path(path) for path in error["refused"] or ()],
        )
        raise refusal_error(refusal, connection.about(Call("apply", request.sandbox_id)))
    return t.ApplyResult(
        results=[
            t.PathOutcome(
                path=decode_path(one["path"]),
                outcome=t.Outcome(one["outcome"]),
                reason=one["reason"],
                status=t.ChangeStatus(one["status"]) if one["status"] else None,
            )
            for one in answer["results"]
        ],
        result_count=len(answer["results"]),
        applied_count=answer["applied_count"],
        written_again=[decode_path(path) for path in answer["written_again"]],
    )


def _shown(reviewed: t.Reviewed) -> Optional[List[Dict[str, Any]]]:
    """Return the changes that a review showed; None if only its digest is known."""
    if not isinstance(reviewed, t.Diff) or reviewed._shown is None:
        return None
    return [
        {
            "path": encode_path(change.path),
            "status": change.status.value,
            "mode": change.new.mode if change.new else 0,
            "target": encode_path(change.new.symlink_target) if change.new else "",
            "sha256": change.new.sha256 if change.new else "",
        }
        for change in reviewed._shown
        if not change.own and not change.left_out
    ]


def git_user(directory: Optional[Path]) -> t.GitUser:
    """Return the user of git in a directory; None means no directory. Without the program, returns an empty user."""
    try:
        said = _run("git-user", os.fspath(directory or "/"), None)
    except SandboxError:
        return t.GitUser()
    return t.GitUser(said.get("name", ""), said.get("email", ""))


def _environment(endpoint: Endpoint, token: Optional[str]) -> Dict[str, str]:
    """Return the environment with which the program reaches the server. No secret is in its arguments."""
    environment = {name: value for name, value in os.environ.items() if name != "AGENTFENSE_TOKEN"}
    _, scheme, rest = endpoint.text.partition("://")
    if not endpoint.text.startswith("unix://"):
        address = rest if scheme else endpoint.text
        environment["AGENTFENSE_ENDPOINT"] = f"{'https' if endpoint.secure else 'http'}://{address}"
    else:
        environment["AGENTFENSE_ENDPOINT"] = endpoint.text
    if not endpoint.secure:
        for name in ("AGENTFENSE_TLS_CA", "AGENTFENSE_TLS_CERT", "AGENTFENSE_TLS_KEY"):
            environment.pop(name, None)
    if token:
        environment["AGENTFENSE_TOKEN"] = token
    return environment


def _run(operation: str, argument: str, request: Any, environment: Optional[Dict[str, str]] = None) -> Any:
    """Run the program, and return its answer. It does not receive the terminal's interrupts."""
    try:
        program = find_program()
    except InvalidConfigurationError:
        text = "the program agentfense is missing: install it, or name it in AGENTFENSE_BINARY"
        raise InvalidConfigurationError(text) from None
    try:
        done = subprocess.run(
            [program, VERB, operation, argument],
            input=b"" if request is None else json.dumps(request).encode(),
            capture_output=True,
            env=environment,
            start_new_session=True,
            check=False,
        )
    except OSError as cause:
        raise InvalidConfigurationError(f"{program}: {cause.strerror}") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        if f'no command "{VERB}"' in lines[-1]:
            raise InvalidConfigurationError(f"{program} is older than this package: upgrade it")
        raise SandboxError(f"{program}: {lines[-1]}")
    try:
        return json.loads(done.stdout) if done.stdout else None
    except ValueError:
        raise SandboxError(f"{program}: the answer is not valid JSON") from None
