"""Finding a server when none is named: your own server, which the package starts if necessary."""

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
"""The time after which a server that this package started ends, if it has no clients and nothing runs."""

START_LIMIT = 60.0
"""Seconds within which a server must start."""

END_LIMIT = 5.0
"""Seconds within which a server that cannot be used must end."""

_STATE_FILE = "server.json"


def find_endpoint(text: Optional[str], secure: bool) -> Endpoint:
    """Return the named endpoint, else that of $AGENTFENSE_ENDPOINT, else that of your own server.

    Starts your own server if it does not run. Raises ConnectionError or InvalidConfigurationError
    with the reason.
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
        raise InvalidConfigurationError(
            "no state directory: set AGENTFENSE_HOME, XDG_DATA_HOME or HOME, or pass endpoint="
        )
    return running(home) or _started(home)


def _guarded(endpoint: Endpoint, is_there: Callable[[], bool]) -> Endpoint:
    """Return an endpoint that is checked before each call, unless its connection proves the server's identity."""
    if endpoint.secure or endpoint.target.startswith("unix:"):
        return endpoint
    return replace(endpoint, is_there=is_there)


def _matched(own: Endpoint, named: Endpoint) -> Endpoint:
    """Return ``named`` with what is known about your own server, if ``named`` is its address.

    Any other server at the address may belong to another user, who would get full access by your
    server's token. The name localhost may resolve to an address at which your server does not
    listen.
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
    """Return the endpoint of the server that uses the state directory; None if none runs.

    The server writes its address to a file that it locks while it runs. The file is in UTF-8, so a
    state directory whose name is not UTF-8 raises InvalidConfigurationError.
    """
    try:
        os.fspath(home).encode()
    except UnicodeEncodeError:
        text = f"state directory {os.fspath(home)!r}: is not UTF-8: set AGENTFENSE_HOME to another"
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
    """Start a server, unless another process of this user has just started one."""
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
            # A server that ends still has the state directory for a moment.
            if "in use by another server" not in said or time.monotonic() > limit:
                raise ConnectionError("", f"{program} serve: {said}")
            time.sleep(0.1)


def _too_old(program: str, why: str) -> VersionMismatchError:
    return VersionMismatchError(
        f"{program} is older than this package: {why}: upgrade it, or name another program in AGENTFENSE_BINARY"
    )


@contextmanager
def _needed(home: Path) -> Iterator[None]:
    """Raise InvalidConfigurationError for an error of the state directory."""
    try:
        yield
    except OSError as cause:
        raise InvalidConfigurationError(f"state directory {home}: {cause.strerror}: set AGENTFENSE_HOME") from None


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold the lock that lets only one process of this user start a server."""
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
    """Open the files for a server's standard output and log."""
    with ExitStack() as files:
        try:
            said = files.enter_context(tempfile.TemporaryFile())
        except OSError as cause:
            raise InvalidConfigurationError(f"temporary directory: {cause.strerror}: set TMPDIR") from None
        with _needed(home):
            log = files.enter_context(open(home / "server.log", "wb"))
        yield said, log


def _start(program: str, home: Path) -> Optional[str]:
    """Start a server that outlives this process, and wait until it answers.

    Returns None, or if it fails the last line of its log, server.log.
    """
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
        # Reap it when it ends, if this process still runs.
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
    """End a server that cannot be used."""
    server.terminate()
    try:
        server.wait(END_LIMIT)
    except subprocess.TimeoutExpired:
        server.kill()


def _last_words(home: Path, status: Optional[int] = None) -> str:
    """Return the last line of a server's log, with how the server ended if the line does not say it."""
    with _needed(home):
        lines: List[str] = (home / "server.log").read_text(errors="replace").strip().splitlines()
    words = lines[-1] if lines else "its log is empty"
    if status is None or (lines and status >= 0):
        return words
    return f"{words}: exit status {status}" if status >= 0 else f"{words}: killed by signal {-status}"
