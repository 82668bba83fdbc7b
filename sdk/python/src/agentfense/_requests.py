"""The requests of the API, from the arguments of the clients' methods. TypeError and ValueError name the argument."""

from __future__ import annotations

import hashlib
import operator
import os
import stat
from collections import abc
from datetime import datetime, timedelta
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from google.protobuf.duration_pb2 import Duration

from . import types as t
from . import utils
from ._arguments import PathLike, bytes_of, id_of, path_of, text_of, words_of
from ._gen.sandbox.v1 import board_pb2, codebase_pb2, common_pb2, export_pb2, history_pb2, sandbox_pb2, snapshot_pb2
from ._wire import (
    Seconds,
    duration_of,
    encode_path,
    inside_path,
    number_of,
    seconds_of,
    stamp_of,
    wire_mounts,
    wire_resources,
    wire_rules,
    wire_runtime,
    wire_stdin,
    wire_sync,
)
from .exceptions import InvalidConfigurationError
from .policy import NO_RULES
from .results import FileChange
from .words import ChangeKind

Timeout = Union[timedelta, Seconds, None]
Paths = Union[PathLike, Sequence[PathLike], None]
Hosts = Union[str, Sequence[str]]
Names = Union[str, Sequence[str]]
Resources = Union[t.ResourceLimits, Mapping[str, Any], None]


def _command(command: str) -> str:
    if not isinstance(command, str):
        raise TypeError("command: want one string for /bin/sh: use shlex.join for a list, or attach")
    return text_of(command, "command", ": use printf in the command for such a byte")


def create_sandbox(
    codebase_id: str,
    permissions: Optional[Sequence[t.RuleLike]],
    labels: Optional[Mapping[str, str]],
    expires_in: Timeout,
    runtime: Optional[t.RuntimeType],
    image: Optional[str],
    resources: Resources,
    name: Optional[str],
    user: Optional[int],
    sync: Union[t.SyncMode, str, None],
    at_host_path: bool,
    home: Optional[str],
    env: Optional[Mapping[str, str]],
    git_user: t.GitUser,
    allow_net: Hosts,
    net_limits: Names,
    publish: Names,
    ask_timeout: Timeout,
    board: bool,
    git: str,
    mounts: Sequence[t.MountLike],
    scratch: Names,
    secrets: Names,
) -> Any:
    """Return the request of CreateSandbox."""
    return sandbox_pb2.CreateSandboxRequest(
        codebase_id=id_of(codebase_id, "codebase_id"),
        permissions=wire_rules(permissions),
        labels=words_of(labels, "labels"),
        expires_in=duration_of(seconds_of(expires_in, "expires_in")),
        runtime=wire_runtime(runtime),
        image=text_of(image or "", "image"),
        resources=wire_resources(resources),
        name=text_of(name or "", "name"),
        user="" if user is None else str(operator.index(user)),
        sync=wire_sync(sync),
        at_host_path=at_host_path,
        home=text_of(home or "", "home"),
        env=words_of(env, "env"),
        git_user=sandbox_pb2.GitUser(name=git_user.name, email=git_user.email),
        allow_net=_texts(allow_net, "allow_net"),
        net_limits=_texts(net_limits, "net_limits"),
        publish=_texts(publish, "publish"),
        ask_timeout=duration_of(seconds_of(ask_timeout, "ask_timeout")),
        board=board,
        git=text_of(git, "git"),
        mounts=wire_mounts(mounts),
        scratch=[encode_path(path, "scratch") for path in _listed(scratch)],
        secrets=_texts(secrets, "secrets"),
    )


