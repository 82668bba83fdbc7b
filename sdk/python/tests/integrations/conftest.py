"""The frameworks' tracing is off, and only this host can be reached."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGGRAPH_CLI_ANALYTICS"):
    os.environ[name] = "false"
for name in ("OPENAI_AGENTS_DISABLE_TRACING", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ[name] = "1"

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "integrations"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail what connects to, or asks for, another host."""
    strangers = []
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
            strangers.append(address)
            raise OSError(f"{address}: no network in tests")
        connect(self, address)

    def no_names(host: Any, *args: Any, **kwargs: Any) -> Any:
        strangers.append(host)
        raise OSError(f"{host}: no network in tests")

    monkeypatch.setattr(socket.socket, "connect", local_only)
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    yield
    assert strangers == []
