"""Hosts that lack something. Run as a program: ``hosts.py KIND... -- COMMAND...`` becomes the command on such a host.

Each kind is made of namespaces that go with the command; it needs root. ``show=PATH:PATH`` is no lack: it lets an
ordinary user at what the tests need.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Callable, Dict, List

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, PRIVATE, REMOUNT, NO_DEVICES = 0x1000, 0x4000, 0x40000, 0x20, 0x4
NOBODY, IDS = 65534, 2**32 - 1
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    texts = [text.encode() or None for text in (source, target, kind)]
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def show(*paths: str) -> None:
    """Everybody can reach the paths, though what is above them is closed: that has nothing else then."""
    closed: Dict[Path, List[str]] = {}
    for path in paths:
        for above in reversed(Path(path).parents):
            if not above.stat().st_mode & 0o001:
                closed.setdefault(above, []).append(path)
                break
    for above, these in closed.items():
        with tempfile.TemporaryDirectory() as stash:
            mount("none", stash, 0, "tmpfs")
            for n, path in enumerate(these):
                Path(stash, str(n)).mkdir()
                mount(path, f"{stash}/{n}", BIND | RECURSIVE)
            mount("none", str(above), 0, "tmpfs", "mode=755")
            for n, path in enumerate(these):
                Path(path).mkdir(parents=True, exist_ok=True)
                mount(f"{stash}/{n}", path, BIND | RECURSIVE)
            _check(_libc.umount2(stash.encode(), 2), f"umount {stash}")


def no_fuse() -> None:
    """There is no /dev/fuse: a small /dev is put in its place."""
    with tempfile.TemporaryDirectory() as new:
        mount("none", new, 0, "tmpfs", "mode=755")
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            Path(new, name).touch()
            mount(f"/dev/{name}", f"{new}/{name}", BIND)
        for name in ("pts", "shm"):
            Path(new, name).mkdir()
            mount(f"/dev/{name}", f"{new}/{name}", BIND)
        Path(new, "ptmx").symlink_to("pts/ptmx")
        mount(new, "/dev", BIND | RECURSIVE)
        _check(_libc.umount2(new.encode(), 2), f"umount {new}")


def not_fuse() -> None:
    """What is called /dev/fuse is another device."""
    mount("/dev/null", "/dev/fuse", BIND)


def forbidden_fuse() -> None:
    """/dev/fuse may not be opened by anybody, as in a container that was not given it."""
    mount("/dev/fuse", "/dev/fuse", BIND)
    mount("", "/dev/fuse", REMOUNT | BIND | NO_DEVICES)


def open_fuse() -> None:
    """/dev/fuse may be opened by everybody."""
    _fuse(0o666)


def root_fuse() -> None:
    """/dev/fuse may be opened by root alone."""
    _fuse(0o600)


def _fuse(mode: int) -> None:
    with tempfile.TemporaryDirectory() as new:
        mount("none", new, 0, "tmpfs")
        os.mknod(f"{new}/fuse", stat.S_IFCHR, os.makedev(10, 229))
        os.chmod(f"{new}/fuse", mode)
        mount(f"{new}/fuse", "/dev/fuse", BIND)
        _check(_libc.umount2(new.encode(), 2), f"umount {new}")


def no_user_namespaces() -> None:
    """No user namespace can be made, by anybody."""
    parent, (asked, ask), (answered, answer) = os.getpid(), os.pipe(), os.pipe()
    if os.fork() == 0:  # who may write the maps: all users stay what they are
        os.read(asked, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{parent}/{name}").write_text(f"0 0 {IDS}")
        os.write(answer, b".")
        os._exit(0)
    unshare(NEW_USER | NEW_MOUNTS)
    os.write(ask, b".")
    os.read(answered, 1)
    os.wait()
    for fd in (asked, ask, answered, answer):
        os.close(fd)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def no_mounts() -> None:
    """Root has not the right to mount, as in a plain container."""
    _check(_libc.prctl(24, 21, 0, 0, 0), "drop CAP_SYS_ADMIN")  # PR_CAPBSET_DROP


def user() -> None:
    """An ordinary user, whose files are below $TMPDIR."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


_ALL = (no_fuse, not_fuse, forbidden_fuse, open_fuse, root_fuse, no_user_namespaces, no_mounts, user)
KINDS: Dict[str, Callable[[], None]] = {kind.__name__: kind for kind in _ALL}


def main(arguments: List[str]) -> None:
    end = arguments.index("--")
    unshare(NEW_MOUNTS)
    mount("none", "/", RECURSIVE | PRIVATE)
    for name in arguments[:end]:
        if name.startswith("show="):
            show(*name[len("show=") :].split(":"))
        else:
            KINDS[name]()
    os.execvp(arguments[end + 1], arguments[end + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
