"""Whose server is at localhost:9000, where one listens that was told nothing else."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

_IPV4 = ("127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::ffff:0.0.0.0")
"""Where those listen who are reached at 127.0.0.1. One at ``::`` may leave that to anybody."""

_IPV6 = ("::1", "::")

_LISTENS = "0A"


class Doubt(Exception):
    """Says why a listener is not trusted."""


@dataclass(frozen=True)
class _Listener:
    """A socket, as proc_pid_net(5) shows it."""

    address: str
    uid: int
    inode: str


def find_usual(port: int) -> Optional[str]:
    """Return the address of who listens at a port of localhost, None if nobody does.

    It is an address, not a name, for that may stand for a second one at which somebody else begins to listen.

    Doubt unless it is certain that each that listens there is of this user or of root and, if of this user, sees the
    files that we see: a command in a sandbox on the host's network does not. It is certain on Linux alone.
    """
    try:
        found = list(_listeners(port))
        for listener in found:
            _check(listener, port)
    except (OSError, ValueError, IndexError, struct.error) as cause:
        raise Doubt(f"it cannot be told who listens there: {cause}") from None
    if not found:
        return None
    return f"127.0.0.1:{port}" if any(listener.address in _IPV4 for listener in found) else f"[::1]:{port}"


def _listeners(port: int) -> Iterator[_Listener]:
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = Path("/proc/self/net", name).read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            if family == socket.AF_INET6:  # a kernel without it
                return
            raise
        for line in lines[1:]:
            columns = line.split()
            host, _, at = columns[1].partition(":")
            if columns[3] != _LISTENS or int(at, 16) != port:
                continue
            address = _address(host, family)
            if address in (*_IPV4, *_IPV6):
                yield _Listener(address, int(columns[7]), columns[9])


def _address(text: str, family: int) -> str:
    """Read an address, of which each four bytes are a number of the machine."""
    data = bytes.fromhex(text)
    count = len(data) // 4
    return socket.inet_ntop(family, struct.pack(f"={count}I", *struct.unpack(f">{count}I", data)))


def _check(listener: _Listener, port: int) -> None:
    address = listener.address[7:] if listener.address.startswith("::ffff:") else listener.address
    host = f"[{address}]" if ":" in address else address
    doubt = f"{host}:{port} is in doubt: "
    if listener.uid != os.geteuid():
        if listener.uid != 0:
            raise Doubt(f"{doubt}user {listener.uid} listens there")
        return
    ours = _root("self")
    holders = [pid for pid in os.listdir("/proc") if pid.isdigit() and _holds(pid, f"socket:[{listener.inode}]")]
    if not holders:
        raise Doubt(f"{doubt}it cannot be told which process listens there")
    for pid in holders:
        if _root(pid) != ours:
            raise Doubt(f"{doubt}process {pid}, which listens there, has another root, as in a sandbox or a container")


def _root(pid: str) -> Tuple[int, int]:
    root = os.stat(f"/proc/{pid}/root")
    return root.st_dev, root.st_ino


def _holds(pid: str, file: str) -> bool:
    """Return whether a process has a file open, as far as it lets us see that."""
    directory = f"/proc/{pid}/fd"
    try:
        names: List[str] = os.listdir(directory)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{directory}/{name}") == file:
                return True
        except OSError:
            continue
    return False