def update(
    sandbox_id: str,
    resources: Resources,
    scratch: Optional[Names],
    secrets: Optional[Names],
    net_limits: Optional[Names],
    publish: Optional[Names],
    ask_timeout: Timeout,
) -> Any:
    """Return the request of UpdateSandbox."""
    lists = {"scratch": scratch, "secrets": secrets, "net_limits": net_limits, "publish": publish}
    return sandbox_pb2.UpdateSandboxRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        resources=None if resources is None else wire_resources(resources) or sandbox_pb2.ResourceLimits(),
        clear=[name for name, given in lists.items() if given is not None and not given],
        scratch=[encode_path(path, "scratch") for path in _listed(scratch or ())],
        secrets=_texts(secrets or (), "secrets"),
        net_limits=_texts(net_limits or (), "net_limits"),
        publish=_texts(publish or (), "publish"),
        ask_timeout=Duration()
        if ask_timeout is not None and not ask_timeout
        else duration_of(seconds_of(ask_timeout, "ask_timeout")),
    )


def _texts(texts: Names, what: str) -> List[str]:
    """Return one text of UTF-8 or several as a list."""
    return [text_of(text, what) for text in _listed(texts)]


def _listed(texts: Names) -> Sequence[str]:
    """Return one text or several as a list."""
    return [texts] if isinstance(texts, str) else texts


def mount_of(mount: Optional[str]) -> str:
    """Return the name of a mount; None is the workspace. Raises ValueError for an empty name."""
    if mount == "":
        raise ValueError("mount: an empty name: leave it out for the workspace")
    return text_of(mount or "", "mount")


def view_path(path: PathLike, mount: Optional[str]) -> str:
    """Return a path of a view in the API's spelling."""
    return encode_path(plain_path(path, mount))


def plain_path(path: PathLike, mount: Optional[str]) -> str:
    """Return a path of a view. In a mount, /workspace is a name like others."""
    return inside_path(path) if mount is None else path_of(path).lstrip("/")


def list_sandboxes(
    codebase_id: Optional[str],
    owner_id: Optional[str],
    name: Optional[str],
    labels: Optional[Mapping[str, str]],
    usage: bool,
    page_token: str,
) -> Any:
    """Return the request of one page of ListSandboxes."""
    return sandbox_pb2.ListSandboxesRequest(
        codebase_id=id_of(codebase_id or "", "codebase_id"),
        owner_id=text_of(owner_id or "", "owner_id"),
        name=text_of(name or "", "name"),
        labels=words_of(labels, "labels"),
        with_usage=usage,
        page_token=page_token,
    )


def execute(
    sandbox_id: str,
    command: str,
    stdin: Union[str, bytes, None],
    env: Optional[Mapping[str, str]],
    workdir: Optional[PathLike],
    timeout: Optional[float],
    detach: bool = False,
    checkpoint: bool = False,
) -> Any:
    """Return the request of Exec and ExecStream."""
    return sandbox_pb2.ExecRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        command=_command(command),
        env=words_of(env, "env"),
        workdir=encode_path(workdir or "", "workdir"),
        timeout=duration_of(timeout),
        detach=detach,
        checkpoint=checkpoint,
        **wire_stdin(stdin),
    )


def create_session(sandbox_id: str, shell: str, env: Optional[Mapping[str, str]]) -> Any:
    """Return the request of CreateSession."""
    return sandbox_pb2.CreateSessionRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"), shell=text_of(shell, "shell"), env=words_of(env, "env")
    )


def session_execute(session_id: str, command: str, timeout: Optional[float], detach: bool = False) -> Any:
    """Return the request of SessionExec and SessionExecStream."""
    return sandbox_pb2.SessionExecRequest(
        session_id=id_of(session_id, "session_id"),
        command=_command(command),
        timeout=duration_of(timeout),
        detach=detach,
    )


WindowSize = Tuple[int, int]
"""The rows and columns of a terminal."""


def window_size(size: WindowSize) -> Any:
    """Return the size of a terminal. Raises TypeError or ValueError unless it is two numbers from 0 to 65535."""
    try:
        rows, columns = map(operator.index, size)
    except (TypeError, ValueError):
        raise TypeError(f"terminal {size!r}: want two whole numbers, rows and columns") from None
    if not (0 <= rows <= 0xFFFF and 0 <= columns <= 0xFFFF):
        raise ValueError(f"terminal {size!r}: want rows and columns from 0 to 65535")
    return sandbox_pb2.AttachRequest.WindowSize(rows=rows, columns=columns)


