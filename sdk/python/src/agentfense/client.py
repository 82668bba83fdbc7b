# Made from async_client.py by make gen: do not edit.

"""SandboxClient: a method for each call of the API, for threads."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import List, Mapping, Optional, Sequence, Type, Union

from . import _requests as requests
from . import types as t
from ._arguments import PathLike, id_of
from ._board import BoardCalls
from ._codebases import CodebaseCalls
from ._connection import WORK, Connection, within
from ._errors import Call, next_page
from ._execs import ExecCalls
from ._export import ExportCalls
from ._gen.sandbox.v1 import sandbox_pb2
from ._history import HistoryCalls
from ._output import ExecStream
from ._requests import Hosts, Names, Resources, Timeout
from ._results import exec_result_of
from ._snapshots import SnapshotCalls
from ._uploads import git_user as git_user_of
from ._wire import (
    sandbox_of,
    seconds_of,
    session_of,
    stats_of,
)
from .exceptions import (
    SandboxNotFoundError,
    SandboxNotRunningError,
    SessionNotFoundError,
)


class SandboxClient(CodebaseCalls, BoardCalls, ExecCalls, SnapshotCalls, HistoryCalls, ExportCalls):
    """A client of the server's API.

    The server is ``endpoint``, else $AGENTFENSE_ENDPOINT, else your own server, which the client
    starts if it does not run. ``secure`` asks for TLS. The token is ``token``, else
    $AGENTFENSE_TOKEN, else the content of $AGENTFENSE_TOKEN_FILE, else, on this host, the token of
    your own server.

    Threads may share a client. In a forked process, using a client of the parent and making one
    both raise InvalidConfigurationError.

    Methods raise the errors of ``agentfense.exceptions``, such as ConnectionError if the server
    cannot be reached. If a server does not answer, every method ends after a limited time.
    """

    def __init__(self, endpoint: Optional[str] = None, secure: bool = False, *, token: Optional[str] = None) -> None:
        self._connection = Connection(endpoint, secure, token)

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return self._connection.endpoint.text

    @property
    def same_host(self) -> bool:
        """Whether the server is known to see the files of this host."""
        return self._connection.endpoint.same_host

    def close(self) -> None:
        """Close the connection. This ends what still runs over it."""
        self._connection.close()

    def __enter__(self) -> SandboxClient:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    # Sandboxes

    def create_sandbox(
        self,
        codebase_id: str,
        permissions: Optional[Sequence[t.RuleLike]] = None,
        labels: Optional[Mapping[str, str]] = None,
        expires_in: Timeout = None,
        runtime: Optional[t.RuntimeType] = t.RuntimeType.BWRAP,
        image: Optional[str] = None,
        resources: Resources = None,
        *,
        name: Optional[str] = None,
        user: Optional[int] = None,
        sync: Optional[t.SyncMode] = None,
        at_host_path: bool = False,
        home: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        git_user: Optional[t.GitUser] = None,
        allow_net: Hosts = (),
        net_limits: Names = (),
        publish: Names = (),
        ask_timeout: Timeout = None,
        board: bool = False,
        git: str = "",
        mounts: Sequence[t.MountLike] = (),
        scratch: Names = (),
        secrets: Names = (),
    ) -> t.Sandbox:
        """Create a sandbox from a codebase; ``start_sandbox`` starts it. Without rules, nothing is visible.

        - ``sync``: when changes reach an uploaded codebase; None means as the server is configured.
        - ``at_host_path``: whether a linked codebase is at its own path of the host inside, as on
          the command line. /workspace leads there too.
        - The other parameters are those of ``Sandbox.from_local``.
        """
        by = git_user_of(None) if git_user is None else git_user
        request = requests.create_sandbox(
            codebase_id,
            permissions,
            labels,
            expires_in,
            runtime,
            image,
            resources,
            name,
            user,
            sync,
            at_host_path,
            home,
            env,
            by,
            allow_net,
            net_limits,
            publish,
            ask_timeout,
            board,
            git,
            mounts,
            scratch,
            secrets,
        )
        about = Call("create sandbox", codebase_id=codebase_id)
        answer = self._connection.make(
            "CreateSandbox", request, about, lambda made: self.destroy_sandbox(made.id, unused_only=True)
        )
        return sandbox_of(answer)

    def get_sandbox(self, sandbox_id: str) -> t.Sandbox:
        """Return the description of a sandbox."""
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
        return sandbox_of(self._connection.call("GetSandbox", request, Call("get sandbox", sandbox_id)))

    def list_sandboxes(
        self,
        codebase_id: Optional[str] = None,
        *,
        owner_id: Optional[str] = None,
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        usage: bool = False,
    ) -> List[t.Sandbox]:
        """Return the sandboxes that the token may see, the oldest first.

        ``codebase_id``, ``owner_id``, ``name`` and ``labels`` select sandboxes; all that are given
        must match. With ``usage`` each sandbox has its usage, for which the server reads up to 2000
        entries of each.
        """
        found: List[t.Sandbox] = []
        token = ""
        while True:
            request = requests.list_sandboxes(codebase_id, owner_id, name, labels, usage, token)
            page = self._connection.call("ListSandboxes", request, Call("list sandboxes"))
            found += map(sandbox_of, page.sandboxes)
            token = next_page(token, page.next_page_token)
            if not token:
                return found

    def start_sandbox(self, sandbox_id: str) -> t.Sandbox:
        """Start a sandbox. Raises InvalidConfigurationError if the host lacks what it needs."""
        request = sandbox_pb2.StartSandboxRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
        return sandbox_of(self._connection.call("StartSandbox", request, Call("start", sandbox_id), WORK))

    def stop_sandbox(self, sandbox_id: str) -> t.Sandbox:
        """Stop a sandbox and everything that runs in it. Its changes remain."""
        request = sandbox_pb2.StopSandboxRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
        return sandbox_of(self._connection.call("StopSandbox", request, Call("stop", sandbox_id), WORK))

    def update_sandbox(
        self,
        sandbox_id: str,
        *,
        resources: requests.Resources = None,
        scratch: Optional[requests.Names] = None,
        secrets: Optional[requests.Names] = None,
        net_limits: Optional[requests.Names] = None,
        publish: Optional[requests.Names] = None,
        ask_timeout: Timeout = None,
    ) -> t.Sandbox:
        """Change what a stopped sandbox has from its next start on, and return it.

        The arguments are those of ``create_sandbox``. None leaves a value as it is, an empty list
        removes all entries, ``resources`` replaces all limits, and an
        ``ask_timeout`` of 0 ends to ask. Raises SandboxError if the
        sandbox is running. Nothing has changed after an error.
        """
        request = requests.update(sandbox_id, resources, scratch, secrets, net_limits, publish, ask_timeout)
        return sandbox_of(self._connection.call("UpdateSandbox", request, Call("update", sandbox_id)))

    def destroy_sandbox(self, sandbox_id: str, *, unused_only: bool = False) -> int:
        """Destroy a sandbox, and return the number of changes that are lost: neither applied nor synchronized.

        With ``unused_only``, raises SandboxError if a command or a session runs in it, or if it has
        such changes.
        """
        request = sandbox_pb2.DestroySandboxRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"), unused_only=unused_only)
        answer = self._connection.call("DestroySandbox", request, Call("destroy", sandbox_id), WORK)
        return int(answer.discarded_count)

    def get_stats(self, sandbox_id: str) -> t.Stats:
        """Return what a running sandbox uses."""
        request = sandbox_pb2.GetStatsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
        return stats_of(self._connection.call("GetStats", request, Call("stats", sandbox_id)))

    # Commands

    def exec(
        self,
        sandbox_id: str,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        *,
        checkpoint: bool = False,
    ) -> t.ExecResult:
        """Run ``/bin/sh -c COMMAND``, and wait for its end. A command that fails raises no error.

        ``timeout`` is in seconds, or a timedelta; None means the server's default (30 s unless
        configured). Then the command is killed, and CommandTimeoutError is raised. ``checkpoint``
        takes a snapshot first: ``@{1}`` names that state until the next such command.
        """
        seconds = seconds_of(timeout)
        request = requests.execute(sandbox_id, command, stdin, env, workdir, seconds, checkpoint=checkpoint)
        about = Call("exec", sandbox_id, command=command, timeout=seconds)
        return exec_result_of(self._connection.call("Exec", request, about, within(seconds)), command)

    def exec_stream(
        self,
        sandbox_id: str,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        *,
        checkpoint: bool = False,
    ) -> ExecStream:
        """Run a command, and return its output as it comes; for ``timeout`` and ``checkpoint`` see ``exec``."""
        seconds = seconds_of(timeout)
        request = requests.execute(sandbox_id, command, stdin, env, workdir, seconds, checkpoint=checkpoint)
        about = Call("exec", sandbox_id, command=command, timeout=seconds)
        return ExecStream(
            partial(self._connection.stream, "ExecStream", request, within(seconds)), about, self._connection
        )

    # Sessions

    def create_session(
        self, sandbox_id: str, shell: str = "/bin/sh", env: Optional[Mapping[str, str]] = None
    ) -> SessionWrapper:
        """Start a shell that keeps its directory, variables, functions and jobs between commands."""
        return self._create_session(sandbox_id, shell, env)

    def _create_session(self, sandbox_id: str, shell: str, env: Optional[Mapping[str, str]]) -> SessionWrapper:
        request = requests.create_session(sandbox_id, shell, env)
        about = Call("create session", sandbox_id)
        answer = self._connection.make("CreateSession", request, about, lambda made: self.destroy_session(made.id))
        return SessionWrapper(self, session_of(answer))

    session = create_session

    def get_session(self, session_id: str) -> t.Session:
        """Return the description of a session."""
        request = sandbox_pb2.GetSessionRequest(session_id=id_of(session_id, "session_id"))
        return session_of(self._connection.call("GetSession", request, Call("get session", session_id=session_id)))

    def list_sessions(self, sandbox_id: str) -> List[t.Session]:
        """Return the sessions of a sandbox."""
        request = sandbox_pb2.ListSessionsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
        answer = self._connection.call("ListSessions", request, Call("list sessions", sandbox_id))
        return [session_of(session) for session in answer.sessions]

    def destroy_session(self, session_id: str) -> None:
        """End a session: its shell, and everything that the shell started."""
        request = sandbox_pb2.DestroySessionRequest(session_id=id_of(session_id, "session_id"))
        self._connection.call("DestroySession", request, Call("destroy session", session_id=session_id))

    close_session = destroy_session

    def session_exec(self, session_id: str, command: str, timeout: Timeout = None) -> t.ExecResult:
        """Run a command in a session's shell, and wait for its end.

        ``timeout`` is in seconds, or a timedelta; None means 30 s. Then the command is killed, and
        CommandTimeoutError is raised; the session remains.
        """
        seconds = seconds_of(timeout)
        request = requests.session_execute(session_id, command, seconds)
        about = Call("exec", session_id=session_id, command=command, timeout=seconds)
        return exec_result_of(self._connection.call("SessionExec", request, about, within(seconds)), command)

    def session_exec_stream(self, session_id: str, command: str, timeout: Timeout = None) -> ExecStream:
        """Run a command in a session's shell, and return its output as it comes."""
        seconds = seconds_of(timeout)
        request = requests.session_execute(session_id, command, seconds)
        about = Call("exec", session_id=session_id, command=command, timeout=seconds)
        return ExecStream(
            partial(self._connection.stream, "SessionExecStream", request, within(seconds)), about, self._connection
        )


