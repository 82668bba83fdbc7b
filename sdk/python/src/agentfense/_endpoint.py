"""The address of a server, the connection's settings and credentials."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import grpc

from ._arguments import string_of
from ._named import read_named
from .exceptions import InvalidConfigurationError

DEFAULT_PORT = "9000"
_MOST_BYTES = 4 << 20
"""The most bytes of a token's file or a file of certificates. The host's whole bundle is smaller."""

_FORMS = "want HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:///PATH"
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True)
class Endpoint:
    """The address of a server, and what is known about the server."""

    text: str
    """The address as a person writes it."""
    target: str
    """The address in gRPC's syntax."""
    secure: bool = False
    """Whether the connection uses TLS."""
    local: bool = False
    """Whether only this host can answer at the address."""
    same_host: bool = False
    """Whether the server is known to see the files of this host: it is your own."""
    found: bool = False
    """Whether the package found the server itself. Such a server may end and have a successor."""
    token_file: Optional[Path] = None
    """The file with the token of your own server."""
    is_there: Optional[Callable[[], bool]] = field(default=None, compare=False)
    """Returns whether the found server still has its port, which another process may take; None means no check."""


def state_directory() -> Optional[Path]:
    """Return agentfense's state directory; None if no variable names it."""
    home = os.environ.get("AGENTFENSE_HOME")
    if home:
        return Path(home).absolute()
    data = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(data):
        return Path(data, "agentfense")
    home = os.environ.get("HOME")
    return Path(home, ".local", "share", "agentfense").absolute() if home else None


def parse_endpoint(text: str, secure: bool = False) -> Endpoint:
    """Parse an address.

    Without a scheme the connection uses TLS if ``secure`` is set, if the environment names a file
    for TLS, or if the address is on another host. Raises InvalidConfigurationError for a malformed
    address, and for a connection to another host without TLS.
    """
    scheme, given, rest = text.partition("://")
    if not given:
        scheme, rest = "", text
    if scheme == "unix":
        if not os.path.isabs(rest) or "\0" in rest:
            raise _invalid(text, "a socket is named by an absolute path, such as unix:///run/agentfense.sock")
        return Endpoint(text, socket_target(rest), local=True)
    if scheme not in ("", "http", "https"):
        raise _invalid(text, _FORMS)
    match = _ADDRESS.fullmatch(rest.rstrip("/"))
    port = (match and match["port"]) or DEFAULT_PORT
    if match is None or int(port) > 65535:
        raise _invalid(text, _FORMS)
    host = match["v6"] or match["host"]
    local = _is_loopback(host)
    tls = scheme == "https" or secure or (scheme == "" and (not local or any(_tls_paths())))
    if not tls and not local:
        raise _invalid(text, "without TLS anybody on the way could read the token: want https://")
    if scheme == "http" and secure:
        raise _invalid(text, "http:// is without TLS, but secure=True asks for TLS: want https://")
    address = f"[{host}]:{port}" if match["v6"] else f"{host}:{port}"
    return Endpoint(text, f"dns:///{address}" if not match["v6"] else f"ipv6:{address}", secure=tls, local=local)


_PLAIN = re.compile(r"[A-Za-z0-9/._ :-]+")
_directories: Dict[str, int] = {}


def socket_target(path: str) -> str:
    """Return the address of a unix socket in gRPC's syntax.

    The kernel allows 107 bytes, and some characters have a meaning in gRPC. Other paths are reached
    by a descriptor of the directory. Raises InvalidConfigurationError if the directory does not
    exist or the socket's name cannot be dialled.
    """
    if _is_dialled(path):
        return f"unix:{path}"
    directory, name = os.path.split(path)
    if not _is_dialled(f"/proc/self/fd/1234567/{name}"):
        why = "the name of a socket has at most 85 characters from A-Z, a-z, 0-9, space and ._:-"
        raise _invalid(f"unix://{path}", why)
    if directory not in _directories:
        try:
            _directories[directory] = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as cause:
            raise _invalid(f"unix://{path}", f"{cause.strerror}") from None
    return f"unix:/proc/self/fd/{_directories[directory]}/{name}"


