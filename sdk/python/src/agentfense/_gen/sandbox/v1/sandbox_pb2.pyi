from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from agentfense._gen.sandbox.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RuntimeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUNTIME_TYPE_UNSPECIFIED: _ClassVar[RuntimeType]
    RUNTIME_TYPE_BWRAP: _ClassVar[RuntimeType]
    RUNTIME_TYPE_DOCKER: _ClassVar[RuntimeType]

class SyncMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_MODE_UNSPECIFIED: _ClassVar[SyncMode]
    SYNC_MODE_ON_EXEC: _ClassVar[SyncMode]
    SYNC_MODE_ON_STOP: _ClassVar[SyncMode]
    SYNC_MODE_MANUAL: _ClassVar[SyncMode]

class AskScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ASK_SCOPE_UNSPECIFIED: _ClassVar[AskScope]
    ASK_SCOPE_ONCE: _ClassVar[AskScope]
    ASK_SCOPE_SANDBOX: _ClassVar[AskScope]

class ChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_KIND_UNSPECIFIED: _ClassVar[ChangeKind]
    CHANGE_KIND_CREATED: _ClassVar[ChangeKind]
    CHANGE_KIND_MODIFIED: _ClassVar[ChangeKind]
    CHANGE_KIND_DELETED: _ClassVar[ChangeKind]
    CHANGE_KIND_RENAMED: _ClassVar[ChangeKind]

class ChangeStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_STATUS_UNSPECIFIED: _ClassVar[ChangeStatus]
    CHANGE_STATUS_ADDED: _ClassVar[ChangeStatus]
    CHANGE_STATUS_MODIFIED: _ClassVar[ChangeStatus]
    CHANGE_STATUS_DELETED: _ClassVar[ChangeStatus]
    CHANGE_STATUS_RETYPED: _ClassVar[ChangeStatus]

