# Made from _async_execs.py by make gen: do not edit.

"""The calls about commands that are spoken with while they run, or go on without their client, for threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Union

from . import _requests as requests
from ._arguments import PathLike
from ._codebases import Calls
from ._connection import ANSWER, within
from ._errors import Call
from ._gen.sandbox.v1 import sandbox_pb2
from ._requests import Timeout, WindowSize
from ._streams import Stream
from ._wire import detached_exec_of, exec_id_of, seconds_of
from .attach import AttachedExec
from .types import DetachedExec

if TYPE_CHECKING:
    from .client import SandboxClient


class ExecCalls(Calls):
    """The calls about commands that are spoken with while they run, or go on without their client."""

    def attach(
        self,
        sandbox_id: str,
        argv: Sequence[str],
        *,
        terminal: Optional[WindowSize] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        detach: bool = False,
    ) -> AttachedExec:
        """Start a program, looked up in PATH, with its arguments, and return it when it runs.

        ``terminal`` gives it a terminal with these rows and columns. ``timeout`` is a timedelta, or seconds; None means
        the longest that the server allows. With ``detach`` it keeps running without its client, with its input open.
        """
        seconds = seconds_of(timeout)
        first = requests.attach(sandbox_id, argv, terminal, env, workdir, seconds, detach)
        about = Call("attach", sandbox_id, command=" ".join(argv), timeout=seconds)
        # What is detached outlives the call, so its time-out is not the call's.
        start = partial(self._connection.talk, "Attach", first, None if detach else within(seconds))
        return AttachedExec(start, about, self._connection, detach)

    def resume(self, sandbox_id: str, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AttachedExec:
        """Reconnect to a detached command, running or ended, at the unread part of its output. Leaving does not end it.

        The offsets are the bytes of its output that you already have. The last 256 KiB of each stream are kept. Raises
        ExecNotFoundError for a command that is not kept.
        """
        first = requests.resume(sandbox_id, exec_id, stdout_offset, stderr_offset)
        about = Call("attach", sandbox_id, exec_id=exec_id, command=f"exec {exec_id}")
        return AttachedExec(partial(self._connection.talk, "Attach", first), about, self._connection)

    def list_execs(self, sandbox_id: str) -> List[DetachedExec]:
        """Return a running sandbox's detached commands, the oldest first: all that run, the last 16 that ended."""
        request = sandbox_pb2.ListExecsRequest(sandbox_id=sandbox_id)
        answer = self._connection.call("ListExecs", request, Call("list execs", sandbox_id))
        return [detached_exec_of(message) for message in answer.execs]

    def exec_detached(
        self,
        sandbox_id: str,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
    ) -> str:
        """Start ``/bin/sh -c COMMAND``, which runs on without its client, and return its id for ``resume``.

        ``timeout`` is a timedelta, or seconds; None is the server's default (30 s unless configured), as for ``exec``.
        """
        request = requests.execute(sandbox_id, command, stdin, env, workdir, seconds_of(timeout), detach=True)
        start = partial(self._start, "ExecStream", request, Call("exec", sandbox_id))
        return self._connection.finish(start, lambda exec_id: _kill(self.resume(sandbox_id, exec_id)))

    def session_exec_detached(self, session_id: str, command: str, timeout: Timeout = None) -> str:
        """Start a command in a session's shell, which runs on without its client; return its id for ``resume``.

        It can be sent no input and no signals. ``timeout`` is a timedelta, or seconds; None is 30 s.
        """
        request = requests.session_execute(session_id, command, seconds_of(timeout), detach=True)
        return self._start("SessionExecStream", request, Call("exec", session_id=session_id))

    def _start(self, method: str, request: Any, about: Call) -> str:
        start = partial(self._connection.stream, method, request, ANSWER)
        with Stream[Any](start, about, self._connection) as stream:
            message = stream.read()
        return exec_id_of(message)


def _kill(attached: AttachedExec) -> None:
    with attached:
        attached.kill()


class SandboxExecs:
    """The same of one sandbox."""

    _client: SandboxClient

    @property
    def id(self) -> str:
        """The sandbox's id."""
        raise NotImplementedError

    def attach(
        self,
        argv: Sequence[str],
        *,
        terminal: Optional[WindowSize] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        detach: bool = False,
    ) -> AttachedExec:
        """Start a program, to be spoken with; see SandboxClient.attach."""
        return self._client.attach(
            self.id, argv, terminal=terminal, env=env, workdir=workdir, timeout=timeout, detach=detach
        )

    def exec_detached(
        self,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
    ) -> str:
        """Start a command that keeps running without its client; see SandboxClient.exec_detached."""
        return self._client.exec_detached(self.id, command, stdin, env, workdir, timeout)

    def resume(self, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AttachedExec:
        """Take a detached command up; see SandboxClient.resume."""
        return self._client.resume(self.id, exec_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset)

    def execs(self) -> List[DetachedExec]:
        """Return its detached commands; see SandboxClient.list_execs."""
        return self._client.list_execs(self.id)