def attach(
    sandbox_id: str,
    argv: Sequence[str],
    terminal: Optional[WindowSize],
    env: Optional[Mapping[str, str]],
    workdir: Optional[PathLike],
    timeout: Optional[float],
    detach: bool,
    checkpoint: bool = False,
) -> Any:
    """Return the first message of an Attach that starts a program."""
    if isinstance(argv, (str, bytes)) or not isinstance(argv, abc.Sequence) or not argv:
        raise ValueError(f"argv {argv!r}: want a list of the program and its arguments")
    for i, word in enumerate(argv):
        text_of(word, f"argv[{i}]")
    start = sandbox_pb2.AttachRequest.Start(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        argv=argv,
        env=words_of(env, "env"),
        workdir=encode_path(workdir or "", "workdir"),
        timeout=duration_of(timeout),
        terminal=None if terminal is None else window_size(terminal),
        detach=detach,
        checkpoint=checkpoint,
    )
    return sandbox_pb2.AttachRequest(start=start)


def resume(sandbox_id: str, exec_id: str, stdout_offset: int, stderr_offset: int) -> Any:
    """Return the first message of an Attach that reconnects to a command."""
    if stdout_offset < 0 or stderr_offset < 0:
        raise ValueError(f"offsets {stdout_offset} and {stderr_offset}: want 0 or more")
    resume = sandbox_pb2.AttachRequest.Resume(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        exec_id=id_of(exec_id, "exec_id"),
        stdout_offset=stdout_offset,
        stderr_offset=stderr_offset,
    )
    return sandbox_pb2.AttachRequest(resume=resume)


def stdin(data: Union[str, bytes], name: str = "data") -> List[Any]:
    """Return the messages of an Attach that carry input."""
    content = bytes_of(data, name)
    return [sandbox_pb2.AttachRequest(stdin=part) for part in pieces(content, UPLOAD_CHUNK)]


def stdin_end() -> Any:
    """Return the message of an Attach that ends the input."""
    return sandbox_pb2.AttachRequest(stdin_end=True)


def resize(rows: int, columns: int) -> Any:
    """Return the message of an Attach that sets the terminal's size."""
    return sandbox_pb2.AttachRequest(resize=window_size((rows, columns)))


def signal(number: int) -> Any:
    """Return the message of an Attach that sends a signal, from 1 to 64."""
    if not 1 <= number <= 64:
        raise ValueError(f"signal {number}: want a number from 1 to 64")
    return sandbox_pb2.AttachRequest(signal=number)


Chosen = Optional[List[str]]
"""Paths in the API's spelling; None means all. An empty list must not be sent: the server takes it for all."""


def chosen(paths: Paths, mount: Optional[str] = None) -> Chosen:
    """Return the selected paths, of the workspace or of a mount. Raises ValueError for an empty path."""
    if paths is None:
        return None
    if not isinstance(paths, (str, bytes, os.PathLike)) and not hasattr(paths, "__iter__"):
        raise TypeError(f"paths: want a path or a list of them, not {type(paths).__name__}")
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    texts = [path_of(path, "paths") for path in given]
    if "" in texts:
        raise ValueError('empty path: leave it out, or give "/", for all paths')
    return [view_path(path, mount) or "/" for path in texts]


def diff(
    sandbox_id: str, paths: Chosen, names_only: bool, shown: t.Reviewed, page_token: str, mount: Optional[str]
) -> Any:
    """Return the request of one page of Diff."""
    return sandbox_pb2.DiffRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        paths=paths,
        names_only=names_only,
        shown_digest=digest_of(shown, "shown"),
        page_token=page_token,
        mount=mount_of(mount),
    )