class Risk(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RISK_UNSPECIFIED: _ClassVar[Risk]
    RISK_TRUSTED_LATER: _ClassVar[Risk]
    RISK_RUNS_ON_HOST: _ClassVar[Risk]

class ConflictResolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFLICT_RESOLUTION_UNSPECIFIED: _ClassVar[ConflictResolution]
    CONFLICT_RESOLUTION_OURS: _ClassVar[ConflictResolution]
    CONFLICT_RESOLUTION_THEIRS: _ClassVar[ConflictResolution]
    CONFLICT_RESOLUTION_MARKERS: _ClassVar[ConflictResolution]

class ConflictKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFLICT_KIND_UNSPECIFIED: _ClassVar[ConflictKind]
    CONFLICT_KIND_TEXT: _ClassVar[ConflictKind]
    CONFLICT_KIND_BINARY: _ClassVar[ConflictKind]
    CONFLICT_KIND_TOO_LARGE: _ClassVar[ConflictKind]
    CONFLICT_KIND_NO_BASE: _ClassVar[ConflictKind]
    CONFLICT_KIND_MODE: _ClassVar[ConflictKind]
    CONFLICT_KIND_DELETE_MODIFY: _ClassVar[ConflictKind]
    CONFLICT_KIND_RENAME_EDIT: _ClassVar[ConflictKind]
    CONFLICT_KIND_TYPE_CHANGE: _ClassVar[ConflictKind]
    CONFLICT_KIND_BOTH_ADDED: _ClassVar[ConflictKind]
    CONFLICT_KIND_DIRECTORY: _ClassVar[ConflictKind]
    CONFLICT_KIND_HIDDEN: _ClassVar[ConflictKind]
    CONFLICT_KIND_HIDDEN_BELOW: _ClassVar[ConflictKind]
    CONFLICT_KIND_CHANGED_MEANWHILE: _ClassVar[ConflictKind]
    CONFLICT_KIND_LINK: _ClassVar[ConflictKind]
    CONFLICT_KIND_REFUSED: _ClassVar[ConflictKind]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_APPLIED: _ClassVar[Outcome]
    OUTCOME_PRESENT: _ClassVar[Outcome]
    OUTCOME_KEPT: _ClassVar[Outcome]
    OUTCOME_CONFLICT: _ClassVar[Outcome]
    OUTCOME_REFUSED: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
    OUTCOME_SKIPPED: _ClassVar[Outcome]
    OUTCOME_CHANGED_SINCE_REVIEW: _ClassVar[Outcome]
    OUTCOME_LEFT_OUT: _ClassVar[Outcome]

class CommitOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMIT_OUTCOME_UNSPECIFIED: _ClassVar[CommitOutcome]
    COMMIT_OUTCOME_LEFT_OUT: _ClassVar[CommitOutcome]
    COMMIT_OUTCOME_REFUSED: _ClassVar[CommitOutcome]

class ViewOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VIEW_ORIGIN_UNSPECIFIED: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_SOURCE: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_FROZEN: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_DELTA: _ClassVar[ViewOrigin]
RUNTIME_TYPE_UNSPECIFIED: RuntimeType
RUNTIME_TYPE_BWRAP: RuntimeType
RUNTIME_TYPE_DOCKER: RuntimeType
SYNC_MODE_UNSPECIFIED: SyncMode
SYNC_MODE_ON_EXEC: SyncMode
SYNC_MODE_ON_STOP: SyncMode
SYNC_MODE_MANUAL: SyncMode
ASK_SCOPE_UNSPECIFIED: AskScope
ASK_SCOPE_ONCE: AskScope
ASK_SCOPE_SANDBOX: AskScope
CHANGE_KIND_UNSPECIFIED: ChangeKind
CHANGE_KIND_CREATED: ChangeKind
CHANGE_KIND_MODIFIED: ChangeKind
CHANGE_KIND_DELETED: ChangeKind
CHANGE_KIND_RENAMED: ChangeKind
CHANGE_STATUS_UNSPECIFIED: ChangeStatus
CHANGE_STATUS_ADDED: ChangeStatus
CHANGE_STATUS_MODIFIED: ChangeStatus
CHANGE_STATUS_DELETED: ChangeStatus
CHANGE_STATUS_RETYPED: ChangeStatus
RISK_UNSPECIFIED: Risk
RISK_TRUSTED_LATER: Risk
RISK_RUNS_ON_HOST: Risk
CONFLICT_RESOLUTION_UNSPECIFIED: ConflictResolution
CONFLICT_RESOLUTION_OURS: ConflictResolution
CONFLICT_RESOLUTION_THEIRS: ConflictResolution
CONFLICT_RESOLUTION_MARKERS: ConflictResolution
CONFLICT_KIND_UNSPECIFIED: ConflictKind
CONFLICT_KIND_TEXT: ConflictKind
CONFLICT_KIND_BINARY: ConflictKind
CONFLICT_KIND_TOO_LARGE: ConflictKind
CONFLICT_KIND_NO_BASE: ConflictKind
CONFLICT_KIND_MODE: ConflictKind
CONFLICT_KIND_DELETE_MODIFY: ConflictKind
CONFLICT_KIND_RENAME_EDIT: ConflictKind
CONFLICT_KIND_TYPE_CHANGE: ConflictKind
CONFLICT_KIND_BOTH_ADDED: ConflictKind
CONFLICT_KIND_DIRECTORY: ConflictKind
CONFLICT_KIND_HIDDEN: ConflictKind
CONFLICT_KIND_HIDDEN_BELOW: ConflictKind
CONFLICT_KIND_CHANGED_MEANWHILE: ConflictKind
CONFLICT_KIND_LINK: ConflictKind
CONFLICT_KIND_REFUSED: ConflictKind
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_APPLIED: Outcome
OUTCOME_PRESENT: Outcome
OUTCOME_KEPT: Outcome
OUTCOME_CONFLICT: Outcome
OUTCOME_REFUSED: Outcome
OUTCOME_FAILED: Outcome
OUTCOME_SKIPPED: Outcome
OUTCOME_CHANGED_SINCE_REVIEW: Outcome
OUTCOME_LEFT_OUT: Outcome
COMMIT_OUTCOME_UNSPECIFIED: CommitOutcome
COMMIT_OUTCOME_LEFT_OUT: CommitOutcome
COMMIT_OUTCOME_REFUSED: CommitOutcome
VIEW_ORIGIN_UNSPECIFIED: ViewOrigin
VIEW_ORIGIN_SOURCE: ViewOrigin
VIEW_ORIGIN_FROZEN: ViewOrigin
VIEW_ORIGIN_DELTA: ViewOrigin

class ResourceLimits(_message.Message):
    __slots__ = ("memory_bytes", "cpu_quota", "cpu_shares", "pids_limit", "disk_bytes", "disk_inodes")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_QUOTA_FIELD_NUMBER: _ClassVar[int]
    CPU_SHARES_FIELD_NUMBER: _ClassVar[int]
    PIDS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_INODES_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    cpu_quota: int
    cpu_shares: int
    pids_limit: int
    disk_bytes: int
    disk_inodes: int
    def __init__(self, memory_bytes: _Optional[int] = ..., cpu_quota: _Optional[int] = ..., cpu_shares: _Optional[int] = ..., pids_limit: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., disk_inodes: _Optional[int] = ...) -> None: ...

class Sandbox(_message.Message):
    __slots__ = ("id", "codebase_id", "permissions", "status", "labels", "created_at", "started_at", "stopped_at", "expires_at", "runtime", "image", "resources", "status_reason", "name", "owner_id", "sync_held", "sync", "workspace", "home", "usage", "variables", "allow_net", "mounts", "scratch", "secrets", "net_limits", "publish", "publish_address", "ask_timeout", "grants", "board", "git", "unsaved_branches")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    CODEBASE_ID_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    STOPPED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    STATUS_REASON_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    SYNC_HELD_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_NET_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    NET_LIMITS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ASK_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    BOARD_FIELD_NUMBER: _ClassVar[int]
    GIT_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_BRANCHES_FIELD_NUMBER: _ClassVar[int]
    id: str
    codebase_id: str
    permissions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PermissionRule]
    status: _common_pb2.SandboxStatus
    labels: _containers.ScalarMap[str, str]
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    stopped_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    runtime: RuntimeType
    image: str
    resources: ResourceLimits
    status_reason: str
    name: str
    owner_id: str
    sync_held: bool
    sync: SyncMode
    workspace: str
    home: str
    usage: SandboxUsage
    variables: _containers.RepeatedScalarFieldContainer[str]
    allow_net: _containers.RepeatedCompositeFieldContainer[AllowedHost]
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    scratch: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedCompositeFieldContainer[SandboxSecret]
    net_limits: _containers.RepeatedScalarFieldContainer[str]
    publish: _containers.RepeatedScalarFieldContainer[str]
    publish_address: str
    ask_timeout: _duration_pb2.Duration
    grants: _containers.RepeatedCompositeFieldContainer[PathGrant]
    board: bool
    git: str
    unsaved_branches: int
    def __init__(self, id: _Optional[str] = ..., codebase_id: _Optional[str] = ..., permissions: _Optional[_Iterable[_Union[_common_pb2.PermissionRule, _Mapping]]] = ..., status: _Optional[_Union[_common_pb2.SandboxStatus, str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., stopped_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., runtime: _Optional[_Union[RuntimeType, str]] = ..., image: _Optional[str] = ..., resources: _Optional[_Union[ResourceLimits, _Mapping]] = ..., status_reason: _Optional[str] = ..., name: _Optional[str] = ..., owner_id: _Optional[str] = ..., sync_held: bool = ..., sync: _Optional[_Union[SyncMode, str]] = ..., workspace: _Optional[str] = ..., home: _Optional[str] = ..., usage: _Optional[_Union[SandboxUsage, _Mapping]] = ..., variables: _Optional[_Iterable[str]] = ..., allow_net: _Optional[_Iterable[_Union[AllowedHost, _Mapping]]] = ..., mounts: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., scratch: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[_Union[SandboxSecret, _Mapping]]] = ..., net_limits: _Optional[_Iterable[str]] = ..., publish: _Optional[_Iterable[str]] = ..., publish_address: _Optional[str] = ..., ask_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., grants: _Optional[_Iterable[_Union[PathGrant, _Mapping]]] = ..., board: bool = ..., git: _Optional[str] = ..., unsaved_branches: _Optional[int] = ...) -> None: ...

class PathGrant(_message.Message):
    __slots__ = ("path", "directory", "permission", "until")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    path: str
    directory: bool
    permission: _common_pb2.Permission
    until: _timestamp_pb2.Timestamp
    def __init__(self, path: _Optional[str] = ..., directory: bool = ..., permission: _Optional[_Union[_common_pb2.Permission, str]] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Mount(_message.Message):
    __slots__ = ("source", "place", "name", "mode", "rules")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    source: str
    place: str
    name: str
    mode: str
    rules: _containers.RepeatedCompositeFieldContainer[_common_pb2.PermissionRule]
    def __init__(self, source: _Optional[str] = ..., place: _Optional[str] = ..., name: _Optional[str] = ..., mode: _Optional[str] = ..., rules: _Optional[_Iterable[_Union[_common_pb2.PermissionRule, _Mapping]]] = ...) -> None: ...

class SandboxSecret(_message.Message):
    __slots__ = ("name", "hosts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class SandboxUsage(_message.Message):
    __slots__ = ("pending_changes", "pending_changes_more", "disk_bytes", "disk_bytes_more")
    PENDING_CHANGES_FIELD_NUMBER: _ClassVar[int]
    PENDING_CHANGES_MORE_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_MORE_FIELD_NUMBER: _ClassVar[int]
    pending_changes: int
    pending_changes_more: bool
    disk_bytes: int
    disk_bytes_more: bool
    def __init__(self, pending_changes: _Optional[int] = ..., pending_changes_more: bool = ..., disk_bytes: _Optional[int] = ..., disk_bytes_more: bool = ...) -> None: ...

class CreateSandboxRequest(_message.Message):
    __slots__ = ("codebase_id", "permissions", "expires_in", "labels", "runtime", "image", "resources", "name", "user", "sync", "at_host_path", "git_user", "home", "env", "allow_net", "mounts", "scratch", "secrets", "net_limits", "publish", "ask_timeout", "board", "git")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODEBASE_ID_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    AT_HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    GIT_USER_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    ALLOW_NET_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    NET_LIMITS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    ASK_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    BOARD_FIELD_NUMBER: _ClassVar[int]
    GIT_FIELD_NUMBER: _ClassVar[int]
    codebase_id: str
    permissions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PermissionRule]
    expires_in: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    runtime: RuntimeType
    image: str
    resources: ResourceLimits
    name: str
    user: str
    sync: SyncMode
    at_host_path: bool
    git_user: GitUser
    home: str
    env: _containers.ScalarMap[str, str]
    allow_net: _containers.RepeatedScalarFieldContainer[str]
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    scratch: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedScalarFieldContainer[str]
    net_limits: _containers.RepeatedScalarFieldContainer[str]
    publish: _containers.RepeatedScalarFieldContainer[str]
    ask_timeout: _duration_pb2.Duration
    board: bool
    git: str
    def __init__(self, codebase_id: _Optional[str] = ..., permissions: _Optional[_Iterable[_Union[_common_pb2.PermissionRule, _Mapping]]] = ..., expires_in: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., runtime: _Optional[_Union[RuntimeType, str]] = ..., image: _Optional[str] = ..., resources: _Optional[_Union[ResourceLimits, _Mapping]] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., sync: _Optional[_Union[SyncMode, str]] = ..., at_host_path: bool = ..., git_user: _Optional[_Union[GitUser, _Mapping]] = ..., home: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., allow_net: _Optional[_Iterable[str]] = ..., mounts: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., scratch: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[str]] = ..., net_limits: _Optional[_Iterable[str]] = ..., publish: _Optional[_Iterable[str]] = ..., ask_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., board: bool = ..., git: _Optional[str] = ...) -> None: ...

class AllowedHost(_message.Message):
    __slots__ = ("host", "until")
    HOST_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    host: str
    until: _timestamp_pb2.Timestamp
    def __init__(self, host: _Optional[str] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ChangeHostsRequest(_message.Message):
    __slots__ = ("sandbox_id", "grant", "grant_for", "revoke")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    GRANT_FOR_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    grant: _containers.RepeatedScalarFieldContainer[str]
    grant_for: _duration_pb2.Duration
    revoke: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sandbox_id: _Optional[str] = ..., grant: _Optional[_Iterable[str]] = ..., grant_for: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., revoke: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateSandboxRequest(_message.Message):
    __slots__ = ("sandbox_id", "resources", "clear", "scratch", "secrets", "net_limits", "publish", "ask_timeout")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    NET_LIMITS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    ASK_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    resources: ResourceLimits
    clear: _containers.RepeatedScalarFieldContainer[str]
    scratch: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedScalarFieldContainer[str]
    net_limits: _containers.RepeatedScalarFieldContainer[str]
    publish: _containers.RepeatedScalarFieldContainer[str]
    ask_timeout: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., resources: _Optional[_Union[ResourceLimits, _Mapping]] = ..., clear: _Optional[_Iterable[str]] = ..., scratch: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[str]] = ..., net_limits: _Optional[_Iterable[str]] = ..., publish: _Optional[_Iterable[str]] = ..., ask_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GrantPathRequest(_message.Message):
    __slots__ = ("sandbox_id", "path", "directory", "permission", "grant_for", "revoke")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    GRANT_FOR_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    path: str
    directory: bool
    permission: _common_pb2.Permission
    grant_for: _duration_pb2.Duration
    revoke: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., directory: bool = ..., permission: _Optional[_Union[_common_pb2.Permission, str]] = ..., grant_for: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., revoke: bool = ...) -> None: ...