class SessionWrapper:
    """A shell in a sandbox that keeps its state between commands. Leaving its ``with`` block ends it."""

    def __init__(self, client: SandboxClient, info: t.Session) -> None:
        self._client = client
        self._info = info
        self._closed = False

    @property
    def id(self) -> str:
        """The session's id."""
        return self._info.id

    @property
    def sandbox_id(self) -> str:
        """The id of the session's sandbox."""
        return self._info.sandbox_id

    @property
    def status(self) -> t.SessionStatus:
        """The status when the session was created; CLOSED after ``close``."""
        return t.SessionStatus.CLOSED if self._closed else self._info.status

    @property
    def shell(self) -> str:
        """The path of the shell."""
        return self._info.shell

    def exec(self, command: str, timeout: Timeout = None) -> t.ExecResult:
        """Run a command in the shell, and wait for its end; see SandboxClient.session_exec."""
        return self._client.session_exec(self.id, command, timeout)

    def exec_stream(self, command: str, timeout: Timeout = None) -> ExecStream:
        """Run a command in the shell, and return its output as it comes."""
        return self._client.session_exec_stream(self.id, command, timeout)

    def exec_detached(self, command: str, timeout: Timeout = None) -> str:
        """Start a command that keeps running without its client, and return its id for ``resume`` of the sandbox."""
        return self._client.session_exec_detached(self.id, command, timeout)

    def close(self) -> None:
        """End the shell and everything that it started. A second call does nothing."""
        if not self._closed:
            self._closed = True
            with suppress(SessionNotFoundError, SandboxNotFoundError, SandboxNotRunningError):
                self._client.destroy_session(self.id)

    def __enter__(self) -> SessionWrapper:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