def list_view(sandbox_id: str, path: PathLike, mount: Optional[str], itself: bool = False) -> Any:
    """Return the request of ListView."""
    return sandbox_pb2.ListViewRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"), path=view_path(path, mount), itself=itself, mount=mount_of(mount)
    )


def read_view(sandbox_id: str, path: PathLike, mount: Optional[str]) -> Any:
    """Return the request of ReadView."""
    return sandbox_pb2.ReadViewRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"), path=view_path(path, mount), mount=mount_of(mount)
    )


def digest_of(reviewed: t.Reviewed, what: str) -> str:
    """Return the digest of a review; an empty string for None.

    Raises ValueError for a Diff without a digest, such as a list of names: an empty digest would
    select every change.
    """
    if reviewed is None:
        return ""
    digest = reviewed.digest if isinstance(reviewed, t.Diff) else reviewed
    if not isinstance(digest, str):
        raise TypeError(f"{what}: want a Diff or its digest, not {type(reviewed).__name__}")
    if not digest:
        raise ValueError(f"{what}: has no digest: pass a diff without names_only")
    return digest


def apply(
    sandbox_id: str,
    paths: Chosen,
    dry_run: bool,
    reviewed: t.Reviewed,
    mount: Optional[str] = None,
    hunks: Optional[Sequence[str]] = None,
    on_conflict: Union[t.ConflictResolution, str, None] = None,
    *,
    to_branch: Optional[str] = None,
    message: str = "",
    git_user: Optional[t.GitUser] = None,
    attest: bool = False,
) -> Any:
    """Return the request of Apply. Raises ValueError for an unknown resolution of conflicts."""
    how = t.ConflictResolution(on_conflict).name if on_conflict is not None else "UNSPECIFIED"
    if to_branch == "" or (message and to_branch is None):
        raise InvalidConfigurationError("apply: to_branch: want the name of a new branch")
    user = {"name": git_user.name, "email": git_user.email} if git_user and to_branch is not None else None
    return sandbox_pb2.ApplyRequest(
        to_branch=to_branch or "",
        message=message,
        git_user=user,
        attest=attest,
        hunks=hunks or (),
        on_conflict="CONFLICT_RESOLUTION_" + how,
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        paths=paths,
        dry_run=dry_run,
        reviewed_digest=digest_of(reviewed, "reviewed"),
        mount=mount_of(mount),
    )


def apply_commits(
    sandbox_id: str,
    to_branch: Optional[str],
    from_branch: Optional[str],
    at_base: bool,
    reviewed: Optional[str],
    dry_run: bool,
    git_user: t.GitUser,
) -> Any:
    """Return the request of ApplyCommits. Raises InvalidConfigurationError for an empty branch."""
    if to_branch == "":
        raise InvalidConfigurationError("apply commits: to_branch: want a new branch, or None for the one checked out")
    return sandbox_pb2.ApplyCommitsRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        to_branch=to_branch or "",
        from_branch=from_branch or "",
        at_base=at_base,
        reviewed_commit=reviewed or "",
        dry_run=dry_run,
        git_user=sandbox_pb2.GitUser(name=git_user.name, email=git_user.email),
    )


def undo(sandbox_id: str, transaction_id: str, dry_run: bool) -> Any:
    """Return the request of Undo and Redo; one of the ids is empty."""
    return history_pb2.UndoRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        transaction_id=id_of(transaction_id, "transaction_id"),
        dry_run=dry_run,
    )


def discard(sandbox_id: str, paths: Chosen, dry_run: bool, mount: Optional[str]) -> Any:
    """Return the request of Discard."""
    return sandbox_pb2.DiscardRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"), paths=paths, dry_run=dry_run, mount=mount_of(mount)
    )


def set_policy(sandbox_id: str, permissions: Sequence[t.RuleLike]) -> Any:
    """Return the request of SetPolicy. Raises ValueError for None, which the server would take for no rules."""
    if permissions is None:
        raise ValueError(NO_RULES)
    return sandbox_pb2.SetPolicyRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"), permissions=wire_rules(permissions))