class ListAsksRequest(_message.Message):
    __slots__ = ("sandbox_id", "wait", "version")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    wait: _duration_pb2.Duration
    version: str
    def __init__(self, sandbox_id: _Optional[str] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., version: _Optional[str] = ...) -> None: ...

class ListAsksResponse(_message.Message):
    __slots__ = ("asks", "version")
    ASKS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    asks: _containers.RepeatedCompositeFieldContainer[Ask]
    version: str
    def __init__(self, asks: _Optional[_Iterable[_Union[Ask, _Mapping]]] = ..., version: _Optional[str] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("id", "exec_id", "path", "permission", "needed", "operation", "rule", "host", "pid", "program", "since", "until", "waiting", "mount")
    ID_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    id: str
    exec_id: str
    path: str
    permission: _common_pb2.Permission
    needed: _common_pb2.Permission
    operation: str
    rule: str
    host: str
    pid: int
    program: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    waiting: int
    mount: str
    def __init__(self, id: _Optional[str] = ..., exec_id: _Optional[str] = ..., path: _Optional[str] = ..., permission: _Optional[_Union[_common_pb2.Permission, str]] = ..., needed: _Optional[_Union[_common_pb2.Permission, str]] = ..., operation: _Optional[str] = ..., rule: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., program: _Optional[str] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., waiting: _Optional[int] = ..., mount: _Optional[str] = ...) -> None: ...

class AnswerAskRequest(_message.Message):
    __slots__ = ("sandbox_id", "ask_id", "allow", "scope")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    ask_id: str
    allow: bool
    scope: AskScope
    def __init__(self, sandbox_id: _Optional[str] = ..., ask_id: _Optional[str] = ..., allow: bool = ..., scope: _Optional[_Union[AskScope, str]] = ...) -> None: ...

class GitUser(_message.Message):
    __slots__ = ("name", "email")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    email: str
    def __init__(self, name: _Optional[str] = ..., email: _Optional[str] = ...) -> None: ...

class GetSandboxRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class ListSandboxesRequest(_message.Message):
    __slots__ = ("codebase_id", "page_size", "page_token", "labels", "owner_id", "name", "with_usage")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODEBASE_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WITH_USAGE_FIELD_NUMBER: _ClassVar[int]
    codebase_id: str
    page_size: int
    page_token: str
    labels: _containers.ScalarMap[str, str]
    owner_id: str
    name: str
    with_usage: bool
    def __init__(self, codebase_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., owner_id: _Optional[str] = ..., name: _Optional[str] = ..., with_usage: bool = ...) -> None: ...

class ListSandboxesResponse(_message.Message):
    __slots__ = ("sandboxes", "next_page_token")
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sandboxes: _containers.RepeatedCompositeFieldContainer[Sandbox]
    next_page_token: str
    def __init__(self, sandboxes: _Optional[_Iterable[_Union[Sandbox, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class StartSandboxRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class StopSandboxRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class DestroySandboxRequest(_message.Message):
    __slots__ = ("sandbox_id", "unused_only")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    UNUSED_ONLY_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    unused_only: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., unused_only: bool = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("sandbox_id", "command", "stdin", "env", "workdir", "timeout", "stdin_bytes", "detach", "checkpoint")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    STDIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    command: str
    stdin: str
    env: _containers.ScalarMap[str, str]
    workdir: str
    timeout: _duration_pb2.Duration
    stdin_bytes: bytes
    detach: bool
    checkpoint: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., command: _Optional[str] = ..., stdin: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., workdir: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., stdin_bytes: _Optional[bytes] = ..., detach: bool = ..., checkpoint: bool = ...) -> None: ...

class ExecResult(_message.Message):
    __slots__ = ("stdout", "stderr", "exit_code", "duration", "stdout_bytes", "stderr_bytes", "stdout_truncated", "stderr_truncated", "conflicts", "conflict_count", "exec_id", "denied", "denied_count", "changed", "changed_count", "sync_held", "keep")
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDOUT_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STDERR_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    DENIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SYNC_HELD_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    stdout: str
    stderr: str
    exit_code: int
    duration: _duration_pb2.Duration
    stdout_bytes: bytes
    stderr_bytes: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    conflicts: _containers.RepeatedScalarFieldContainer[str]
    conflict_count: int
    exec_id: str
    denied: _containers.RepeatedCompositeFieldContainer[Denial]
    denied_count: int
    changed: _containers.RepeatedCompositeFieldContainer[FileChange]
    changed_count: int
    sync_held: bool
    keep: KeepResult
    def __init__(self, stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., exit_code: _Optional[int] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., stdout_bytes: _Optional[bytes] = ..., stderr_bytes: _Optional[bytes] = ..., stdout_truncated: bool = ..., stderr_truncated: bool = ..., conflicts: _Optional[_Iterable[str]] = ..., conflict_count: _Optional[int] = ..., exec_id: _Optional[str] = ..., denied: _Optional[_Iterable[_Union[Denial, _Mapping]]] = ..., denied_count: _Optional[int] = ..., changed: _Optional[_Iterable[_Union[FileChange, _Mapping]]] = ..., changed_count: _Optional[int] = ..., sync_held: bool = ..., keep: _Optional[_Union[KeepResult, _Mapping]] = ...) -> None: ...

class KeepResult(_message.Message):
    __slots__ = ("kept", "kept_count", "not_kept", "not_kept_count", "note")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    KEPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOT_KEPT_FIELD_NUMBER: _ClassVar[int]
    NOT_KEPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    kept: _containers.RepeatedCompositeFieldContainer[KeptPath]
    kept_count: int
    not_kept: _containers.RepeatedCompositeFieldContainer[KeptPath]
    not_kept_count: int
    note: str
    def __init__(self, kept: _Optional[_Iterable[_Union[KeptPath, _Mapping]]] = ..., kept_count: _Optional[int] = ..., not_kept: _Optional[_Iterable[_Union[KeptPath, _Mapping]]] = ..., not_kept_count: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class KeptPath(_message.Message):
    __slots__ = ("mount", "path", "keys", "reason")
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    mount: str
    path: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, mount: _Optional[str] = ..., path: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Denial(_message.Message):
    __slots__ = ("path", "operation", "permission", "rule", "rule_index", "pid", "program", "count", "mount", "lock")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    RULE_INDEX_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    path: str
    operation: str
    permission: _common_pb2.Permission
    rule: str
    rule_index: int
    pid: int
    program: str
    count: int
    mount: str
    lock: str
    def __init__(self, path: _Optional[str] = ..., operation: _Optional[str] = ..., permission: _Optional[_Union[_common_pb2.Permission, str]] = ..., rule: _Optional[str] = ..., rule_index: _Optional[int] = ..., pid: _Optional[int] = ..., program: _Optional[str] = ..., count: _Optional[int] = ..., mount: _Optional[str] = ..., lock: _Optional[str] = ...) -> None: ...

class FileChange(_message.Message):
    __slots__ = ("path", "kind", "old_path", "mount")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: ChangeKind
    old_path: str
    mount: str
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[_Union[ChangeKind, str]] = ..., old_path: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...

class ExecOutput(_message.Message):
    __slots__ = ("type", "data", "exit_code", "conflicts", "conflict_count", "exec_id", "lost_bytes", "denied", "denied_count", "changed", "changed_count", "sync_held", "keep")
    class OutputType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTPUT_TYPE_UNSPECIFIED: _ClassVar[ExecOutput.OutputType]
        OUTPUT_TYPE_STDOUT: _ClassVar[ExecOutput.OutputType]
        OUTPUT_TYPE_STDERR: _ClassVar[ExecOutput.OutputType]
    OUTPUT_TYPE_UNSPECIFIED: ExecOutput.OutputType
    OUTPUT_TYPE_STDOUT: ExecOutput.OutputType
    OUTPUT_TYPE_STDERR: ExecOutput.OutputType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    DENIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SYNC_HELD_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    type: ExecOutput.OutputType
    data: bytes
    exit_code: int
    conflicts: _containers.RepeatedScalarFieldContainer[str]
    conflict_count: int
    exec_id: str
    lost_bytes: int
    denied: _containers.RepeatedCompositeFieldContainer[Denial]
    denied_count: int
    changed: _containers.RepeatedCompositeFieldContainer[FileChange]
    changed_count: int
    sync_held: bool
    keep: KeepResult
    def __init__(self, type: _Optional[_Union[ExecOutput.OutputType, str]] = ..., data: _Optional[bytes] = ..., exit_code: _Optional[int] = ..., conflicts: _Optional[_Iterable[str]] = ..., conflict_count: _Optional[int] = ..., exec_id: _Optional[str] = ..., lost_bytes: _Optional[int] = ..., denied: _Optional[_Iterable[_Union[Denial, _Mapping]]] = ..., denied_count: _Optional[int] = ..., changed: _Optional[_Iterable[_Union[FileChange, _Mapping]]] = ..., changed_count: _Optional[int] = ..., sync_held: bool = ..., keep: _Optional[_Union[KeepResult, _Mapping]] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("start", "stdin", "stdin_end", "resize", "signal", "resume")
    class Start(_message.Message):
        __slots__ = ("sandbox_id", "argv", "env", "workdir", "timeout", "terminal", "detach", "remember_env", "checkpoint")
        class EnvEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        class RememberEnvEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
        ARGV_FIELD_NUMBER: _ClassVar[int]
        ENV_FIELD_NUMBER: _ClassVar[int]
        WORKDIR_FIELD_NUMBER: _ClassVar[int]
        TIMEOUT_FIELD_NUMBER: _ClassVar[int]
        TERMINAL_FIELD_NUMBER: _ClassVar[int]
        DETACH_FIELD_NUMBER: _ClassVar[int]
        REMEMBER_ENV_FIELD_NUMBER: _ClassVar[int]
        CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
        sandbox_id: str
        argv: _containers.RepeatedScalarFieldContainer[str]
        env: _containers.ScalarMap[str, str]
        workdir: str
        timeout: _duration_pb2.Duration
        terminal: AttachRequest.WindowSize
        detach: bool
        remember_env: _containers.ScalarMap[str, str]
        checkpoint: bool
        def __init__(self, sandbox_id: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., workdir: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., terminal: _Optional[_Union[AttachRequest.WindowSize, _Mapping]] = ..., detach: bool = ..., remember_env: _Optional[_Mapping[str, str]] = ..., checkpoint: bool = ...) -> None: ...
    class Resume(_message.Message):
        __slots__ = ("sandbox_id", "exec_id", "stdout_offset", "stderr_offset")
        SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
        EXEC_ID_FIELD_NUMBER: _ClassVar[int]
        STDOUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
        STDERR_OFFSET_FIELD_NUMBER: _ClassVar[int]
        sandbox_id: str
        exec_id: str
        stdout_offset: int
        stderr_offset: int
        def __init__(self, sandbox_id: _Optional[str] = ..., exec_id: _Optional[str] = ..., stdout_offset: _Optional[int] = ..., stderr_offset: _Optional[int] = ...) -> None: ...
    class WindowSize(_message.Message):
        __slots__ = ("rows", "columns")
        ROWS_FIELD_NUMBER: _ClassVar[int]
        COLUMNS_FIELD_NUMBER: _ClassVar[int]
        rows: int
        columns: int
        def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...
    START_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    STDIN_END_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    start: AttachRequest.Start
    stdin: bytes
    stdin_end: bool
    resize: AttachRequest.WindowSize
    signal: int
    resume: AttachRequest.Resume
    def __init__(self, start: _Optional[_Union[AttachRequest.Start, _Mapping]] = ..., stdin: _Optional[bytes] = ..., stdin_end: bool = ..., resize: _Optional[_Union[AttachRequest.WindowSize, _Mapping]] = ..., signal: _Optional[int] = ..., resume: _Optional[_Union[AttachRequest.Resume, _Mapping]] = ...) -> None: ...

class ListExecsRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class ListExecsResponse(_message.Message):
    __slots__ = ("execs",)
    EXECS_FIELD_NUMBER: _ClassVar[int]
    execs: _containers.RepeatedCompositeFieldContainer[DetachedExec]
    def __init__(self, execs: _Optional[_Iterable[_Union[DetachedExec, _Mapping]]] = ...) -> None: ...

class DetachedExec(_message.Message):
    __slots__ = ("exec_id", "argv", "session_id", "started_at", "exit_code")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    session_id: str
    started_at: _timestamp_pb2.Timestamp
    exit_code: int
    def __init__(self, exec_id: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., session_id: _Optional[str] = ..., started_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., exit_code: _Optional[int] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("id", "sandbox_id", "status", "shell", "created_at", "closed_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    sandbox_id: str
    status: _common_pb2.SessionStatus
    shell: str
    created_at: _timestamp_pb2.Timestamp
    closed_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., status: _Optional[_Union[_common_pb2.SessionStatus, str]] = ..., shell: _Optional[str] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., closed_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("sandbox_id", "shell", "env")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    shell: str
    env: _containers.ScalarMap[str, str]
    def __init__(self, sandbox_id: _Optional[str] = ..., shell: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ...) -> None: ...

class DestroySessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class SessionExecRequest(_message.Message):
    __slots__ = ("session_id", "command", "timeout", "detach")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    command: str
    timeout: _duration_pb2.Duration
    detach: bool
    def __init__(self, session_id: _Optional[str] = ..., command: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., detach: bool = ...) -> None: ...

class DiffRequest(_message.Message):
    __slots__ = ("sandbox_id", "paths", "names_only", "page_size", "page_token", "shown_digest", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SHOWN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    names_only: bool
    page_size: int
    page_token: str
    shown_digest: str
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., names_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., shown_digest: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...

class DiffResponse(_message.Message):
    __slots__ = ("files", "next_page_token", "digest", "groups")
    FILES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileDiff]
    next_page_token: str
    digest: str
    groups: _containers.RepeatedCompositeFieldContainer[ChangeGroup]
    def __init__(self, files: _Optional[_Iterable[_Union[FileDiff, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., digest: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[ChangeGroup, _Mapping]]] = ...) -> None: ...

class ChangeGroup(_message.Message):
    __slots__ = ("name", "lines", "count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    count: int
    def __init__(self, name: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ...) -> None: ...

class FileDiff(_message.Message):
    __slots__ = ("path", "status", "risk", "risk_reason", "source_changed", "old", "new", "binary", "too_large", "inserted", "deleted", "patch", "patch_bytes", "patch_omitted", "old_content_unknown", "group", "renamed_from", "renamed_to", "own", "left_out", "id", "mode_id", "hunks")
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    RISK_REASON_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    INSERTED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    PATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATCH_OMITTED_FIELD_NUMBER: _ClassVar[int]
    OLD_CONTENT_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RENAMED_FROM_FIELD_NUMBER: _ClassVar[int]
    RENAMED_TO_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MODE_ID_FIELD_NUMBER: _ClassVar[int]
    HUNKS_FIELD_NUMBER: _ClassVar[int]
    path: str
    status: ChangeStatus
    risk: Risk
    risk_reason: str
    source_changed: bool
    old: FileState
    new: FileState
    binary: bool
    too_large: bool
    inserted: int
    deleted: int
    patch: str
    patch_bytes: bytes
    patch_omitted: bool
    old_content_unknown: bool
    group: str
    renamed_from: str
    renamed_to: str
    own: bool
    left_out: str
    id: str
    mode_id: str
    hunks: _containers.RepeatedCompositeFieldContainer[Hunk]
    def __init__(self, path: _Optional[str] = ..., status: _Optional[_Union[ChangeStatus, str]] = ..., risk: _Optional[_Union[Risk, str]] = ..., risk_reason: _Optional[str] = ..., source_changed: bool = ..., old: _Optional[_Union[FileState, _Mapping]] = ..., new: _Optional[_Union[FileState, _Mapping]] = ..., binary: bool = ..., too_large: bool = ..., inserted: _Optional[int] = ..., deleted: _Optional[int] = ..., patch: _Optional[str] = ..., patch_bytes: _Optional[bytes] = ..., patch_omitted: bool = ..., old_content_unknown: bool = ..., group: _Optional[str] = ..., renamed_from: _Optional[str] = ..., renamed_to: _Optional[str] = ..., own: bool = ..., left_out: _Optional[str] = ..., id: _Optional[str] = ..., mode_id: _Optional[str] = ..., hunks: _Optional[_Iterable[_Union[Hunk, _Mapping]]] = ...) -> None: ...

class Hunk(_message.Message):
    __slots__ = ("id", "old_start", "old_lines", "new_start", "new_lines", "pieces")
    ID_FIELD_NUMBER: _ClassVar[int]
    OLD_START_FIELD_NUMBER: _ClassVar[int]
    OLD_LINES_FIELD_NUMBER: _ClassVar[int]
    NEW_START_FIELD_NUMBER: _ClassVar[int]
    NEW_LINES_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    id: str
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    pieces: _containers.RepeatedCompositeFieldContainer[HunkPiece]
    def __init__(self, id: _Optional[str] = ..., old_start: _Optional[int] = ..., old_lines: _Optional[int] = ..., new_start: _Optional[int] = ..., new_lines: _Optional[int] = ..., pieces: _Optional[_Iterable[_Union[HunkPiece, _Mapping]]] = ...) -> None: ...

class HunkPiece(_message.Message):
    __slots__ = ("id", "old_start", "old_lines", "new_start", "new_lines")
    ID_FIELD_NUMBER: _ClassVar[int]
    OLD_START_FIELD_NUMBER: _ClassVar[int]
    OLD_LINES_FIELD_NUMBER: _ClassVar[int]
    NEW_START_FIELD_NUMBER: _ClassVar[int]
    NEW_LINES_FIELD_NUMBER: _ClassVar[int]
    id: str
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    def __init__(self, id: _Optional[str] = ..., old_start: _Optional[int] = ..., old_lines: _Optional[int] = ..., new_start: _Optional[int] = ..., new_lines: _Optional[int] = ...) -> None: ...

class FileState(_message.Message):
    __slots__ = ("mode", "size", "symlink_target", "sha256", "link_count")
    MODE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SYMLINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    LINK_COUNT_FIELD_NUMBER: _ClassVar[int]
    mode: int
    size: int
    symlink_target: str
    sha256: str
    link_count: int
    def __init__(self, mode: _Optional[int] = ..., size: _Optional[int] = ..., symlink_target: _Optional[str] = ..., sha256: _Optional[str] = ..., link_count: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("sandbox_id", "paths", "dry_run", "reviewed_digest", "mount", "hunks", "on_conflict", "to_branch", "message", "git_user", "attest")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REVIEWED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    HUNKS_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    TO_BRANCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GIT_USER_FIELD_NUMBER: _ClassVar[int]
    ATTEST_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    reviewed_digest: str
    mount: str
    hunks: _containers.RepeatedScalarFieldContainer[str]
    on_conflict: ConflictResolution
    to_branch: str
    message: str
    git_user: GitUser
    attest: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., dry_run: bool = ..., reviewed_digest: _Optional[str] = ..., mount: _Optional[str] = ..., hunks: _Optional[_Iterable[str]] = ..., on_conflict: _Optional[_Union[ConflictResolution, str]] = ..., to_branch: _Optional[str] = ..., message: _Optional[str] = ..., git_user: _Optional[_Union[GitUser, _Mapping]] = ..., attest: bool = ...) -> None: ...

class PathOutcome(_message.Message):
    __slots__ = ("path", "outcome", "reason", "status", "hunks", "of_hunks", "merged", "conflicts", "conflict_kind")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HUNKS_FIELD_NUMBER: _ClassVar[int]
    OF_HUNKS_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_KIND_FIELD_NUMBER: _ClassVar[int]
    path: str
    outcome: Outcome
    reason: str
    status: ChangeStatus
    hunks: int
    of_hunks: int
    merged: bool
    conflicts: int
    conflict_kind: ConflictKind
    def __init__(self, path: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., status: _Optional[_Union[ChangeStatus, str]] = ..., hunks: _Optional[int] = ..., of_hunks: _Optional[int] = ..., merged: bool = ..., conflicts: _Optional[int] = ..., conflict_kind: _Optional[_Union[ConflictKind, str]] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("results", "result_count", "applied_count", "written_again", "transaction_id", "commit", "statement")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESULT_COUNT_FIELD_NUMBER: _ClassVar[int]
    APPLIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AGAIN_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PathOutcome]
    result_count: int
    applied_count: int
    written_again: _containers.RepeatedScalarFieldContainer[str]
    transaction_id: str
    commit: str
    statement: bytes
    def __init__(self, results: _Optional[_Iterable[_Union[PathOutcome, _Mapping]]] = ..., result_count: _Optional[int] = ..., applied_count: _Optional[int] = ..., written_again: _Optional[_Iterable[str]] = ..., transaction_id: _Optional[str] = ..., commit: _Optional[str] = ..., statement: _Optional[bytes] = ...) -> None: ...

class ListCommitsRequest(_message.Message):
    __slots__ = ("sandbox_id", "page_size", "page_token")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    page_size: int
    page_token: str
    def __init__(self, sandbox_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCommitsResponse(_message.Message):
    __slots__ = ("commits", "next_page_token", "source_commit")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    next_page_token: str
    source_commit: str
    def __init__(self, commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., source_commit: _Optional[str] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("branch", "current", "id", "author", "subject", "signed", "merge", "files", "file_count", "applied")
    class File(_message.Message):
        __slots__ = ("path", "status", "outcome", "reason", "risk", "risk_reason")
        PATH_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        OUTCOME_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        RISK_FIELD_NUMBER: _ClassVar[int]
        RISK_REASON_FIELD_NUMBER: _ClassVar[int]
        path: str
        status: ChangeStatus
        outcome: CommitOutcome
        reason: str
        risk: Risk
        risk_reason: str
        def __init__(self, path: _Optional[str] = ..., status: _Optional[_Union[ChangeStatus, str]] = ..., outcome: _Optional[_Union[CommitOutcome, str]] = ..., reason: _Optional[str] = ..., risk: _Optional[_Union[Risk, str]] = ..., risk_reason: _Optional[str] = ...) -> None: ...
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    branch: str
    current: bool
    id: str
    author: str
    subject: str
    signed: bool
    merge: bool
    files: _containers.RepeatedCompositeFieldContainer[Commit.File]
    file_count: int
    applied: bool
    def __init__(self, branch: _Optional[str] = ..., current: bool = ..., id: _Optional[str] = ..., author: _Optional[str] = ..., subject: _Optional[str] = ..., signed: bool = ..., merge: bool = ..., files: _Optional[_Iterable[_Union[Commit.File, _Mapping]]] = ..., file_count: _Optional[int] = ..., applied: bool = ...) -> None: ...

class ApplyCommitsRequest(_message.Message):
    __slots__ = ("sandbox_id", "to_branch", "from_branch", "at_base", "reviewed_commit", "dry_run", "git_user")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    TO_BRANCH_FIELD_NUMBER: _ClassVar[int]
    FROM_BRANCH_FIELD_NUMBER: _ClassVar[int]
    AT_BASE_FIELD_NUMBER: _ClassVar[int]
    REVIEWED_COMMIT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    GIT_USER_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    to_branch: str
    from_branch: str
    at_base: bool
    reviewed_commit: str
    dry_run: bool
    git_user: GitUser
    def __init__(self, sandbox_id: _Optional[str] = ..., to_branch: _Optional[str] = ..., from_branch: _Optional[str] = ..., at_base: bool = ..., reviewed_commit: _Optional[str] = ..., dry_run: bool = ..., git_user: _Optional[_Union[GitUser, _Mapping]] = ...) -> None: ...

class ApplyCommitsResponse(_message.Message):
    __slots__ = ("base", "commit", "commits", "commit_count", "left_out", "left_out_count", "refused", "refused_count", "lost_signatures", "branch", "checked_out", "transaction")
    class Applied(_message.Message):
        __slots__ = ("id", "author", "subject", "left_out")
        FROM_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        AUTHOR_FIELD_NUMBER: _ClassVar[int]
        SUBJECT_FIELD_NUMBER: _ClassVar[int]
        LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
        id: str
        author: str
        subject: str
        left_out: bool
        def __init__(self, id: _Optional[str] = ..., author: _Optional[str] = ..., subject: _Optional[str] = ..., left_out: bool = ..., **kwargs) -> None: ...
    class Stopped(_message.Message):
        __slots__ = ("path", "commit", "reason", "conflict")
        PATH_FIELD_NUMBER: _ClassVar[int]
        COMMIT_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        CONFLICT_FIELD_NUMBER: _ClassVar[int]
        path: str
        commit: str
        reason: str
        conflict: bool
        def __init__(self, path: _Optional[str] = ..., commit: _Optional[str] = ..., reason: _Optional[str] = ..., conflict: bool = ...) -> None: ...
    BASE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOST_SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CHECKED_OUT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    base: str
    commit: str
    commits: _containers.RepeatedCompositeFieldContainer[ApplyCommitsResponse.Applied]
    commit_count: int
    left_out: _containers.RepeatedCompositeFieldContainer[ApplyCommitsResponse.Stopped]
    left_out_count: int
    refused: _containers.RepeatedCompositeFieldContainer[ApplyCommitsResponse.Stopped]
    refused_count: int
    lost_signatures: int
    branch: str
    checked_out: bool
    transaction: str
    def __init__(self, base: _Optional[str] = ..., commit: _Optional[str] = ..., commits: _Optional[_Iterable[_Union[ApplyCommitsResponse.Applied, _Mapping]]] = ..., commit_count: _Optional[int] = ..., left_out: _Optional[_Iterable[_Union[ApplyCommitsResponse.Stopped, _Mapping]]] = ..., left_out_count: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[ApplyCommitsResponse.Stopped, _Mapping]]] = ..., refused_count: _Optional[int] = ..., lost_signatures: _Optional[int] = ..., branch: _Optional[str] = ..., checked_out: bool = ..., transaction: _Optional[str] = ...) -> None: ...

class ReadChangesRequest(_message.Message):
    __slots__ = ("sandbox_id", "paths", "reviewed_digest", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    REVIEWED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    reviewed_digest: str
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., reviewed_digest: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...

class ReadChangesResponse(_message.Message):
    __slots__ = ("change", "data")
    class Change(_message.Message):
        __slots__ = ("path", "status", "outcome", "reason", "state")
        PATH_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        OUTCOME_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        path: str
        status: ChangeStatus
        outcome: Outcome
        reason: str
        state: FileState
        def __init__(self, path: _Optional[str] = ..., status: _Optional[_Union[ChangeStatus, str]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., state: _Optional[_Union[FileState, _Mapping]] = ...) -> None: ...
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    change: ReadChangesResponse.Change
    data: bytes
    def __init__(self, change: _Optional[_Union[ReadChangesResponse.Change, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class DiscardRequest(_message.Message):
    __slots__ = ("sandbox_id", "paths", "dry_run", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., dry_run: bool = ..., mount: _Optional[str] = ...) -> None: ...

class DiscardResponse(_message.Message):
    __slots__ = ("paths", "path_count", "written_again")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PATH_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AGAIN_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    path_count: int
    written_again: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ..., path_count: _Optional[int] = ..., written_again: _Optional[_Iterable[str]] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("sandbox_id", "permissions")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    permissions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PermissionRule]
    def __init__(self, sandbox_id: _Optional[str] = ..., permissions: _Optional[_Iterable[_Union[_common_pb2.PermissionRule, _Mapping]]] = ...) -> None: ...

class ExplainPolicyRequest(_message.Message):
    __slots__ = ("sandbox_id", "path", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    path: str
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...

class ExplainPolicyResponse(_message.Message):
    __slots__ = ("permission", "rule", "rule_index", "reason", "traversable", "ancestor", "below_index", "matches")
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    RULE_INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRAVERSABLE_FIELD_NUMBER: _ClassVar[int]
    ANCESTOR_FIELD_NUMBER: _ClassVar[int]
    BELOW_INDEX_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    permission: _common_pb2.Permission
    rule: _common_pb2.PermissionRule
    rule_index: int
    reason: str
    traversable: bool
    ancestor: str
    below_index: int
    matches: _containers.RepeatedCompositeFieldContainer[RuleMatch]
    def __init__(self, permission: _Optional[_Union[_common_pb2.Permission, str]] = ..., rule: _Optional[_Union[_common_pb2.PermissionRule, _Mapping]] = ..., rule_index: _Optional[int] = ..., reason: _Optional[str] = ..., traversable: bool = ..., ancestor: _Optional[str] = ..., below_index: _Optional[int] = ..., matches: _Optional[_Iterable[_Union[RuleMatch, _Mapping]]] = ...) -> None: ...

class RuleMatch(_message.Message):
    __slots__ = ("rule_index", "why")
    RULE_INDEX_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    rule_index: int
    why: str
    def __init__(self, rule_index: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class ListViewRequest(_message.Message):
    __slots__ = ("sandbox_id", "path", "itself", "page_size", "page_token", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ITSELF_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    path: str
    itself: bool
    page_size: int
    page_token: str
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., itself: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...

class ListViewResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ViewEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[ViewEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ViewEntry(_message.Message):
    __slots__ = ("path", "permission", "mode", "size", "modified_at", "origin", "symlink_target")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_AT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SYMLINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    path: str
    permission: _common_pb2.Permission
    mode: int
    size: int
    modified_at: _timestamp_pb2.Timestamp
    origin: ViewOrigin
    symlink_target: str
    def __init__(self, path: _Optional[str] = ..., permission: _Optional[_Union[_common_pb2.Permission, str]] = ..., mode: _Optional[int] = ..., size: _Optional[int] = ..., modified_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., origin: _Optional[_Union[ViewOrigin, str]] = ..., symlink_target: _Optional[str] = ...) -> None: ...

class ReadViewRequest(_message.Message):
    __slots__ = ("sandbox_id", "path", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    path: str
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., mount: _Optional[str] = ...) -> None: ...

class ReadViewResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class WatchViewRequest(_message.Message):
    __slots__ = ("sandbox_id", "path", "recursive", "mount")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    MOUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    path: str
    recursive: bool
    mount: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., recursive: bool = ..., mount: _Optional[str] = ...) -> None: ...

class WatchViewResponse(_message.Message):
    __slots__ = ("changes", "lost")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[FileChange]
    lost: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[FileChange, _Mapping]]] = ..., lost: bool = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("sandbox_id", "follow", "events", "after_seq", "since")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    follow: bool
    events: _containers.RepeatedScalarFieldContainer[str]
    after_seq: int
    since: _timestamp_pb2.Timestamp
    def __init__(self, sandbox_id: _Optional[str] = ..., follow: bool = ..., events: _Optional[_Iterable[str]] = ..., after_seq: _Optional[int] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AuditEvent(_message.Message):
    __slots__ = ("seq", "time", "event", "record")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    seq: int
    time: _timestamp_pb2.Timestamp
    event: str
    record: str
    def __init__(self, seq: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., event: _Optional[str] = ..., record: _Optional[str] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("sandbox_id", "follow")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    follow: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., follow: bool = ...) -> None: ...

class LogRecord(_message.Message):
    __slots__ = ("time", "exec_id", "argv", "continued", "stream", "data", "exit_code", "lost_bytes")
    TIME_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    exec_id: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    continued: bool
    stream: ExecOutput.OutputType
    data: bytes
    exit_code: int
    lost_bytes: int
    def __init__(self, time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., exec_id: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., continued: bool = ..., stream: _Optional[_Union[ExecOutput.OutputType, str]] = ..., data: _Optional[bytes] = ..., exit_code: _Optional[int] = ..., lost_bytes: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class Stats(_message.Message):
    __slots__ = ("memory_bytes", "memory_peak_bytes", "cpu_time", "pids", "delta_bytes", "delta_inodes", "execs", "sessions", "oom_kills", "pids_max_hits", "view_requests")
    class ViewRequestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_TIME_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    DELTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELTA_INODES_FIELD_NUMBER: _ClassVar[int]
    EXECS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLS_FIELD_NUMBER: _ClassVar[int]
    PIDS_MAX_HITS_FIELD_NUMBER: _ClassVar[int]
    VIEW_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    memory_peak_bytes: int
    cpu_time: _duration_pb2.Duration
    pids: int
    delta_bytes: int
    delta_inodes: int
    execs: int
    sessions: int
    oom_kills: int
    pids_max_hits: int
    view_requests: _containers.ScalarMap[str, int]
    def __init__(self, memory_bytes: _Optional[int] = ..., memory_peak_bytes: _Optional[int] = ..., cpu_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., pids: _Optional[int] = ..., delta_bytes: _Optional[int] = ..., delta_inodes: _Optional[int] = ..., execs: _Optional[int] = ..., sessions: _Optional[int] = ..., oom_kills: _Optional[int] = ..., pids_max_hits: _Optional[int] = ..., view_requests: _Optional[_Mapping[str, int]] = ...) -> None: ...