def _is_dialled(path: str) -> bool:
    return len(path) <= 107 and _PLAIN.fullmatch(path) is not None


def _invalid(text: str, why: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"endpoint {text!r}: {why}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls_paths() -> Tuple[Optional[str], Optional[str], Optional[str]]:
    get = os.environ.get
    return get("AGENTFENSE_TLS_CA"), get("AGENTFENSE_TLS_CERT"), get("AGENTFENSE_TLS_KEY")


def credentials(endpoint: Endpoint) -> Optional[grpc.ChannelCredentials]:
    """Return the credentials for TLS; None without TLS.

    The files are $AGENTFENSE_TLS_CA, $AGENTFENSE_TLS_CERT and $AGENTFENSE_TLS_KEY.
    """
    if not endpoint.secure:
        return None
    ca, cert, key = _tls_paths()
    if bool(cert) != bool(key):
        raise InvalidConfigurationError(
            "a client certificate needs its key: set both AGENTFENSE_TLS_CERT and AGENTFENSE_TLS_KEY"
        )

    def read(path: Optional[str]) -> Optional[bytes]:
        return _read(Path(path)) if path else None

    return grpc.ssl_channel_credentials(read(ca), read(key), read(cert))


def _read(path: Path) -> bytes:
    try:
        content = read_named(path, _MOST_BYTES)
    except OSError as cause:
        raise InvalidConfigurationError(f"{path}: {cause.strerror}") from None
    except ValueError as cause:
        raise InvalidConfigurationError(f"{path}: {cause}") from None
    if len(content) > _MOST_BYTES:
        raise InvalidConfigurationError(f"{path}: longer than {_MOST_BYTES} bytes, the most that is read")
    return content


def find_token(endpoint: Endpoint, token: Optional[str]) -> Optional[str]:
    """Return the token: ``token``, else that of the environment, else that of your own server.

    The last is sent to your own server only, as it allows everything there.
    """
    if token is not None:
        string_of(token, "token")
    token = token or os.environ.get("AGENTFENSE_TOKEN")
    if not token and (file := os.environ.get("AGENTFENSE_TOKEN_FILE")):
        token = _read(Path(file)).decode("ascii", "replace").strip()
    if not token and endpoint.token_file and endpoint.token_file.is_file():
        token = _read(endpoint.token_file).decode("ascii", "replace").strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidConfigurationError("the token is malformed: it has a space or a character that is not ASCII")
    return token or None


def metadata_of(token: Optional[str]) -> List[Tuple[str, str]]:
    """Return the metadata of each call."""
    return [("authorization", f"Bearer {token}")] if token else []


_READS = (
    ("sandbox.v1.SandboxService", ("GetSandbox", "ListSandboxes", "GetSession", "ListSessions", "Diff")),
    ("sandbox.v1.SandboxService", ("ExplainPolicy", "ListExecs", "ListView", "GetStats")),
    ("sandbox.v1.BoardService", ("ListLocks", "GetBoard")),
    ("sandbox.v1.CodebaseService", ("GetCodebase", "ListCodebases", "ListFiles")),
    ("sandbox.v1.HistoryService", ("ListTransactions",)),
    ("grpc.health.v1.Health", ("Check",)),
)

# Only calls that change nothing are repeated.
_SERVICE_CONFIG: Mapping[str, Any] = {
    "methodConfig": [
        {
            "name": [{"service": service, "method": method} for service, methods in _READS for method in methods],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


def channel_options(endpoint: Endpoint) -> List[Tuple[str, Any]]:
    """Return the options of a channel. They detect a dead server within 30 s, also while a call waits."""
    options: List[Tuple[str, Any]] = [
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", 64 << 20),
        ("grpc.max_send_message_length", 64 << 20),
        ("grpc.use_local_subchannel_pool", 1),
        # Your own server ends when no client is connected.
        ("grpc.client_idle_timeout_ms", 2**31 - 1),
        ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ]
    if endpoint.local:
        options.append(("grpc.enable_http_proxy", 0))
    if endpoint.is_there:
        # Repeating a call may reconnect without the check.
        options.append(("grpc.enable_retries", 0))
    return options
