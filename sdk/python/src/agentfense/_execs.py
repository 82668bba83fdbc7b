# Made from _async_execs.py by make gen: do not edit.

"""The calls about attached and detached commands, for threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Union

from . import _requests as requests
from ._arguments import PathLike, id_of
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
    """The calls about attached and detached commands."""

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
        checkpoint: bool = False,
    ) -> AttachedExec:
        """Start a program with arguments, to control its input, output and signals.

        ``argv[0]`` is looked up in PATH. ``terminal`` is the rows and columns of a terminal for it;
        None means pipes. ``timeout`` is in seconds, or a timedelta; None means the longest that the
        server allows. With ``detach`` the program keeps running without its client, with its input
        open. ``checkpoint`` takes a snapshot first.
        """
        seconds = seconds_of(timeout)
        first = requests.attach(sandbox_id, argv, terminal, env, workdir, seconds, detach, checkpoint)
        about = Call("attach", sandbox_id, command=" ".join(argv), timeout=seconds)
        # A detached command outlives the call, so the call does not have its time-out.
        start = partial(self._connection.talk, "Attach", first, None if detach else within(seconds))
        return AttachedExec(start, about, self._connection, detach)

    def resume(self, sandbox_id: str, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AttachedExec:
        """Reconnect to a detached command, running or ended, and to its output. Leaving does not end it.

        ``stdout_offset`` and ``stderr_offset`` are the bytes of its output that you already have.
        The last 256 KiB of each stream are kept. Raises ExecNotFoundError for a command that is not
        kept.
        """
        first = requests.resume(sandbox_id, exec_id, stdout_offset, stderr_offset)
        about = Call("attach", sandbox_id, exec_id=exec_id, command=f"exec {exec_id}")
        return AttachedExec(partial(self._connection.talk, "Attach", first), about, self._connection)

    def list_execs(self, sandbox_id: str) -> List[DetachedExec]:
        """Return a running sandbox's detached commands, the oldest first: those that run, and the last 16 others."""
        request = sandbox_pb2.ListExecsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
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
        *,
        checkpoint: bool = False,
    ) -> str:
        """Start ``/bin/sh -c COMMAND``, which keeps running without its client, and return its id for ``resume``.

        ``timeout`` is in seconds, or a timedelta; None means the server's default (30 s unless
        configured). ``checkpoint`` takes a snapshot first.
        """
        request = requests.execute(
            sandbox_id, command, stdin, env, workdir, seconds_of(timeout), detach=True, checkpoint=checkpoint
        )
        start = partial(self._start, "ExecStream", request, Call("exec", sandbox_id))
        return self._connection.finish(start, lambda exec_id: _kill(self.resume(sandbox_id, exec_id)))

    def session_exec_detached(self, session_id: str, command: str, timeout: Timeout = None) -> str:
        """Start a command in a session's shell that keeps running without its client, and return its id.

        It accepts no input and no signals. ``timeout`` is in seconds, or a timedelta; None means 30
        seconds.
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
    """The same calls for one sandbox."""

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
        checkpoint: bool = False,
    ) -> AttachedExec:
        """Start a program, to control it while it runs; see SandboxClient.attach."""
        return self._client.attach(
            self.id,
            argv,
            terminal=terminal,
            env=env,
            workdir=workdir,
            timeout=timeout,
            detach=detach,
            checkpoint=checkpoint,
        )

    def exec_detached(
        self,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        *,
        checkpoint: bool = False,
    ) -> str:
        """Start a command that keeps running without its client, and return its id for ``resume``."""
        return self._client.exec_detached(self.id, command, stdin, env, workdir, timeout, checkpoint=checkpoint)

    def resume(self, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AttachedExec:
        """Reconnect to a detached command; see SandboxClient.resume."""
        return self._client.resume(self.id, exec_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset)

    def execs(self) -> List[DetachedExec]:
        """Return the detached commands; see SandboxClient.list_execs."""
        return self._client.list_execs(self.id)
