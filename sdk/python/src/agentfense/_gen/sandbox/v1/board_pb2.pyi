from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from agentfense._gen.sandbox.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LockPathsRequest(_message.Message):
    __slots__ = ("sandbox_id", "paths", "advisory", "lock_for", "wait")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    ADVISORY_FIELD_NUMBER: _ClassVar[int]
    LOCK_FOR_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    advisory: bool
    lock_for: _duration_pb2.Duration
    wait: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., advisory: bool = ..., lock_for: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class UnlockPathsRequest(_message.Message):
    __slots__ = ("sandbox_id", "paths", "all")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., all: bool = ...) -> None: ...

class ListLocksRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class ListLocksResponse(_message.Message):
    __slots__ = ("locks",)
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[PathLock]
    def __init__(self, locks: _Optional[_Iterable[_Union[PathLock, _Mapping]]] = ...) -> None: ...

class PathLock(_message.Message):
    __slots__ = ("sandbox", "path", "own", "advisory", "waits", "since", "until")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    ADVISORY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    path: str
    own: bool
    advisory: bool
    waits: bool
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, sandbox: _Optional[str] = ..., path: _Optional[str] = ..., own: bool = ..., advisory: bool = ..., waits: bool = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PostMessageRequest(_message.Message):
    __slots__ = ("sandbox_id", "topic", "text", "as_agent")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AS_AGENT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    topic: str
    text: str
    as_agent: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., topic: _Optional[str] = ..., text: _Optional[str] = ..., as_agent: bool = ...) -> None: ...

class PostMessageResponse(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class ReadMessagesRequest(_message.Message):
    __slots__ = ("sandbox_id", "after", "topic", "limit", "wait")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    after: int
    topic: str
    limit: int
    wait: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., after: _Optional[int] = ..., topic: _Optional[str] = ..., limit: _Optional[int] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReadMessagesResponse(_message.Message):
    __slots__ = ("messages", "next", "lost")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[BoardMessage]
    next: int
    lost: int
    def __init__(self, messages: _Optional[_Iterable[_Union[BoardMessage, _Mapping]]] = ..., next: _Optional[int] = ..., lost: _Optional[int] = ...) -> None: ...

class BoardMessage(_message.Message):
    __slots__ = ("seq", "time", "sandbox", "sandbox_id", "by", "topic", "text")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    time: _timestamp_pb2.Timestamp
    sandbox: str
    sandbox_id: str
    by: str
    topic: str
    text: str
    def __init__(self, seq: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., sandbox: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., by: _Optional[str] = ..., topic: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class WatchMessagesRequest(_message.Message):
    __slots__ = ("sandbox_id", "after", "topic")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    after: int
    topic: str
    def __init__(self, sandbox_id: _Optional[str] = ..., after: _Optional[int] = ..., topic: _Optional[str] = ...) -> None: ...

class GetBoardRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class Board(_message.Message):
    __slots__ = ("members", "topics")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[BoardMember]
    topics: _containers.RepeatedCompositeFieldContainer[BoardTopic]
    def __init__(self, members: _Optional[_Iterable[_Union[BoardMember, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[BoardTopic, _Mapping]]] = ...) -> None: ...

class BoardMember(_message.Message):
    __slots__ = ("sandbox", "sandbox_id", "status")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    sandbox_id: str
    status: BoardMessage
    def __init__(self, sandbox: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., status: _Optional[_Union[BoardMessage, _Mapping]] = ...) -> None: ...

class BoardTopic(_message.Message):
    __slots__ = ("topic", "messages", "last")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: int
    last: BoardMessage
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[int] = ..., last: _Optional[_Union[BoardMessage, _Mapping]] = ...) -> None: ...
