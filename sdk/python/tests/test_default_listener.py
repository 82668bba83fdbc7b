"""Without an endpoint, no client connects to the default port."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

from conftest import LIMIT, root
from test_server import own_home

from agentfense._endpoint import channel_options
from agentfense._server import running

__all__ = ["own_home"]

FIND = """
import asyncio, socket, threading
from agentfense import AsyncSandboxClient, SandboxClient

connected = []

def listen(listener):
    while True:
        peer, _ = listener.accept()
        connected.append(peer)
        peer.close()

async def main():
    with socket.create_server(("127.0.0.1", 9000)) as listener:
        threading.Thread(target=listen, args=(listener,), daemon=True).start()
        with SandboxClient() as client:
            print(client.endpoint)
            print(client.list_codebases())
        async with AsyncSandboxClient() as client:
            print(await client.list_codebases())
            print(client.endpoint)
        print(len(connected))

asyncio.run(main())
"""


def test_no_client_connects_to_the_default_port_unasked(own_home: Path) -> None:
    root()
    # A network namespace of its own: on the host another program may have the port.
    network = ["bwrap", "--unshare-net", "--cap-add", "ALL", "--dev-bind", "/", "/", sys.executable]
    found = subprocess.run([*network, "-c", FIND], capture_output=True, text=True, timeout=LIMIT)
    own = f"unix://{own_home}/server.sock"
    assert found.stdout.splitlines() == [own, "[]", "[]", own, "0"], found.stderr


def test_an_own_server_that_ended_or_moved_is_lost(tmp_path: Path) -> None:
    state = {"pid": 1, "grpc": "127.0.0.1:9000", "tls": False, "token_file": "/t"}
    with open(tmp_path / "server.json", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(state, file)
        file.flush()
        found = running(tmp_path)
        assert found and found.is_there and found.is_there()
        assert ("grpc.enable_retries", 0) in channel_options(found)
        (tmp_path / "server.json").write_text(json.dumps({**state, "grpc": "127.0.0.1:9001"}))
        assert not found.is_there()
        (tmp_path / "server.json").write_text(json.dumps(state))
        assert found.is_there()
    assert not found.is_there()
