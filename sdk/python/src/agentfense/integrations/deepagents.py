"""A sandbox as the backend of an agent of deepagents.

    from agentfense import Sandbox
    from agentfense.integrations.deepagents import SandboxBackend
    from deepagents import create_deep_agent

    with Sandbox.from_local(".") as sb:
        agent = create_deep_agent(model, backend=SandboxBackend(sb))

Files are the sandbox's view, under its policy, and commands run in the sandbox.
"""

from __future__ import annotations

import base64
import posixpath
import shlex
from typing import Callable, List, Optional, Tuple, TypeVar

try:
    from deepagents.backends.protocol import (
        DeleteResult,
        EditResult,
        ExecuteResponse,
        FileData,
        FileDownloadResponse,
        FileInfo,
        FileUploadResponse,
        GlobResult,
        GrepMatch,
        GrepResult,
        LsResult,
        ReadResult,
        SandboxBackendProtocol,
        WriteResult,
    )
    from deepagents.backends.utils import (
        compile_grep_include_glob,
        perform_string_replacement,
        slice_read_response,
    )
except ImportError as cause:
    from . import MissingExtraError

    raise MissingExtraError("deepagents", cause) from cause

from ..exceptions import SandboxError
from ..sandbox import Sandbox
from ..types import ViewEntry
from ._commands import (
    FILE_BYTES,
    OUTPUT_BYTES,
    TIMEOUT,
    WORKSPACE,
    Output,
    RefusedError,
    collect,
    in_workspace,
    is_clean,
    refusal_in,
    refusal_of,
    refused,
    run,
    run_async,
)
from ._search import Search, is_at

T = TypeVar("T")

_MATCHES = 10_000
_LINE_BYTES = 10_000
_PATTERN_BYTES = 64 << 10
_GLOB_CHARACTERS = 1000
_GLOB_STARS = 3

_CODES = {
    "not_found": "file_not_found",
    "denied": "permission_denied",
    "is_directory": "is_directory",
    "not_directory": "not_a_directory",
    "invalid": "invalid_path",
}
_STORE = 'case $1 in */*) mkdir -p -- "${1%/*}" || exit;; esac; cat >"$1"'


def _code(error: RefusedError) -> str:
    return _CODES.get(error.refusal.kind, error.refusal.text)