def forked(
    sandbox_id: str,
    names: Sequence[str],
    snapshot: str,
    permissions: Optional[Sequence[t.RuleLike]],
    allow_wider: bool,
    expires_in: Timeout,
) -> Any:
    """Return the request of ForkSandbox."""
    if isinstance(names, (str, bytes)) or not isinstance(names, abc.Sequence):
        raise TypeError(f"names: want a list of names, not {type(names).__name__}")
    return snapshot_pb2.ForkSandboxRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        names=[text_of(name, "names") for name in names],
        snapshot=text_of(snapshot, "snapshot"),
        rules=None if permissions is None else snapshot_pb2.ForkRules(permissions=wire_rules(permissions)),
        allow_wider=allow_wider,
        expires_in=duration_of(seconds_of(expires_in, "expires_in")),
    )


def merge(
    sandbox_id: str,
    from_sandbox_id: str,
    snapshot: str,
    paths: Chosen,
    on_conflict: Union[t.ConflictResolution, str, None],
    dry_run: bool,
) -> Any:
    """Return the request of MergeSandbox. Raises ValueError for an unknown resolution of conflicts."""
    how = t.ConflictResolution(on_conflict).name if on_conflict is not None else "UNSPECIFIED"
    return snapshot_pb2.MergeSandboxRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        from_sandbox_id=id_of(from_sandbox_id, "from_sandbox_id"),
        snapshot=text_of(snapshot, "snapshot"),
        paths=paths,
        on_conflict="CONFLICT_RESOLUTION_" + how,
        dry_run=dry_run,
    )


def change_hosts(sandbox_id: str, grant: Hosts, grant_for: Timeout, revoke: Hosts) -> Any:
    """Return the request of ChangeHosts."""
    return sandbox_pb2.ChangeHostsRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        grant=_texts(grant, "grant"),
        grant_for=duration_of(seconds_of(grant_for, "grant_for")),
        revoke=_texts(revoke, "revoke"),
    )


def grant_path(
    sandbox_id: str, path: PathLike, permission: Union[t.Permission, str], directory: bool, grant_for: Timeout
) -> Any:
    """Return the request of GrantPath."""
    return sandbox_pb2.GrantPathRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        path=encode_path(inside_path(path)) or "/",
        directory=directory,
        permission=number_of(common_pb2.Permission, "PERMISSION_", t.Permission(permission).value),
        grant_for=duration_of(seconds_of(grant_for, "grant_for")),
    )


def revoke_path(sandbox_id: str, path: PathLike, directory: bool) -> Any:
    """Return the request of GrantPath that revokes."""
    return sandbox_pb2.GrantPathRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        path=encode_path(inside_path(path)) or "/",
        directory=directory,
        revoke=True,
    )


def list_asks(sandbox_id: str, wait: Timeout, after: Optional[t.AskList]) -> Any:
    """Return the request of ListAsks."""
    if after is not None and not isinstance(after, t.AskList):
        raise TypeError(f"after: want an AskList, not {type(after).__name__}")
    return sandbox_pb2.ListAsksRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        wait=duration_of(seconds_of(wait, "wait")),
        version="" if after is None else after.version,
    )


def answer_ask(sandbox_id: str, ask: Union[t.Ask, str], allow: bool, scope: Union[t.AskScope, str]) -> Any:
    """Return the request of AnswerAsk. Raises ValueError for an unknown scope."""
    return sandbox_pb2.AnswerAskRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        ask_id=text_of(ask.id if isinstance(ask, t.Ask) else ask, "ask"),
        allow=allow,
        scope=number_of(sandbox_pb2.AskScope, "ASK_SCOPE_", t.AskScope(scope).value),
    )


