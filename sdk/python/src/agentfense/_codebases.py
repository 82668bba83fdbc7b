# Made from _async_codebases.py by make gen: do not edit.

"""The calls about codebases and their files, for threads."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any, List, Optional, Sequence, Union

from . import _requests as requests
from . import types as t
from ._arguments import PathLike, id_of, path_of, text_of
from ._connection import WORK, Connection
from ._errors import MAX_READ, Call, next_page, too_large
from ._gen.sandbox.v1 import codebase_pb2
from ._streams import Stream
from ._wire import (
    codebase_of,
    encode_path,
    file_info_of,
    upload_result_of,
)
from .exceptions import InvalidConfigurationError
from .utils import user_name


class Calls:
    """What all calls use."""

    _connection: Connection

    def _content(self, method: str, request: Any, about: Call, max_bytes: Optional[int]) -> bytes:
        pieces: List[bytes] = []
        size = 0
        start = partial(self._connection.stream, method, request, WORK)
        with Stream[Any](start, about, self._connection) as stream:
            while (message := stream.read()) is not None:
                size += len(message.data)
                if max_bytes is not None and size > max_bytes:
                    raise too_large(about, max_bytes)
                pieces.append(message.data)
        return b"".join(pieces)


class CodebaseCalls(Calls):
    """The calls about codebases and their files."""

    def create_codebase(self, name: str, owner_id: str) -> t.Codebase:
        """Create an empty codebase."""
        request = codebase_pb2.CreateCodebaseRequest(name=text_of(name, "name"), owner_id=text_of(owner_id, "owner_id"))
        about = Call("create codebase")
        answer = self._connection.make("CreateCodebase", request, about, lambda made: self.delete_codebase(made.id))
        return codebase_of(answer)

    def _create_owned(self, name: str, owner_id: Optional[str]) -> t.Codebase:
        if owner_id:
            return self.create_codebase(name, owner_id)
        try:
            return self.create_codebase(name, "")  # the server takes the token's owner
        except InvalidConfigurationError:
            return self.create_codebase(name, user_name())

    def link_codebase(self, name: str, owner_id: str, path: PathLike, *, ignore_files: bool = False) -> t.Codebase:
        """Create a codebase from a directory of the server's host, without copying it; only ``apply`` changes it.

        With ``ignore_files`` its sandboxes do not see what an upload would leave out.
        """
        request = codebase_pb2.LinkCodebaseRequest(
            name=text_of(name, "name"),
            owner_id=text_of(owner_id, "owner_id"),
            path=encode_path(path),
            ignore_files=ignore_files,
        )
        about = Call("link", path=path_of(path))
        answer = self._connection.make("LinkCodebase", request, about, lambda made: self.delete_codebase(made.id))
        return codebase_of(answer)

    def get_codebase(self, codebase_id: str) -> t.Codebase:
        """Return the description of a codebase."""
        request = codebase_pb2.GetCodebaseRequest(codebase_id=id_of(codebase_id, "codebase_id"))
        about = Call("get codebase", codebase_id=codebase_id)
        return codebase_of(self._connection.call("GetCodebase", request, about))

    def list_codebases(self, owner_id: Optional[str] = None) -> List[t.Codebase]:
        """Return all codebases, or those of an owner, the oldest first."""
        found: List[t.Codebase] = []
        token = ""
        while True:
            request = codebase_pb2.ListCodebasesRequest(owner_id=text_of(owner_id or "", "owner_id"), page_token=token)
            page = self._connection.call("ListCodebases", request, Call("list codebases"))
            found += map(codebase_of, page.codebases)
            token = next_page(token, page.next_page_token)
            if not token:
                return found

    def delete_codebase(self, codebase_id: str) -> None:
        """Delete a codebase and its files; of a linked directory, only the link."""
        request = codebase_pb2.DeleteCodebaseRequest(codebase_id=id_of(codebase_id, "codebase_id"))
        self._connection.call("DeleteCodebase", request, Call("delete codebase", codebase_id=codebase_id), WORK)

    def upload_file(
        self, codebase_id: str, file_path: PathLike, content: Union[str, bytes], chunk_size: int = requests.UPLOAD_CHUNK
    ) -> t.UploadResult:
        """Upload one file. Raises UploadError if the server does not accept it.

        ``chunk_size`` is the most bytes in one message.
        """
        messages = requests.upload_file(codebase_id, file_path, content, chunk_size)
        about = Call("upload", codebase_id=codebase_id, path=path_of(file_path, "file_path"))
        return upload_result_of(self._connection.call("UploadFiles", messages, about, WORK))

    def upload_tree(self, codebase_id: str, path: PathLike, ignore_patterns: Optional[Sequence[str]] = None) -> int:
        """Upload the entries below a directory of this host, and return the number of files.

        Modes, symbolic links and empty directories are kept. What the default patterns, .gitignore,
        .sandboxignore and ``ignore_patterns`` name is left out.
        """
        return self._upload_tree(codebase_id, path, ignore_patterns, None)

    def _upload_tree(
        self,
        codebase_id: str,
        path: PathLike,
        ignore_patterns: Optional[Sequence[str]],
        note: Optional[requests.Note],
    ) -> int:
        messages = requests.upload_tree(codebase_id, path, ignore_patterns, note)
        about = Call("upload", codebase_id=codebase_id, path=path_of(path))
        first = next(messages, None)
        if first is None:  # a stream without a message would not name its codebase
            self.get_codebase(codebase_id)
            return 0
        answer = self._connection.send("UploadTree", chain([first], messages), about)
        return int(answer.file_count)

    def download_file(self, codebase_id: str, file_path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> bytes:
        """Return the content of a file.

        Raises ResourceLimitExceededError for more than ``max_bytes``; None means no bound.
        """
        request = codebase_pb2.DownloadFileRequest(
            codebase_id=id_of(codebase_id, "codebase_id"), file_path=encode_path(file_path, "file_path")
        )
        about = Call("download", codebase_id=codebase_id, path=path_of(file_path, "file_path"))
        return self._content("DownloadFile", request, about, max_bytes)

    def list_files(self, codebase_id: str, path: PathLike = "", recursive: bool = False) -> List[t.FileInfo]:
        """List a directory of a codebase; with ``recursive`` all below it."""
        request = codebase_pb2.ListFilesRequest(
            codebase_id=id_of(codebase_id, "codebase_id"), path=encode_path(path), recursive=recursive
        )
        about = Call("list files", codebase_id=codebase_id, path=path_of(path) or "/")
        answer = self._connection.call("ListFiles", request, about)
        return [file_info_of(file) for file in answer.files]

    def delete_file(self, codebase_id: str, file_path: PathLike) -> None:
        """Delete a file of a codebase, or a directory and everything below it."""
        request = codebase_pb2.DeleteFileRequest(
            codebase_id=id_of(codebase_id, "codebase_id"), file_path=encode_path(file_path, "file_path")
        )
        self._connection.call(
            "DeleteFile", request, Call("delete", codebase_id=codebase_id, path=path_of(file_path, "file_path"))
        )
