# Made from _async_changes.py by make gen: do not edit.

"""The calls about a sandbox's view, changes, policy and audit log, for threads."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import List, Optional, Sequence, Union

from . import _requests as requests
from . import types as t
from ._arguments import PathLike, id_of, path_of
from ._codebases import Calls
from ._connection import ANSWER, WORK, within
from ._errors import MAX_READ, Call, next_page, write_error
from ._gen.sandbox.v1 import sandbox_pb2
from ._output import AuditStream, ExecStream, LogStream
from ._requests import Hosts, Paths, Timeout
from ._uploads import git_user as git_user_of
from ._watch import FileWatch
from ._wire import (
    applied_commits_of,
    apply_result_of,
    ask_list_of,
    change_group_of,
    commit_of,
    discard_result_of,
    explanation_of,
    file_diff_of,
    sandbox_of,
    seconds_of,
    view_entry_of,
)


class ChangeCalls(Calls):
    """The calls about a sandbox's view, changes, policy and audit log."""

    # The view of a sandbox

    def list_view(self, sandbox_id: str, path: PathLike = "", *, mount: Optional[str] = None) -> List[t.ViewEntry]:
        """List a directory as a command inside would see it. The sandbox need not run.

        ``mount`` is the name of a mount in which the path is; None means the workspace.
        """
        request = requests.list_view(sandbox_id, path, mount)
        found: List[t.ViewEntry] = []
        while True:
            page = self._connection.call("ListView", request, Call("list", sandbox_id, path=path_of(path) or "/"))
            found += map(view_entry_of, page.entries)
            request.page_token = next_page(request.page_token, page.next_page_token)
            if not request.page_token:
                return found

    def stat_view(self, sandbox_id: str, path: PathLike, *, mount: Optional[str] = None) -> t.ViewEntry:
        """Return the attributes of a path as a command inside would see them; for ``mount`` see ``list_view``."""
        request = requests.list_view(sandbox_id, path, mount, itself=True)
        answer = self._connection.call("ListView", request, Call("stat", sandbox_id, path=path_of(path) or "/"))
        return view_entry_of(answer.entries[0])

    def read_view(
        self, sandbox_id: str, path: PathLike, *, max_bytes: Optional[int] = MAX_READ, mount: Optional[str] = None
    ) -> bytes:
        """Return the content of a file as a command inside would read it; see SandboxFiles.read_bytes."""
        request = requests.read_view(sandbox_id, path, mount)
        return self._content("ReadView", request, Call("read", sandbox_id, path=path_of(path)), max_bytes)

    def write_view(self, sandbox_id: str, path: PathLike, content: Union[str, bytes]) -> None:
        """Write a file as a command inside would; see SandboxFiles.write."""
        # Read while sending: in gRPC before 1.60, a message that cannot be sent waits for a reader.
        messages = iter(
            [requests.store(sandbox_id, path, WORK), *requests.stdin(content, "content"), requests.stdin_end()]
        )
        start = partial(self._connection.stream, "Attach", messages, within(WORK))
        with ExecStream(start, Call("write", sandbox_id, path=path_of(path)), self._connection) as output:
            said = [chunk.data for chunk in output.chunks()]
        if output.exit_code != 0:
            raise write_error(path_of(path), b"".join(said).decode(errors="replace"))

    def watch_view(
        self,
        sandbox_id: str,
        path: PathLike = "",
        recursive: bool = True,
        *,
        timeout: Timeout = None,
        mount: Optional[str] = None,
    ) -> FileWatch:
        """Return an iterator of the changes in a running sandbox's view; see SandboxFiles.watch."""
        seconds = seconds_of(timeout)
        start = partial(
            self._connection.stream, "WatchView", requests.watch(sandbox_id, path, recursive, mount), seconds
        )
        about = Call("watch", sandbox_id, path=path_of(path) or "/")
        return FileWatch(start, about, self._connection, requests.watched(path, mount), seconds)

    # Changes

    def diff(
        self,
        sandbox_id: str,
        paths: Paths = None,
        *,
        names_only: bool = False,
        shown: t.Reviewed = None,
        mount: Optional[str] = None,
    ) -> t.Diff:
        """Return the changes of a sandbox against its source: those with a risk first, then by path.

        ``paths`` is a path or a list of paths, each with everything below it; None means all, and
        an empty list no change. The result's ``digest`` identifies what it shows. With ``shown``,
        an earlier result or its digest, it also covers what that result shows of other paths. With
        ``names_only`` the changes have no patches. ``mount`` is the name of a mount that is meant;
        None means the workspace.
        """
        wanted = requests.chosen(paths, mount)
        found = t.Diff()
        if wanted == []:
            return found
        token = ""
        while True:
            request = requests.diff(sandbox_id, wanted, names_only, shown, token, mount)
            page = self._connection.call("Diff", request, Call("diff", sandbox_id), WORK)
            found.extend(map(file_diff_of, page.files))
            found.groups.extend(map(change_group_of, page.groups))
            found.digest = page.digest
            token = next_page(token, page.next_page_token)
            if not token:
                if shown is None and not names_only and mount is None:
                    found._shown = tuple(found)
                return found

    def apply(
        self,
        sandbox_id: str,
        paths: Paths = None,
        *,
        dry_run: bool = False,
        reviewed: t.Reviewed = None,
        mount: Optional[str] = None,
        hunks: Optional[Sequence[str]] = None,
        on_conflict: Union[t.ConflictResolution, str, None] = None,
        to_branch: Optional[str] = None,
        message: str = "",
        git_user: Optional[t.GitUser] = None,
        attest: bool = False,
    ) -> t.ApplyResult:
        """Apply changes to the source: all that are selected, or none and an error.

        ``paths`` is a path or a list of paths, each with everything below it; None means all, and
        an empty list no change. With ``reviewed``, a result of ``diff`` or its digest, a change
        that differs from what was shown stays in the sandbox, with the outcome
        ``CHANGED_SINCE_REVIEW``. With ``dry_run`` nothing changes. Raises ConflictError if the
        source changed too, and PermissionDeniedError if the policy does not allow a change. ``mount``
        is the name of a mount that is meant, and the server's configuration must still let
        sandboxes write its source; None means the workspace. ``hunks`` are ids of changes and hunks
        of ``diff``, in place of ``paths``: the rest of a file remains a change, and an empty list
        applies nothing. A text that the source and the sandbox changed at different lines is
        merged; ``on_conflict`` says what to do with lines that both changed. Neither is possible in
        a codebase that was uploaded.

        ``to_branch`` commits the changes to a new branch of the linked directory's git repository
        instead, with ``message``, by ``git_user``; the changes stay in the sandbox. With ``attest``
        the result has a statement about what was applied, or about the commit, for the user to
        sign; it needs ``reviewed`` if the sandbox runs. Nothing is merged then.
        """
        wanted = requests.chosen(paths, mount)
        if wanted == [] or (hunks is not None and not hunks):
            return t.ApplyResult([], 0, 0)
        request = requests.apply(
            sandbox_id,
            wanted,
            dry_run,
            reviewed,
            mount,
            hunks,
            on_conflict,
            to_branch=to_branch,
            message=message,
            git_user=git_user,
            attest=attest,
        )
        return apply_result_of(self._connection.call("Apply", request, Call("apply", sandbox_id), WORK))

    def list_commits(self, sandbox_id: str) -> t.Commits:
        """Return the commits that commands made in the clean repository of a sandbox (``git``)."""
        request = sandbox_pb2.ListCommitsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"), page_size=1000)
        found = t.Commits("")
        while True:
            page = self._connection.call("ListCommits", request, Call("list commits", sandbox_id), WORK)
            found.source = page.source_commit
            found.commits += map(commit_of, page.commits)
            request.page_token = next_page(request.page_token, page.next_page_token)
            if not request.page_token:
                return found

    def apply_commits(
        self,
        sandbox_id: str,
        to_branch: Optional[str] = None,
        *,
        from_branch: Optional[str] = None,
        at_base: bool = False,
        reviewed: Optional[str] = None,
        dry_run: bool = False,
        git_user: Optional[t.GitUser] = None,
    ) -> t.AppliedCommits:
        """Make the commits of a sandbox anew in the linked directory's repository.

        Authors and messages stay, and hidden files are left out. ``to_branch`` is a new branch;
        None continues the one that is checked out, with its work tree and its index. These must be
        without changes at each path that the commits change, and ``undo`` takes it back.
        ``from_branch`` is a branch of the sandbox; None means the one that is checked out. With
        ``at_base`` the branch begins at the commit of which the clean repository was made, else at
        the last commit of the source's branch. With ``reviewed``, the id of a commit, another last
        commit is refused. ``git_user`` is the committer; None takes yours. Raises ConflictError if
        the source's branch conflicts, and PermissionDeniedError if the policy does not allow a
        change: then nothing is changed, and with ``dry_run`` the result names the files.
        """
        by = git_user_of(None) if git_user is None else git_user
        request = requests.apply_commits(sandbox_id, to_branch, from_branch, at_base, reviewed, dry_run, by)
        answer = self._connection.call("ApplyCommits", request, Call("apply commits", sandbox_id), WORK)
        return applied_commits_of(answer)

    def discard(
        self, sandbox_id: str, paths: Paths = None, *, dry_run: bool = False, mount: Optional[str] = None
    ) -> t.DiscardResult:
        """Discard changes.

        ``paths`` is a path or a list of paths, each with everything below it; None means all, and
        an empty list no change. With ``dry_run`` nothing changes. ``mount`` is the name of a mount
        that is meant; None means the workspace.
        """
        wanted = requests.chosen(paths, mount)
        if wanted == []:
            return t.DiscardResult([], 0)
        request = requests.discard(sandbox_id, wanted, dry_run, mount)
        return discard_result_of(self._connection.call("Discard", request, Call("discard", sandbox_id), WORK))

    # Policy and audit

    def set_policy(self, sandbox_id: str, permissions: Sequence[t.RuleLike]) -> t.Sandbox:
        """Replace the rules of a sandbox, also for running commands."""
        request = requests.set_policy(sandbox_id, permissions)
        return sandbox_of(self._connection.call("SetPolicy", request, Call("set policy", sandbox_id)))

    def change_hosts(
        self, sandbox_id: str, grant: Hosts = (), revoke: Hosts = (), *, grant_for: Timeout = None
    ) -> t.Sandbox:
        """Change the hosts that a sandbox may reach, also for running commands.

        ``grant_for`` is how long the grants last, in seconds or as a timedelta; None means until
        they are revoked. Connections to revoked hosts are closed when this returns.
        """
        request = requests.change_hosts(sandbox_id, grant, grant_for, revoke)
        return sandbox_of(self._connection.call("ChangeHosts", request, Call("change hosts", sandbox_id)))

    def grant_path(
        self,
        sandbox_id: str,
        path: PathLike,
        permission: Union[t.Permission, str],
        *,
        directory: bool = False,
        grant_for: Timeout = None,
    ) -> t.Sandbox:
        """Give a path of the workspace a permission that it lacks, also for running commands.

        With ``directory`` the grant covers everything below the path. ``grant_for`` is how long it
        lasts, in seconds or as a timedelta; None means until it is revoked.
        """
        request = requests.grant_path(sandbox_id, path, permission, directory, grant_for)
        return sandbox_of(self._connection.call("GrantPath", request, Call("grant path", sandbox_id)))

    def revoke_path(self, sandbox_id: str, path: PathLike, *, directory: bool = False) -> t.Sandbox:
        """Take all grants of a path back, also from running commands."""
        request = requests.revoke_path(sandbox_id, path, directory)
        return sandbox_of(self._connection.call("GrantPath", request, Call("revoke path", sandbox_id)))

    def list_asks(self, sandbox_id: str, *, wait: Timeout = None, after: Optional[t.AskList] = None) -> t.AskList:
        """Return the refusals that wait for an answer, the oldest first.

        With ``wait``, at most 60 seconds, it waits until the list differs from ``after``, an earlier
        result; None means an empty list. Raises SandboxNotRunningError, and SandboxError for a
        sandbox without ``ask_timeout``.
        """
        request = requests.list_asks(sandbox_id, wait, after)
        seconds = (seconds_of(wait, "wait") or 0) + ANSWER
        return ask_list_of(self._connection.call("ListAsks", request, Call("list asks", sandbox_id), seconds))

    def answer_ask(
        self,
        sandbox_id: str,
        ask: Union[t.Ask, str],
        allow: bool,
        scope: Union[t.AskScope, str] = t.AskScope.ONCE,
    ) -> None:
        """Allow or deny what waits for an answer.

        Raises PermissionDeniedError for a host that the server's configuration does not include,
        and SandboxError for an ask that waits no longer.
        """
        request = requests.answer_ask(sandbox_id, ask, allow, scope)
        self._connection.call("AnswerAsk", request, Call("answer ask", sandbox_id))

    def explain_policy(self, sandbox_id: str, path: PathLike, *, mount: Optional[str] = None) -> t.Explanation:
        """Return the permission of a path, which need not exist, with the rule that decides.

        ``mount`` is the name of a mount in which the path is; None means the workspace. The indexes
        of rules are then those in the mount's rules; a mount of mode ``ro`` has none.
        """
        request = requests.explain(sandbox_id, path, mount)
        answer = self._connection.call("ExplainPolicy", request, Call("explain", sandbox_id))
        return explanation_of(answer, path_of(path))

    def audit(
        self,
        sandbox_id: str,
        *,
        follow: bool = False,
        events: Union[str, Sequence[str], None] = None,
        after_seq: int = 0,
        since: Optional[datetime] = None,
    ) -> AuditStream:
        """Return the audit events of a sandbox; with ``follow`` also future ones, until it is destroyed.

        ``events`` is the name of an event or a list of names; None means all. ``after_seq`` and
        ``since`` select later events.
        """
        request = requests.audit(sandbox_id, follow, events, after_seq, since)
        start = partial(self._connection.stream, "Audit", request, None if follow else WORK)
        return AuditStream(start, Call("audit", sandbox_id), self._connection)

    def logs(self, sandbox_id: str, *, follow: bool = False) -> LogStream:
        """Return the output of a sandbox's detached commands; with ``follow`` until the last of them has ended."""
        request = sandbox_pb2.LogsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"), follow=follow)
        start = partial(self._connection.stream, "Logs", request, None if follow else WORK)
        return LogStream(start, Call("logs", sandbox_id), self._connection)