class SandboxBackend(SandboxBackendProtocol):
    """A sandbox as a backend of deepagents. The caller destroys the sandbox.

    Files of /workspace are the sandbox's view, under its policy. Other files are read and written
    by commands in the sandbox, and not listed. If the policy refuses an operation, or a path does
    not exist, the agent gets a result with deepagents' error code. If the sandbox or the connection
    is lost, methods raise, as no agent can mend that.

    A command has a time-out of ``timeout`` seconds, unless the agent asks for another.
    ``max_output_bytes`` of its output are kept. Files of more than ``max_file_bytes`` are not read.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        timeout: int = TIMEOUT,
        max_output_bytes: int = OUTPUT_BYTES,
        max_file_bytes: int = FILE_BYTES,
    ) -> None:
        self._sandbox = sandbox
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._max_file_bytes = max_file_bytes

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._sandbox.id

    # Commands

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """Run a command. At the time-out it is killed, with the exit code 124. 0 means the default time-out."""
        return _response(run(self._sandbox, command, timeout or self._timeout, self._max_output_bytes))

    async def aexecute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """Run a command as ``execute`` does. Cancelling the task ends the command."""
        return _response(await run_async(self._sandbox, command, timeout or self._timeout, self._max_output_bytes))

    # Files

    def ls(self, path: str) -> LsResult:
        """List a directory of the workspace."""
        try:
            if _clean(path) == "/":
                return LsResult(entries=[{"path": WORKSPACE, "is_dir": True}])
            self._only_workspace(path)
            entries = self._view(lambda: self._sandbox.files.list(path))
            if _below(path) and [entry.path for entry in entries] == [_below(path)]:
                raise refused("not_directory", path)
        except RefusedError as error:
            return LsResult(error=f"Path '{path}': {_code(error)}")
        return LsResult(entries=[_info(entry) for entry in entries])

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Return lines of a text file, or a file that is not UTF-8 in Base64."""
        try:
            content = self._read(file_path)
        except RefusedError as error:
            return ReadResult(error=f"File '{file_path}': {_code(error)}")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            coded = base64.b64encode(content).decode("ascii")
            return ReadResult(file_data=FileData(content=coded, encoding="base64"))
        result = slice_read_response(FileData(content=text, encoding="utf-8"), offset, limit)
        return ReadResult(error=f"File '{file_path}': {result.error}") if result.error else result

    def write(self, file_path: str, content: str) -> WriteResult:
        """Write a text file, and create its missing parent directories."""
        try:
            self._write(file_path, content.encode("utf-8"))
        except UnicodeEncodeError:
            return WriteResult(error=f"File '{file_path}': the content is no text")
        except RefusedError as error:
            return WriteResult(error=f"File '{file_path}': {_code(error)}")
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replace a string in a text file. Line ends of CRLF remain."""
        try:
            text = self._read(file_path).decode("utf-8")
            if old_string not in text and "\r\n" in text:
                old_string, new_string = (
                    s.replace("\r\n", "\n").replace("\n", "\r\n") for s in (old_string, new_string)
                )
            replaced = perform_string_replacement(text, old_string, new_string, replace_all)
            if isinstance(replaced, str):
                return EditResult(error=replaced)
            self._write(file_path, replaced[0].encode("utf-8"))
        except UnicodeError:
            return EditResult(error=f"File '{file_path}': is no UTF-8 text")
        except RefusedError as error:
            return EditResult(error=f"File '{file_path}': {_code(error)}")
        return EditResult(path=file_path, occurrences=replaced[1])

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file, or a directory and everything below it."""
        try:
            self._only_workspace(file_path)
            if not _below(file_path):
                raise refused("denied", file_path)
            self._view(lambda: self._sandbox.files.stat(file_path))
            self._command(["rm", "-rf", "--", file_path])
        except RefusedError as error:
            return DeleteResult(error=f"File '{file_path}': {_code(error)}")
        return DeleteResult(path=file_path)

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        """Write files; each has a result or an error."""
        responses = []
        for path, content in files:
            code = None
            try:
                self._write(path, content)
            except RefusedError as error:
                code = _code(error)
            responses.append(FileUploadResponse(path=path, error=code))
        return responses

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        """Return files; each has its content or an error."""
        responses = []
        for path in paths:
            try:
                responses.append(FileDownloadResponse(path=path, content=self._read(path)))
            except RefusedError as error:
                responses.append(FileDownloadResponse(path=path, error=_code(error)))
        return responses

    # Searches

    def glob(self, pattern: str, path: Optional[str] = None) -> GlobResult:
        """Find files of the workspace by pattern."""
        try:
            root = self._search_root(path)
            matches = _glob(pattern)
            find = [
                "find",
                root,
                "(",
                "-type",
                "f",
                "-o",
                "-type",
                "l",
                "-exec",
                "test",
                "-f",
                "{}",
                ";",
                ")",
                "-print0",
            ]
            search = Search(self._sandbox, find, b"\0")
            found: List[FileInfo] = []
            for record in search:
                name = record.decode("utf-8", "replace")
                if is_at(name, root) and matches(posixpath.relpath(name, root)):
                    found.append({"path": name, "is_dir": False})
                if len(found) > _MATCHES:
                    search.stop()
        except RefusedError as error:
            return GlobResult(error=f"Path '{path}': {_code(error)}")
        except ValueError as error:
            return GlobResult(error=str(error))
        found = sorted(found[:_MATCHES], key=lambda info: info["path"])
        return GlobResult(matches=found, truncated=search.cut, truncation_reason="budget" if search.cut else None)

    def grep(
        self, pattern: str, path: Optional[str] = None, glob: Optional[str] = None, *, max_count: Optional[int] = None
    ) -> GrepResult:
        """Find a literal string in the text files of the workspace, except .git."""
        most = _MATCHES if max_count is None else min(max_count, _MATCHES)
        if len(pattern.encode("utf-8", "replace")) > _PATTERN_BYTES:
            return GrepResult(error=f"the pattern is longer than {_PATTERN_BYTES} bytes")
        try:
            root = self._search_root(path)
            included = _glob(glob) if glob else None
            options = ["-rHnFIZ", *([] if posixpath.basename(root) == ".git" else ["--exclude-dir=.git"])]
            search = Search(self._sandbox, ["grep", *options, "-e", pattern, "--", root], b"\n")
            found: List[GrepMatch] = []
            for line in search:
                match = _match_of(line, root)
                if match is None or (included and not included(posixpath.relpath(match["path"], root))):
                    continue
                found.append(match)
                if len(found) > most:
                    search.stop()
        except RefusedError as error:
            return GrepResult(error=f"Path '{path}': {_code(error)}")
        except ValueError as error:
            return GrepResult(error=str(error))
        return GrepResult(matches=found[:most], truncated=search.cut)

    # How

    def _search_root(self, path: Optional[str]) -> str:
        root = _clean(path) if path not in (None, "", ".", "/") else WORKSPACE
        self._only_workspace(root)
        self._view(lambda: self._sandbox.files.stat(root))
        return root

    def _read(self, path: str) -> bytes:
        if in_workspace(_clean(path)):
            return self._view(lambda: self._sandbox.files.read_bytes(path, max_bytes=self._max_file_bytes))
        return self._command(["cat", "--", path])

    def _write(self, path: str, content: bytes) -> None:
        if in_workspace(_clean(path)):
            self._view(lambda: self._sandbox.files.write(path, content))
        else:
            self._command(["/bin/sh", "-c", _STORE, "sh", path], content)

    def _command(self, argv: List[str], stdin: bytes = b"") -> bytes:
        command = "LC_ALL=C exec " + " ".join(map(shlex.quote, argv))
        stream = self._sandbox.exec_stream(command, stdin, timeout=self._timeout)
        output = collect(stream, self._max_file_bytes, self._timeout, whole=True)
        if output.timed_out:
            raise refused("failed", "took too long")
        if output.truncated:
            raise refused("too_large", f"larger than {self._max_file_bytes} bytes")
        if output.exit_code != 0:
            raise RefusedError(refusal_in(output.stderr))
        return output.stdout

    def _only_workspace(self, path: str) -> None:
        if not in_workspace(_clean(path)):
            raise refused("failed", f"only {WORKSPACE} is listed and searched; use a command")

    @staticmethod
    def _view(work: Callable[[], T]) -> T:
        try:
            return work()
        except SandboxError as error:
            raise RefusedError(refusal_of(error)) from None


