"""Which server to talk to where none is named: this user's own, which is started if need be."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple

from ._arguments import string_of
from ._endpoint import Endpoint, parse_endpoint, state_directory
from ._program import find_program
from .exceptions import ConnectionError, InvalidConfigurationError, VersionMismatchError

IDLE_EXIT = "1m"
"""How long a server that this package has started stays when nobody is connected and nothing runs."""

START_LIMIT = 60.0
"""Seconds within which a server has to be there."""

END_LIMIT = 5.0
"""Seconds that one of no use has to end by itself."""

_STATE_FILE = "server.json"


def find_endpoint(text: Optional[str], secure: bool) -> Endpoint:
    """Return the endpoint that is named, else the one of $AGENTFENSE_ENDPOINT, else that of this user's server.

    If that does not run, this starts one. ConnectionError or InvalidConfigurationError say what stands in the way.
    """
    if text is not None:
        string_of(text, "endpoint")
    text = text or os.environ.get("AGENTFENSE_ENDPOINT")
    home = state_directory()
    if text:
        named = parse_endpoint(text, secure)
        own = running(home) if named.local and home else None
        return _matched(own, named) if own else named
    if home is None:
        raise InvalidConfigurationError("no state directory: set AGENTFENSE_HOME, XDG_DATA_HOME or HOME, or endpoint=")
    return running(home) or _started(home)


def _guarded(endpoint: Endpoint, is_there: Callable[[], bool]) -> Endpoint:
    """Return an endpoint that is asked for before calls, unless the connection itself tells whom it is with."""
    if endpoint.secure or endpoint.target.startswith("unix:"):
        return endpoint
    return replace(endpoint, is_there=is_there)


def _matched(own: Endpoint, named: Endpoint) -> Endpoint:
    """Return ``named`` with what is known of this user's server, if that is there, and made sure to be reached.

    To another, which another user of this host may run, its token would give everything of ours. The name localhost may
    also be an address at which ours does not listen.
    """
    ours = replace(named, same_host=True, token_file=own.token_file, is_there=own.is_there)
    host, _, port = own.target.rpartition(":")
    if own.secure != named.secure:
        return named
    if own.target == named.target:
        return ours
    if named.secure and host in ("dns:///0.0.0.0", "ipv6:[::]") and named.target.endswith(f":{port}"):
        return ours
    if named.target == f"dns:///localhost:{port}" and own.local:
        return ours if named.secure else replace(ours, target=own.target)
    return named


def running(home: Path) -> Optional[Endpoint]:
    """Return the endpoint of the server that has the state directory, None if there is none.

    A server says where it is in a file that it holds locked for as long as it lives. That is UTF-8, so that
    InvalidConfigurationError is raised for a directory that is named otherwise.
    """
    try:
        os.fspath(home).encode()
    except UnicodeEncodeError:
        text = f"state directory {os.fspath(home)!r}: is no UTF-8: set AGENTFENSE_HOME to another"
        raise InvalidConfigurationError(text) from None
    try:
        with open(home / _STATE_FILE, "rb") as file:
            if not _is_locked(file.fileno()):
                return None
            state = json.load(file)
            address, token_file, tls = state["grpc"], Path(state["token_file"]), bool(state["tls"])
    except OSError:
        return None
    except (ValueError, KeyError, TypeError) as cause:
        raise InvalidConfigurationError(f"{home / _STATE_FILE}: cannot be read: {cause!r}") from None
    found = replace(parse_endpoint(address, tls), same_host=True, found=True, token_file=token_file)
    return _guarded(found, partial(_is_running, home, found.target))


def _is_running(home: Path, target: str) -> bool:
    now = running(home)
    return now is not None and now.target == target


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _started(home: Path) -> Endpoint:
    """Start a server, unless another process of this user has just done so."""
    program = find_program()
    with _needed(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(home):
        limit = time.monotonic() + START_LIMIT
        while True:
            found = running(home)
            if found:
                return found
            said = _start(program, home)
            if said is None:
                continue
            if "--idle-exit" in said:
                raise _too_old(program, said)
            # One that ends still has the state directory for a moment.
            if "in use by another server" not in said or time.monotonic() > limit:
                raise ConnectionError("", f"{program} serve: {said}")
            time.sleep(0.1)


def _too_old(program: str, why: str) -> VersionMismatchError:
    return VersionMismatchError(
        f"{program} is older than this package: {why}: upgrade it, or name another program in AGENTFENSE_BINARY"
    )


@contextmanager
def _needed(home: Path) -> Iterator[None]:
    """Say where the state directory is of no use."""
    try:
        yield
    except OSError as cause:
        raise InvalidConfigurationError(f"state directory {home}: {cause.strerror}: set AGENTFENSE_HOME") from None


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Let one process of this user after the other start a server."""
    with _needed(home):
        lock = open(home / "start.lock", "a")  # noqa: SIM115
    with lock:
        limit = time.monotonic() + START_LIMIT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise ConnectionError(
                        "",
                        f"state directory {home}: another process has been starting the server for {START_LIMIT:g} s",
                    ) from None
                time.sleep(0.02)
        yield


