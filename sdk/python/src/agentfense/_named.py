"""Reading files that the user names, with a bound, and without blocking."""

from __future__ import annotations

import os
import re
import stat
from typing import Union

_DESCRIPTOR = re.compile(r"/dev/stdin|(/dev/fd|/proc/self/fd)/[0-9]+")

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_named(path: Union[str, os.PathLike[str]], most: int) -> bytes:
    """Return the content of a file, at most ``most`` + 1 bytes.

    A pipe is read only if the path names a descriptor of this process: /dev/stdin, or /dev/fd/N, as
    the shell's <(…) does. Raises OSError; ValueError for a FIFO, a device and a directory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        if kind == stat.S_IFIFO and _DESCRIPTOR.fullmatch(os.fspath(path)):
            os.set_blocking(fd, True)
        elif kind != stat.S_IFREG:
            raise ValueError(f"is {_KINDS.get(kind, 'no file')}: want a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(fd)
