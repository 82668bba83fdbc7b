from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from agentfense._gen.sandbox.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_KIND_UNSPECIFIED: _ClassVar[TransactionKind]
    TRANSACTION_KIND_APPLY: _ClassVar[TransactionKind]
    TRANSACTION_KIND_KEEP: _ClassVar[TransactionKind]
    TRANSACTION_KIND_UNDO: _ClassVar[TransactionKind]
    TRANSACTION_KIND_REDO: _ClassVar[TransactionKind]

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNSPECIFIED: _ClassVar[TransactionState]
    TRANSACTION_STATE_PENDING: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_STATE_ROLLED_BACK: _ClassVar[TransactionState]
TRANSACTION_KIND_UNSPECIFIED: TransactionKind
TRANSACTION_KIND_APPLY: TransactionKind
TRANSACTION_KIND_KEEP: TransactionKind
TRANSACTION_KIND_UNDO: TransactionKind
TRANSACTION_KIND_REDO: TransactionKind
TRANSACTION_STATE_UNSPECIFIED: TransactionState
TRANSACTION_STATE_PENDING: TransactionState
TRANSACTION_STATE_COMMITTED: TransactionState
TRANSACTION_STATE_ROLLED_BACK: TransactionState

class Transaction(_message.Message):
    __slots__ = ("id", "kind", "state", "reverses", "reversed_by", "expired", "time", "sandbox_id", "sandbox_name", "mount", "codebase_id", "path_count", "image_bytes", "branch")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REVERSES_FIELD_NUMBER: _ClassVar[int]
    REVERSED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_NAME_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    CODEBASE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_COUNT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: TransactionKind
    state: TransactionState
    reverses: str
    reversed_by: str
    expired: bool
    time: _timestamp_pb2.Timestamp
    sandbox_id: str
    sandbox_name: str
    mount: str
    codebase_id: str
    path_count: int
    image_bytes: int
    branch: BranchMove
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[TransactionKind, str]] = ..., state: _Optional[_Union[TransactionState, str]] = ..., reverses: _Optional[str] = ..., reversed_by: _Optional[str] = ..., expired: bool = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., sandbox_id: _Optional[str] = ..., sandbox_name: _Optional[str] = ..., mount: _Optional[str] = ..., codebase_id: _Optional[str] = ..., path_count: _Optional[int] = ..., image_bytes: _Optional[int] = ..., branch: _Optional[_Union[BranchMove, _Mapping]] = ...) -> None: ...

class BranchMove(_message.Message):
    __slots__ = ("branch", "from_commit", "to_commit")
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    FROM_COMMIT_FIELD_NUMBER: _ClassVar[int]
    TO_COMMIT_FIELD_NUMBER: _ClassVar[int]
    branch: str
    from_commit: str
    to_commit: str
    def __init__(self, branch: _Optional[str] = ..., from_commit: _Optional[str] = ..., to_commit: _Optional[str] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("sandbox_id", "codebase_id", "page_size", "page_token")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    CODEBASE_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    codebase_id: str
    page_size: int
    page_token: str
    def __init__(self, sandbox_id: _Optional[str] = ..., codebase_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    next_page_token: str
    def __init__(self, transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UndoRequest(_message.Message):
    __slots__ = ("transaction_id", "sandbox_id", "dry_run")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    sandbox_id: str
    dry_run: bool
    def __init__(self, transaction_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class Reversal(_message.Message):
    __slots__ = ("of", "kind", "transaction_id", "paths", "path_count", "conflict_count", "given_back")
    OF_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PATH_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_COUNT_FIELD_NUMBER: _ClassVar[int]
    GIVEN_BACK_FIELD_NUMBER: _ClassVar[int]
    of: Transaction
    kind: TransactionKind
    transaction_id: str
    paths: _containers.RepeatedCompositeFieldContainer[ReversedPath]
    path_count: int
    conflict_count: int
    given_back: bool
    def __init__(self, of: _Optional[_Union[Transaction, _Mapping]] = ..., kind: _Optional[_Union[TransactionKind, str]] = ..., transaction_id: _Optional[str] = ..., paths: _Optional[_Iterable[_Union[ReversedPath, _Mapping]]] = ..., path_count: _Optional[int] = ..., conflict_count: _Optional[int] = ..., given_back: bool = ...) -> None: ...

class ReversedPath(_message.Message):
    __slots__ = ("path", "status", "conflict")
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    path: str
    status: _sandbox_pb2.ChangeStatus
    conflict: str
    def __init__(self, path: _Optional[str] = ..., status: _Optional[_Union[_sandbox_pb2.ChangeStatus, str]] = ..., conflict: _Optional[str] = ...) -> None: ...