def _response(output: Output) -> ExecuteResponse:
    return ExecuteResponse(output=output.text, exit_code=output.exit_code, truncated=output.truncated)


def _glob(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches paths. Raises ValueError for a pattern that hostile names could make too slow.

    With k ``*`` between two ``/``, each name takes time of its length to the power of k.
    """
    if len(pattern) > _GLOB_CHARACTERS or any(part.count("*") > _GLOB_STARS for part in pattern.split("/")):
        raise ValueError(f"a glob has at most {_GLOB_CHARACTERS} characters, and {_GLOB_STARS} * between two /")
    return compile_grep_include_glob(pattern)


def _clean(path: str) -> str:
    """Return a path in its plain form. Raises RefusedError unless it is absolute and without ``..``."""
    if not is_clean(path):
        raise refused("invalid", path)
    return "/" + posixpath.normpath(path).lstrip("/")


def _below(path: str) -> str:
    """Return a path of the workspace relative to it."""
    return _clean(path)[len(WORKSPACE) + 1 :]


def _info(entry: ViewEntry) -> FileInfo:
    # A model needs text: replace bytes of a name that are not UTF-8.
    path = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    info: FileInfo = {"path": f"{WORKSPACE}/{path}", "is_dir": entry.is_dir, "size": entry.size}
    if entry.modified_at:
        info["modified_at"] = entry.modified_at.isoformat()
    return info


def _match_of(line: bytes, root: str) -> Optional[GrepMatch]:
    """Return a match in the form of grep -Z; None for other lines, and for paths outside of ``root``."""
    name, _, rest = line.partition(b"\0")
    number, colon, text = rest.partition(b":")
    path = name.decode("utf-8", "replace")
    if not (colon and number.isdigit() and len(number) < 10 and is_at(path, root)):
        return None
    return {"path": path, "line": int(number), "text": text[:_LINE_BYTES].decode("utf-8", "replace")}
