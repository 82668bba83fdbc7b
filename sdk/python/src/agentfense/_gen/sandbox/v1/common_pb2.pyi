from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Permission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERMISSION_UNSPECIFIED: _ClassVar[Permission]
    PERMISSION_NONE: _ClassVar[Permission]
    PERMISSION_VIEW: _ClassVar[Permission]
    PERMISSION_READ: _ClassVar[Permission]
    PERMISSION_WRITE: _ClassVar[Permission]

class PatternType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PATTERN_TYPE_UNSPECIFIED: _ClassVar[PatternType]
    PATTERN_TYPE_GLOB: _ClassVar[PatternType]
    PATTERN_TYPE_DIRECTORY: _ClassVar[PatternType]
    PATTERN_TYPE_FILE: _ClassVar[PatternType]
    PATTERN_TYPE_AUTO: _ClassVar[PatternType]

class RuleOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_ORIGIN_UNSPECIFIED: _ClassVar[RuleOrigin]
    RULE_ORIGIN_FLAG: _ClassVar[RuleOrigin]
    RULE_ORIGIN_HIDE: _ClassVar[RuleOrigin]

class RedactFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REDACT_FORMAT_UNSPECIFIED: _ClassVar[RedactFormat]
    REDACT_FORMAT_ENV: _ClassVar[RedactFormat]
    REDACT_FORMAT_JSON: _ClassVar[RedactFormat]
    REDACT_FORMAT_YAML: _ClassVar[RedactFormat]
    REDACT_FORMAT_TOML: _ClassVar[RedactFormat]

class SandboxStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SANDBOX_STATUS_UNSPECIFIED: _ClassVar[SandboxStatus]
    SANDBOX_STATUS_PENDING: _ClassVar[SandboxStatus]
    SANDBOX_STATUS_RUNNING: _ClassVar[SandboxStatus]
    SANDBOX_STATUS_STOPPED: _ClassVar[SandboxStatus]
    SANDBOX_STATUS_ERROR: _ClassVar[SandboxStatus]

class SessionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATUS_UNSPECIFIED: _ClassVar[SessionStatus]
    SESSION_STATUS_ACTIVE: _ClassVar[SessionStatus]
    SESSION_STATUS_CLOSED: _ClassVar[SessionStatus]
PERMISSION_UNSPECIFIED: Permission
PERMISSION_NONE: Permission
PERMISSION_VIEW: Permission
PERMISSION_READ: Permission
PERMISSION_WRITE: Permission
PATTERN_TYPE_UNSPECIFIED: PatternType
PATTERN_TYPE_GLOB: PatternType
PATTERN_TYPE_DIRECTORY: PatternType
PATTERN_TYPE_FILE: PatternType
PATTERN_TYPE_AUTO: PatternType
RULE_ORIGIN_UNSPECIFIED: RuleOrigin
RULE_ORIGIN_FLAG: RuleOrigin
RULE_ORIGIN_HIDE: RuleOrigin
REDACT_FORMAT_UNSPECIFIED: RedactFormat
REDACT_FORMAT_ENV: RedactFormat
REDACT_FORMAT_JSON: RedactFormat
REDACT_FORMAT_YAML: RedactFormat
REDACT_FORMAT_TOML: RedactFormat
SANDBOX_STATUS_UNSPECIFIED: SandboxStatus
SANDBOX_STATUS_PENDING: SandboxStatus
SANDBOX_STATUS_RUNNING: SandboxStatus
SANDBOX_STATUS_STOPPED: SandboxStatus
SANDBOX_STATUS_ERROR: SandboxStatus
SESSION_STATUS_UNSPECIFIED: SessionStatus
SESSION_STATUS_ACTIVE: SessionStatus
SESSION_STATUS_CLOSED: SessionStatus

class Empty(_message.Message):
    __slots__ = ("discarded_count",)
    DISCARDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    discarded_count: int
    def __init__(self, discarded_count: _Optional[int] = ...) -> None: ...

class PermissionRule(_message.Message):
    __slots__ = ("pattern", "type", "permission", "priority", "origin", "own", "redact", "substitute", "keep", "keep_keys")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    REDACT_FIELD_NUMBER: _ClassVar[int]
    SUBSTITUTE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    KEEP_KEYS_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    type: PatternType
    permission: Permission
    priority: int
    origin: RuleOrigin
    own: bool
    redact: RedactFormat
    substitute: str
    keep: bool
    keep_keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pattern: _Optional[str] = ..., type: _Optional[_Union[PatternType, str]] = ..., permission: _Optional[_Union[Permission, str]] = ..., priority: _Optional[int] = ..., origin: _Optional[_Union[RuleOrigin, str]] = ..., own: bool = ..., redact: _Optional[_Union[RedactFormat, str]] = ..., substitute: _Optional[str] = ..., keep: bool = ..., keep_keys: _Optional[_Iterable[str]] = ...) -> None: ...