def export(sandbox_id: str, format: Union[t.ExportFormat, str], mount: Optional[str]) -> Any:
    """Return the request of ExportChanges. Raises ValueError for an unknown format."""
    return export_pb2.ExportChangesRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        format="EXPORT_FORMAT_" + t.ExportFormat(format).name,
        mount=mount_of(mount),
    )


def sql(sandbox_id: str, statement: str, max_rows: int, timeout: Timeout) -> Any:
    """Return the request of QuerySandbox."""
    return export_pb2.QuerySandboxRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        statement=text_of(statement, "statement"),
        max_rows=operator.index(max_rows),
        timeout=duration_of(seconds_of(timeout)),
    )


def lock_paths(sandbox_id: str, paths: Paths, advisory: bool, lock_for: Timeout, wait: Timeout) -> Any:
    """Return the request of LockPaths."""
    return board_pb2.LockPathsRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        paths=_lock_paths(paths),
        advisory=advisory,
        lock_for=duration_of(seconds_of(lock_for, "lock_for")),
        wait=duration_of(seconds_of(wait, "wait")),
    )


def unlock_paths(sandbox_id: str, paths: Optional[Paths]) -> Any:
    """Return the request of UnlockPaths."""
    if paths is None:
        return board_pb2.UnlockPathsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"), all=True)
    return board_pb2.UnlockPathsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"), paths=_lock_paths(paths))


def _lock_paths(paths: Paths) -> List[str]:
    """Return paths to lock. An empty one stays empty, and is an error: it is not the root."""
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else paths or []
    return [path_of(path) and (encode_path(inside_path(path)) or "/") for path in listed]


def post_message(sandbox_id: str, text: str, topic: str, as_agent: bool) -> Any:
    """Return the request of PostMessage."""
    return board_pb2.PostMessageRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        topic=text_of(topic, "topic"),
        text=text_of(text, "text"),
        as_agent=as_agent,
    )


def read_messages(sandbox_id: str, after: int, topic: str, wait: Timeout) -> Any:
    """Return the request of ReadMessages."""
    return board_pb2.ReadMessagesRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        after=operator.index(after),
        topic=text_of(topic, "topic"),
        wait=duration_of(seconds_of(wait, "wait")),
    )


def audit(
    sandbox_id: str, follow: bool, events: Union[str, Sequence[str], None], after_seq: int, since: Optional[datetime]
) -> Any:
    """Return the request of Audit."""
    return sandbox_pb2.AuditRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        follow=follow,
        events=[events] if isinstance(events, str) else events or (),
        after_seq=after_seq,
        since=None if since is None else stamp_of(since),
    )


UPLOAD_CHUNK = 65536
"""The default size in bytes of the pieces of an upload."""


def upload_metadata(codebase_id: str, path: PathLike, **more: Any) -> Any:
    """Return the message that begins a file of an upload."""
    metadata = codebase_pb2.UploadChunk.Metadata(
        codebase_id=id_of(codebase_id, "codebase_id"), file_path=encode_path(path), **more
    )
    return codebase_pb2.UploadChunk(metadata=metadata)


def pieces(content: bytes, size: int) -> Sequence[bytes]:
    """Return content in pieces of at most ``size`` bytes. Raises ValueError unless ``size`` is above 0."""
    if size <= 0:
        raise ValueError(f"chunk_size {size}: want more than 0")
    return [content[i : i + size] for i in range(0, len(content), size)]


Note = Callable[[str, os.stat_result, str], None]
"""A function that records an entry of an upload: its path, its status before reading, and the
SHA-256 of what was sent.
"""


def upload_file(codebase_id: str, file_path: PathLike, content: Union[str, bytes], chunk_size: int) -> Iterator[Any]:
    """Return the messages of UploadFiles."""
    data = bytes_of(content, "content")
    parts = pieces(data, chunk_size)
    first = upload_metadata(codebase_id, file_path, total_size=len(data))
    return iter([first, *(codebase_pb2.UploadChunk(data=part) for part in parts)])