def _environment(home: Path) -> Dict[str, str]:
    return {
        **os.environ,
        "AGENTFENSE_HOME": str(home),
        "AGENTFENSE_SERVER_GRPC_ADDR": f"unix://{home}/server.sock",
        "AGENTFENSE_SERVER_HTTP_ADDR": "",
    }


@contextmanager
def _opened(home: Path) -> Iterator[Tuple[BinaryIO, BinaryIO]]:
    """Open what a server writes to: its standard output, and its log."""
    with ExitStack() as files:
        try:
            said = files.enter_context(tempfile.TemporaryFile())
        except OSError as cause:
            raise InvalidConfigurationError(f"temporary directory: {cause.strerror}: set TMPDIR") from None
        with _needed(home):
            log = files.enter_context(open(home / "server.log", "wb"))
        yield said, log


def _start(program: str, home: Path) -> Optional[str]:
    """Start a server that outlives us, and wait until it answers, or return its last words. Its log is server.log."""
    with _opened(home) as (said, log):
        try:
            server = subprocess.Popen(
                [program, "serve", "--idle-exit", IDLE_EXIT],
                env=_environment(home),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                start_new_session=True,
            )
        except OSError as cause:
            raise InvalidConfigurationError(
                f"{program}: {cause.strerror}: install the agentfense of this machine, or name it in AGENTFENSE_BINARY"
            ) from None
        # Reaped whenever it ends, if we are still there.
        threading.Thread(target=server.wait, name="agentfense-server", daemon=True).start()
        limit = time.monotonic() + START_LIMIT
        while not said.seek(0, os.SEEK_END):
            if server.poll() is not None:
                return _last_words(home, server.returncode)
            if time.monotonic() > limit:
                _end(server)
                raise ConnectionError("", f"{program} serve: not ready within {START_LIMIT:g} s: {_last_words(home)}")
            time.sleep(0.005)
        if running(home) is None:
            if server.poll() is not None:
                return _last_words(home, server.returncode)
            _end(server)
            raise _too_old(program, "its server does not say where it is")
    return None


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a server that is of no use."""
    server.terminate()
    try:
        server.wait(END_LIMIT)
    except subprocess.TimeoutExpired:
        server.kill()


def _last_words(home: Path, status: Optional[int] = None) -> str:
    """Return the last line of a server's log, and how the server ended where that line does not tell."""
    with _needed(home):
        lines: List[str] = (home / "server.log").read_text(errors="replace").strip().splitlines()
    words = lines[-1] if lines else "it said nothing" if status is None else "it ended without a word"
    if status is None or (lines and status >= 0):
        return words
    return f"{words}: exit status {status}" if status >= 0 else f"{words}: killed by signal {-status}"
