"""Whose listener on localhost:9000 is believed."""

from __future__ import annotations

import array
import fcntl
import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest
from conftest import LIMIT, need, root
from test_server import own_home

from agentfense._endpoint import channel_options
from agentfense._server import running
from agentfense._usual import Doubt, find_usual

__all__ = ["own_home"]

LISTEN = """
import os, socket, sys
{become}
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@contextmanager
def listening(become: str = "") -> Iterator[int]:
    """Run a process that becomes somebody and listens, and give its port."""
    program = [sys.executable, "-c", LISTEN.format(become=become)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::ffff:0.0.0.0", "127.0.0.1"),
        ("::1", "[::1]"),
        ("127.0.0.2", None),
    ],
)
def test_a_listener_of_our_own_is_trusted(address: str, reached: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        if ":" in address:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            listener.bind((address, 0))
        except OSError as cause:
            need("an address of IPv6", str(cause))
        port = listener.getsockname()[1]
        assert find_usual(port) is None
        listener.listen()
        assert find_usual(port) == (reached and f"{reached}:{port}")


def test_a_listener_of_somebody_else_is_not(tmp_path: Path) -> None:
    root()
    with listening() as port:
        assert find_usual(port) == f"127.0.0.1:{port}"
    with (
        listening("os.setuid(65534)") as port,
        pytest.raises(Doubt, match=r"^127\.0\.0\.1:\d+ is in doubt: user 65534 listens there$"),
    ):
        find_usual(port)
    with (
        listening(f"os.chroot({str(tmp_path)!r})") as port,
        pytest.raises(Doubt, match="another root, as in a sandbox"),
    ):
        find_usual(port)


def test_a_listener_without_a_process_is_not() -> None:
    """Its socket is on the way from one process to another."""
    near, far = socket.socketpair()
    with near, far:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            sent = array.array("i", [listener.fileno()])
            near.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
        with pytest.raises(Doubt, match="which process"):
            find_usual(port)


def test_nobody_is_trusted_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: Path, **_: object) -> str:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "read_text", absent)
    with pytest.raises(Doubt, match=r"cannot be told who listens there: .*/net/tcp'$"):
        find_usual(9000)


WELL = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import grpc
os.setuid(int(sys.argv[1]))
handlers = {"Check": grpc.unary_unary_rpc_method_handler(lambda request, context: b"\\x08\\x01")}
server = grpc.server(ThreadPoolExecutor())
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)])
server.add_insecure_port("127.0.0.1:9000")
server.start()
print("ready", flush=True)
sys.stdin.read()
server.stop(0).wait()
"""
"""A server that is well and can nothing."""

FIND = """
import asyncio, subprocess, sys
from agentfense import AsyncSandboxClient, SandboxClient, SandboxError

async def main():
    threads = loop = None
    for uid in ("0", "65534"):
        program = [sys.executable, "-c", sys.argv[1], uid]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            with SandboxClient() as client:
                print(client.endpoint)
            threads, loop = threads or SandboxClient(), loop or AsyncSandboxClient()
            try:
                threads.list_codebases()
            except SandboxError as error:
                print(type(error).__name__, error)
            try:
                await loop.list_codebases()
            except SandboxError as error:
                print(type(error).__name__, error)
            process.stdin.close()
    threads.close()
    await loop.close()

asyncio.run(main())
"""


def test_what_is_not_trusted_is_passed_over(own_home: Path) -> None:
    root()
    # A network of its own: the port may be anybody's.
    network = ["bwrap", "--unshare-net", "--cap-add", "ALL", "--dev-bind", "/", "/", sys.executable]
    found = subprocess.run([*network, "-c", FIND, WELL], capture_output=True, timeout=LIMIT)
    first, *earlier, second, threads, loop = found.stdout.decode().splitlines()
    assert (first, second) == ("127.0.0.1:9000", f"unix://{own_home}/server.sock")
    assert [said.split()[0] for said in earlier] == ["VersionMismatchError"] * 2
    # Those that were there when the port changed hands ask nobody.
    lost = "ConnectionError the server at 127.0.0.1:9000 was lost, and who has its port now may be somebody else"
    assert threads == loop == f"{lost}: make a new client"
    warning = found.stderr.decode()
    assert "localhost:9000: not asked, for 127.0.0.1:9000 is in doubt: user 65534 listens there" in warning
    assert "only if you trust a listener there, name it by its address, 127.0.0.1:9000 or [::1]:9000" in warning


def test_a_server_of_our_own_that_has_ended_or_is_elsewhere_is_lost(tmp_path: Path) -> None:
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
