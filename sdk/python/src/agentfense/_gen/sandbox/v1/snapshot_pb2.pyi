from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from agentfense._gen.sandbox.v1 import common_pb2 as _common_pb2
from agentfense._gen.sandbox.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SnapshotReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_REASON_UNSPECIFIED: _ClassVar[SnapshotReason]
    SNAPSHOT_REASON_CHECKPOINT: _ClassVar[SnapshotReason]
    SNAPSHOT_REASON_RESTORE: _ClassVar[SnapshotReason]
    SNAPSHOT_REASON_MERGE: _ClassVar[SnapshotReason]
SNAPSHOT_REASON_UNSPECIFIED: SnapshotReason
SNAPSHOT_REASON_CHECKPOINT: SnapshotReason
SNAPSHOT_REASON_RESTORE: SnapshotReason
SNAPSHOT_REASON_MERGE: SnapshotReason

class Snapshot(_message.Message):
    __slots__ = ("name", "label", "created_at", "reason", "command", "parent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: str
    created_at: _timestamp_pb2.Timestamp
    reason: SnapshotReason
    command: str
    parent: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[_Union[SnapshotReason, str]] = ..., command: _Optional[str] = ..., parent: _Optional[str] = ...) -> None: ...

class CreateSnapshotRequest(_message.Message):
    __slots__ = ("sandbox_id", "label")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    label: str
    def __init__(self, sandbox_id: _Optional[str] = ..., label: _Optional[str] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots", "present", "fork_of")
    class Origin(_message.Message):
        __slots__ = ("sandbox_id", "sandbox_name", "snapshot")
        SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
        SANDBOX_NAME_FIELD_NUMBER: _ClassVar[int]
        SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
        sandbox_id: str
        sandbox_name: str
        snapshot: str
        def __init__(self, sandbox_id: _Optional[str] = ..., sandbox_name: _Optional[str] = ..., snapshot: _Optional[str] = ...) -> None: ...
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    FORK_OF_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    present: str
    fork_of: ListSnapshotsResponse.Origin
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ..., present: _Optional[str] = ..., fork_of: _Optional[_Union[ListSnapshotsResponse.Origin, _Mapping]] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ("sandbox_id", "snapshot")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    snapshot: str
    def __init__(self, sandbox_id: _Optional[str] = ..., snapshot: _Optional[str] = ...) -> None: ...

class RestoreSnapshotRequest(_message.Message):
    __slots__ = ("sandbox_id", "snapshot")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    snapshot: str
    def __init__(self, sandbox_id: _Optional[str] = ..., snapshot: _Optional[str] = ...) -> None: ...

class RestoreSnapshotResponse(_message.Message):
    __slots__ = ("snapshot", "kept", "left_mounts")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    LEFT_MOUNTS_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    kept: Snapshot
    left_mounts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., kept: _Optional[_Union[Snapshot, _Mapping]] = ..., left_mounts: _Optional[_Iterable[str]] = ...) -> None: ...

class ForkSandboxRequest(_message.Message):
    __slots__ = ("sandbox_id", "snapshot", "names", "rules", "allow_wider", "expires_in")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_WIDER_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    snapshot: str
    names: _containers.RepeatedScalarFieldContainer[str]
    rules: ForkRules
    allow_wider: bool
    expires_in: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., snapshot: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., rules: _Optional[_Union[ForkRules, _Mapping]] = ..., allow_wider: bool = ..., expires_in: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ForkRules(_message.Message):
    __slots__ = ("permissions",)
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    permissions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PermissionRule]
    def __init__(self, permissions: _Optional[_Iterable[_Union[_common_pb2.PermissionRule, _Mapping]]] = ...) -> None: ...

class ForkSandboxResponse(_message.Message):
    __slots__ = ("sandboxes",)
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    sandboxes: _containers.RepeatedCompositeFieldContainer[_sandbox_pb2.Sandbox]
    def __init__(self, sandboxes: _Optional[_Iterable[_Union[_sandbox_pb2.Sandbox, _Mapping]]] = ...) -> None: ...

class MergeSandboxRequest(_message.Message):
    __slots__ = ("sandbox_id", "from_sandbox_id", "snapshot", "paths", "on_conflict", "dry_run")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    from_sandbox_id: str
    snapshot: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    on_conflict: _sandbox_pb2.ConflictResolution
    dry_run: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., from_sandbox_id: _Optional[str] = ..., snapshot: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., on_conflict: _Optional[_Union[_sandbox_pb2.ConflictResolution, str]] = ..., dry_run: bool = ...) -> None: ...

class MergeSandboxResponse(_message.Message):
    __slots__ = ("paths", "path_count", "changed_count", "conflicts", "conflict_count", "left_out", "left_out_count", "kept")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PATH_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedCompositeFieldContainer[MergedPath]
    path_count: int
    changed_count: int
    conflicts: _containers.RepeatedCompositeFieldContainer[MergeConflict]
    conflict_count: int
    left_out: _containers.RepeatedCompositeFieldContainer[MergeLeftOut]
    left_out_count: int
    kept: Snapshot
    def __init__(self, paths: _Optional[_Iterable[_Union[MergedPath, _Mapping]]] = ..., path_count: _Optional[int] = ..., changed_count: _Optional[int] = ..., conflicts: _Optional[_Iterable[_Union[MergeConflict, _Mapping]]] = ..., conflict_count: _Optional[int] = ..., left_out: _Optional[_Iterable[_Union[MergeLeftOut, _Mapping]]] = ..., left_out_count: _Optional[int] = ..., kept: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class MergedPath(_message.Message):
    __slots__ = ("path", "status", "merged", "resolved")
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    path: str
    status: _sandbox_pb2.ChangeStatus
    merged: bool
    resolved: _sandbox_pb2.ConflictKind
    def __init__(self, path: _Optional[str] = ..., status: _Optional[_Union[_sandbox_pb2.ChangeStatus, str]] = ..., merged: bool = ..., resolved: _Optional[_Union[_sandbox_pb2.ConflictKind, str]] = ...) -> None: ...

class MergeConflict(_message.Message):
    __slots__ = ("path", "kind", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: _sandbox_pb2.ConflictKind
    reason: str
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[_Union[_sandbox_pb2.ConflictKind, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class MergeLeftOut(_message.Message):
    __slots__ = ("path", "mount", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    mount: str
    reason: str
    def __init__(self, path: _Optional[str] = ..., mount: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CompareStatesRequest(_message.Message):
    __slots__ = ("sandbox_id", "state", "from_sandbox_id", "from_state", "paths", "names_only", "page_size", "page_token", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FROM_SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STATE_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    state: str
    from_sandbox_id: str
    from_state: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    names_only: bool
    page_size: int
    page_token: str
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., state: _Optional[str] = ..., from_sandbox_id: _Optional[str] = ..., from_state: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., names_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...
