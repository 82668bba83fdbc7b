"""Directories of this host, and what an upload takes of them. Nothing here calls a server."""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Iterator, List, Optional, Sequence, Tuple

from ._arguments import PathLike as PathLike
from ._arguments import path_of, strings_of
from ._endpoint import state_directory
from ._ignore import Matcher

DEFAULT_IGNORE_PATTERNS: Tuple[str, ...] = (
    ".git",
    "__pycache__",
    "*.pyc",
    "*.pyo",
    ".DS_Store",
    "Thumbs.db",
    "node_modules",
    ".venv",
    "venv",
    ".env",
    "*.egg-info",
    ".tox",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
)
"""The patterns that ``walk_directory`` leaves out by default, in the syntax of .gitignore."""

IGNORE_FILES = (".gitignore", ".sandboxignore")
"""The files in a directory's root with further patterns."""

MAX_IGNORE_SIZE = 131072
"""The most bytes of a file of patterns."""

MAX_FILE_SIZE = 52428800
"""The default bound of ``walk_directory``, in bytes: larger files are left out."""


@dataclass(frozen=True)
class Entry:
    """A file, link or directory of an upload."""

    path: str
    """The path relative to the directory, with ``/``."""
    full: str
    status: os.stat_result

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.status.st_mode)


def open_regular(path: PathLike) -> BinaryIO:
    """Open a file for reading. Raises ValueError unless it is a regular file: opening others may block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise
        raise _not_regular(path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(path)
    return open(fd, "rb")


def _not_regular(path: PathLike) -> ValueError:
    return ValueError(f"{os.fspath(path)}: is not a regular file")


def parse_ignore_file(path: PathLike) -> List[str]:
    """Return the patterns of a file in the syntax of .gitignore, without comments and empty lines.

    Returns an empty list if the file does not exist. Raises ValueError for more than 128 KiB, and
    unless it is a regular file. A symbolic link is not followed.
    """
    try:
        with open_regular(path) as file:
            data = file.read(MAX_IGNORE_SIZE + 1)
    except FileNotFoundError:
        return []
    if len(data) > MAX_IGNORE_SIZE:
        raise ValueError(f"{os.fspath(path)}: more than {MAX_IGNORE_SIZE} bytes of patterns")
    text = data.decode("utf-8", "surrogateescape")
    return _patterns(text[1:] if text.startswith("\ufeff") else text)


def _patterns(text: str) -> List[str]:
    lines = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    return [line for line in lines if line.strip(" ") and not line.startswith("#")]


def ignore_matcher(
    directory: PathLike, ignore_patterns: Optional[Sequence[str]] = None, include_default_ignores: bool = True
) -> Matcher:
    """Return the patterns that ``walk_directory`` leaves out. Later patterns win, as in a .gitignore."""
    return _matcher(directory, DEFAULT_IGNORE_PATTERNS if include_default_ignores else (), ignore_patterns)


def upload_matcher(directory: PathLike, ignore_patterns: Optional[Sequence[str]] = None) -> Matcher:
    """Return the patterns that an upload leaves out: those of ``walk_directory`` without .git."""
    defaults = [pattern for pattern in DEFAULT_IGNORE_PATTERNS if pattern != ".git"]
    return _matcher(directory, defaults, ignore_patterns)


def _matcher(directory: PathLike, defaults: Sequence[str], ignore_patterns: Optional[Sequence[str]]) -> Matcher:
    lines: List[str] = list(defaults)
    for name in IGNORE_FILES:
        lines += parse_ignore_file(Path(directory, name))
    for text in strings_of(ignore_patterns, "ignore_patterns"):
        lines += _patterns(text)
    return Matcher(lines)


def walk_entries(directory: PathLike, matcher: Matcher) -> Iterator[Entry]:
    """Yield the entries below a directory that ``matcher`` does not leave out.

    They are sorted, each directory before its entries. Symbolic links are not followed. Other kinds
    of files are left out, and so is the state directory, which has tokens and keys.
    """
    state = _state_identity()
    around = [_entries(os.fspath(directory), "")]
    while around:  # not recursive: a tree may be deeper than Python's recursion limit
        entry = next(around[-1], None)
        if entry is None:
            around.pop()
        elif not matcher.excludes(entry.path, entry.is_dir) and (entry.status.st_dev, entry.status.st_ino) != state:
            if entry.is_dir:
                around.append(_entries(entry.full, entry.path + "/"))
            if entry.is_dir or entry.is_file or entry.is_symlink:
                yield entry


def _state_identity() -> Optional[Tuple[int, int]]:
    directory = state_directory()
    try:
        status = os.stat(directory) if directory is not None else None
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status is not None else None


def _entries(directory: str, prefix: str) -> Iterator[Entry]:
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda e: e.name)
    for e in entries:
        yield Entry(prefix + e.name, e.path, e.stat(follow_symlinks=False))


def _absolute(path: PathLike) -> Path:
    text = path_of(path)
    if not text:
        raise ValueError('empty path: want "." for the current directory')
    try:
        return Path(text).expanduser().absolute()
    except (OSError, RuntimeError) as cause:  # no such user, no current directory
        raise ValueError(f"path {text!r}: {_why(cause)}") from None


def _why(cause: Exception) -> str:
    return str(cause.strerror if isinstance(cause, OSError) else cause)


def check_directory(path: PathLike) -> Path:
    """Return the absolute path of a directory. Raises ValueError unless it is a directory."""
    directory = _absolute(path)
    said = f"path {os.fspath(path)!r}"
    try:
        is_dir = stat.S_ISDIR(directory.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{said}: no such directory") from None
    except (OSError, ValueError) as cause:  # ValueError: a NUL
        raise ValueError(f"{said}: {_why(cause)}") from None
    if not is_dir:
        raise ValueError(f"{said}: not a directory")
    return directory


def _files(
    path: PathLike, ignore_patterns: Optional[Sequence[str]], include_default_ignores: bool, max_file_size: int
) -> Iterator[Entry]:
    directory = check_directory(path)
    for entry in walk_entries(directory, ignore_matcher(directory, ignore_patterns, include_default_ignores)):
        if entry.is_file and entry.status.st_size <= max_file_size:
            yield entry


def walk_directory(
    path: PathLike,
    ignore_patterns: Optional[Sequence[str]] = None,
    include_default_ignores: bool = True,
    max_file_size: int = MAX_FILE_SIZE,
) -> Iterator[Tuple[str, bytes]]:
    """Yield the relative path and the content of each regular file below a directory.

    Files are left out that the default patterns, the root's .gitignore and .sandboxignore, or
    ``ignore_patterns`` match, or that have more than ``max_file_size`` bytes. Raises ValueError if
    ``path`` is not a directory.
    """
    for entry in _files(path, ignore_patterns, include_default_ignores, max_file_size):
        with open_regular(entry.full) as file:
            yield entry.path, file.read()


def count_files(path: PathLike, ignore_patterns: Optional[Sequence[str]] = None) -> Tuple[int, int]:
    """Return the number and the total bytes of the files that ``walk_directory`` yields. Raises ValueError."""
    count = size = 0
    for entry in _files(path, ignore_patterns, True, MAX_FILE_SIZE):
        count += 1
        size += entry.status.st_size
    return count, size


def human_readable_size(n: float) -> str:
    """Return a number of bytes as text, such as ``1.5 KB``; the units are powers of 1024."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(n) < 1024 or unit == "TB":
            break
        n /= 1024
    return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"


def generate_codebase_name(path: PathLike) -> str:
    """Return a name for a directory's codebase: the directory's name and 8 hexadecimal digits."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", _absolute(path).name).strip("-") or "codebase"
    return f"{stem}-{uuid.uuid4().hex[:8]}"


def generate_owner_id() -> str:
    """Return ``user_`` and 8 random hexadecimal digits."""
    return f"user_{uuid.uuid4().hex[:8]}"


def user_name() -> str:
    """Return the name of this user: the owner if a token has none, as on the command line."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
