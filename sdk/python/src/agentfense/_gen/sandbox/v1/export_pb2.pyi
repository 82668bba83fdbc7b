from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExportFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPORT_FORMAT_UNSPECIFIED: _ClassVar[ExportFormat]
    EXPORT_FORMAT_AGENTFS: _ClassVar[ExportFormat]
    EXPORT_FORMAT_TAR: _ClassVar[ExportFormat]
    EXPORT_FORMAT_OCI: _ClassVar[ExportFormat]
    EXPORT_FORMAT_PATCH: _ClassVar[ExportFormat]
EXPORT_FORMAT_UNSPECIFIED: ExportFormat
EXPORT_FORMAT_AGENTFS: ExportFormat
EXPORT_FORMAT_TAR: ExportFormat
EXPORT_FORMAT_OCI: ExportFormat
EXPORT_FORMAT_PATCH: ExportFormat

class ExportChangesRequest(_message.Message):
    __slots__ = ("sandbox_id", "format", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    format: ExportFormat
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., format: _Optional[_Union[ExportFormat, str]] = ..., mount: _Optional[str] = ...) -> None: ...

class ExportChangesResponse(_message.Message):
    __slots__ = ("summary", "left_out", "data")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    summary: ExportSummary
    left_out: ExportLeftOut
    data: bytes
    def __init__(self, summary: _Optional[_Union[ExportSummary, _Mapping]] = ..., left_out: _Optional[_Union[ExportLeftOut, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ExportSummary(_message.Message):
    __slots__ = ("size_bytes", "entries", "deletions", "left_out", "notes")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    entries: int
    deletions: int
    left_out: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, size_bytes: _Optional[int] = ..., entries: _Optional[int] = ..., deletions: _Optional[int] = ..., left_out: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class ExportLeftOut(_message.Message):
    __slots__ = ("path", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    reason: str
    def __init__(self, path: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class QuerySandboxRequest(_message.Message):
    __slots__ = ("sandbox_id", "statement", "max_rows", "timeout")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    statement: str
    max_rows: int
    timeout: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., statement: _Optional[str] = ..., max_rows: _Optional[int] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class QuerySandboxResponse(_message.Message):
    __slots__ = ("columns", "rows", "more")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedCompositeFieldContainer[QueryRow]
    more: bool
    def __init__(self, columns: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[_Union[QueryRow, _Mapping]]] = ..., more: bool = ...) -> None: ...

class QueryRow(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[QueryValue]
    def __init__(self, values: _Optional[_Iterable[_Union[QueryValue, _Mapping]]] = ...) -> None: ...

class QueryValue(_message.Message):
    __slots__ = ("integer", "real", "text", "blob", "text_bytes")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    integer: int
    real: float
    text: str
    blob: bytes
    text_bytes: bytes
    def __init__(self, integer: _Optional[int] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., blob: _Optional[bytes] = ..., text_bytes: _Optional[bytes] = ...) -> None: ...