def upload_tree(
    codebase_id: str, path: PathLike, ignore_patterns: Optional[Sequence[str]], note: Optional[Note] = None
) -> Iterator[Any]:
    """Yield the messages of UploadTree for the entries of a directory that are not ignored, and record each entry."""
    note = note or _no_note
    id_of(codebase_id, "codebase_id")
    directory = utils.check_directory(path)
    for entry in utils.walk_entries(directory, utils.upload_matcher(directory, ignore_patterns)):
        mode = stat.S_IMODE(entry.status.st_mode)
        if entry.is_dir:
            yield upload_metadata(codebase_id, entry.path, directory=True, mode=mode)
            note(entry.path, entry.status, "")
        elif entry.is_symlink:
            target = os.readlink(entry.full)
            yield upload_metadata(codebase_id, entry.path, symlink_target=encode_path(target))
            note(entry.path, entry.status, hashlib.sha256(os.fsencode(target)).hexdigest())
        else:
            # No total_size: the file may change while it is read.
            yield upload_metadata(codebase_id, entry.path, mode=mode)
            digest = hashlib.sha256()
            with utils.open_regular(entry.full) as file:
                status = os.fstat(file.fileno())
                while data := file.read(UPLOAD_CHUNK):
                    digest.update(data)
                    yield codebase_pb2.UploadChunk(data=data)
            note(entry.path, status, digest.hexdigest())


def _no_note(path: str, status: os.stat_result, digest: str) -> None:
    """Record nothing."""


# printf %b makes the bytes of the path from the text of the argument; the dot keeps a final line feed. Opening for
# reading and writing does not block on a FIFO. The script checks the file that it opened, and opens that again by its
# descriptor to truncate it, as the name may lead elsewhere by then. A file without read permission is opened for
# appending only.
_STORE = """p=$(printf %b "$1."); p=${p%.}
case $p in */*) mkdir -p -- "${p%/*}" || exit;; esac
if [ -f "$p" ] && [ ! -r "$p" ]; then exec 3>>"$p" || exit; else exec 3<>"$p" || exit; fi
if [ ! -f /proc/self/fd/3 ]; then echo "sh: $p: is not a regular file" >&2; exit 1; fi
cat >/proc/self/fd/3"""


def _octal(path: str) -> str:
    """Return a path in the syntax of printf's %b."""
    return "".join(chr(b) if b < 0x80 and b != 0x5C else f"\\0{b:03o}" for b in path.encode("utf-8", "surrogateescape"))


def store(sandbox_id: str, path: PathLike, timeout: Optional[float]) -> Any:
    """Return the first message of an Attach that writes its input to a file of a sandbox's view.

    Raises InvalidConfigurationError for a path with "..", as the server does for other requests.
    """
    inside = inside_path(path)
    if ".." in inside.split("/"):
        raise InvalidConfigurationError(f'path: path "{inside}": name ".." is not allowed')
    start = sandbox_pb2.AttachRequest.Start(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        argv=["/bin/sh", "-c", _STORE, "sh", _octal("./" + inside)],
        timeout=duration_of(timeout),
    )
    return sandbox_pb2.AttachRequest(start=start)


def watch(sandbox_id: str, path: PathLike, recursive: bool, mount: Optional[str]) -> Any:
    """Return the request of WatchView."""
    return sandbox_pb2.WatchViewRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"),
        path=view_path(path, mount),
        recursive=recursive,
        mount=mount_of(mount),
    )


def watched(path: PathLike, mount: Optional[str]) -> FileChange:
    """Return what a watch reports when changes were lost."""
    return FileChange(plain_path(path, mount), ChangeKind.LOST, mount=mount or "")


def explain(sandbox_id: str, path: PathLike, mount: Optional[str]) -> Any:
    """Return the request of ExplainPolicy."""
    return sandbox_pb2.ExplainPolicyRequest(
        sandbox_id=id_of(sandbox_id, "sandbox_id"), path=view_path(path, mount), mount=mount_of(mount)
    )
