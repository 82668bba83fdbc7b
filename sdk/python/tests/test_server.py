"""Finding a server, and starting one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from conftest import LIMIT, check_clean, processes_of, stop_server, wait_until

from agentfense import (
    AsyncSandbox,
    AsyncSandboxClient,
    ConnectionError,
    InvalidConfigurationError,
    PermissionDeniedError,
    Sandbox,
    SandboxClient,
    SandboxError,
    VersionMismatchError,
    _server,
)


@pytest.fixture
def own_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory without a server."""
    with tempfile.TemporaryDirectory(prefix="af-") as directory:
        own = Path(directory).resolve() / ("deep" * 30)
        monkeypatch.setenv("AGENTFENSE_HOME", str(own))
        yield own
        try:
            if (own / "sandboxes").exists():
                check_clean(own)
        finally:
            stop_server(own)
        assert not processes_of(own)


@pytest.fixture(params=["a,b", "100%", "%41#?"])
def odd_home(own_home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """One whose name has what gRPC takes for its own."""
    odd = own_home.parent / request.param
    monkeypatch.setenv("AGENTFENSE_HOME", str(odd))
    yield odd
    stop_server(odd)


def pid_of(home: Path) -> int:
    return int(json.loads((home / "server.json").read_text())["pid"])


CLIENT = (
    "import sys; from agentfense import SandboxClient\nwith SandboxClient() as c: print(c.endpoint); sys.stdin.read()"
)


def test_processes_share_one_server_that_ends_when_idle(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import agentfense._server as s; s.IDLE_EXIT = '500ms'\n" + CLIENT
    scripts = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {script.stdout.readline() for script in scripts if script.stdout}
    assert said == {f"unix://{own_home}/server.sock\n"}
    server = pid_of(own_home)
    assert processes_of(own_home) and os.path.exists(f"/proc/{server}")
    for script in scripts:
        script.communicate(timeout=60)
    wait_until("the server ends", lambda: not processes_of(own_home))
    left = {path.name for path in own_home.iterdir()}
    assert not left & {"server.json", "server.sock"}


def test_a_server_that_was_killed_is_replaced(own_home: Path, project: Path) -> None:
    with Sandbox.from_local(project) as sb:
        os.kill(pid_of(own_home), signal.SIGKILL)
        with pytest.raises(ConnectionError, match="cannot reach the server at unix://"):
            while True:
                sb.run("true")
        with Sandbox.connect(sb.id) as again:
            assert again.run("echo still here").stdout == "still here\n"
        sb.client.close()
        sb._destroyed = True
        with SandboxClient() as client:
            client.delete_codebase(sb.codebase_id)


@contextmanager
def serving(home: Path, **settings: str) -> Iterator[str]:
    """Run a server by hand, and give its address."""
    home.mkdir(parents=True, mode=0o700)
    environ = {
        **os.environ,
        "AGENTFENSE_SERVER_GRPC_ADDR": "localhost:0",
        "AGENTFENSE_SERVER_HTTP_ADDR": "",
        **settings,
    }
    program = [os.environ["AGENTFENSE_BINARY"], "serve"]
    with subprocess.Popen(program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[1]
        finally:
            server.terminate()


def test_a_server_that_was_started_by_hand_is_found(own_home: Path) -> None:
    with serving(own_home) as address:
        with SandboxClient() as client:
            assert (client.endpoint, client.same_host) == (address, True)
        for name in (address, f"http://localhost:{address.split(':')[1]}"):
            with SandboxClient(name) as client:
                assert client.same_host and client.list_codebases() == []


def test_tls(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {key} -out {cert}",
        shell=True,
        check=True,
        capture_output=True,
        timeout=60,
    )
    with serving(own_home, AGENTFENSE_SERVER_TLS_CERT=str(cert), AGENTFENSE_SERVER_TLS_KEY=str(key)) as address:
        endpoint = f"https://localhost:{address.split(':')[1]}"
        with pytest.raises(ConnectionError), SandboxClient(endpoint) as client:
            client.list_codebases()
        monkeypatch.setenv("AGENTFENSE_TLS_CA", str(cert))
        with SandboxClient(endpoint) as client:
            assert client.list_codebases() == []
        with SandboxClient(endpoint.replace("https://", ""), secure=True) as client:
            assert client.list_codebases() == []


def test_the_variable_precedes_the_installed_program(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("AGENTFENSE_ENDPOINT", address)
        with (
            SandboxClient() as client,
            pytest.raises(ConnectionError, match="is `agentfense serve` running there") as caught,
        ):
            client.list_codebases()
        assert caught.value.endpoint == address


async def test_a_dead_server_for_an_event_loop(home: Path) -> None:
    async with AsyncSandboxClient("unix:///nowhere/af.sock") as client:
        with pytest.raises(ConnectionError):
            await client.list_codebases()
        with pytest.raises(ConnectionError):
            _ = [data async for data in client.exec_stream("sb_0123456789abcdef", "true")]


async def test_a_server_that_never_answers(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfense._connection.GREET", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        says = f"the server at {address} did not answer in time"
        with SandboxClient(address) as client, pytest.raises(ConnectionError, match=says):
            client.exec("sb_0123456789abcdef", "true")
        with pytest.raises(ConnectionError, match=says):
            Sandbox.from_local(project, endpoint=address)
        async with AsyncSandboxClient(address) as other:
            with pytest.raises(ConnectionError, match=says):
                await other.exec("sb_0123456789abcdef", "true")


async def test_an_own_server_that_never_answers(own_home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"CONNECT": 0.2, "READY": 0.1, "GREET": 0.2}.items():
        monkeypatch.setattr(f"agentfense._connection.{name}", seconds)
    with SandboxClient():
        server = pid_of(own_home)
        os.kill(server, signal.SIGSTOP)
        try:
            # The kernel takes connections for it.
            says = f"the server at unix://{own_home}/server.sock (within|did not answer in time)"
            with pytest.raises(ConnectionError, match=says):
                Sandbox.from_local(project)
            with pytest.raises(ConnectionError, match=says):
                await AsyncSandbox.from_local(project)
        finally:
            os.kill(server, signal.SIGCONT)


async def test_a_server_that_dies_during_a_call(own_home: Path, project: Path) -> None:
    sandbox = Sandbox.from_local(project, preset="full-access")
    failed: List[SandboxError] = []
    command = "echo $$ >> output/pids; echo started; exec sleep 1000"

    def note(call: Callable[[], object]) -> None:
        with pytest.raises(SandboxError) as caught:
            call()
        failed.append(caught.value)

    stream = sandbox.exec_stream(command, timeout=600)
    calls = [lambda: sandbox.run(command, timeout=600), lambda: list(stream), lambda: list(sandbox.audit(follow=True))]
    threads = [threading.Thread(target=note, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    again = await AsyncSandbox.connect(sandbox.id)
    waiting = asyncio.ensure_future(again.run(command, timeout=600))
    while (await again.run("wc -l < output/pids")).stdout != "3\n":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    os.kill(pid_of(own_home), signal.SIGKILL)
    with pytest.raises(ConnectionError, match="is `agentfense serve` running there"):
        await asyncio.wait_for(waiting, LIMIT)
    for thread in threads:
        thread.join(LIMIT)
    assert [type(error) for error in failed] == [ConnectionError] * 3
    await again.client.close()
    sandbox.client.close()
    # The next server has it, without the commands that nobody waits for any more.
    with Sandbox.connect(sandbox.id) as found:
        wait_until(
            "they end", lambda: not found.run("for p in $(cat output/pids); do kill -0 $p && echo $p; done").stdout
        )
        found.destroy(delete_codebase=True)


def test_a_wrong_token(home: Path, client: SandboxClient) -> None:
    with (
        SandboxClient(token="afs_" + "0" * 64) as other,
        pytest.raises(PermissionDeniedError, match="AGENTFENSE_TOKEN"),
    ):
        other.list_codebases()


def test_no_program_is_found(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFENSE_BINARY", "/nowhere/agentfense")
    with pytest.raises(InvalidConfigurationError, match="AGENTFENSE_BINARY '/nowhere/agentfense': no such program"):
        SandboxClient()
    monkeypatch.delenv("AGENTFENSE_BINARY")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidConfigurationError, match="install agentfense, or name the program"):
        SandboxClient()
    (tmp_path / "agentfense").symlink_to("/bin/true")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    with pytest.raises(InvalidConfigurationError, match="install agentfense, or name the program"):
        SandboxClient()
    assert not own_home.exists()


@pytest.mark.parametrize(
    ("script", "raised", "says"),
    [
        ("echo 'agentfense: no bwrap' >&2; exit 125", ConnectionError, "serve: agentfense: no bwrap"),
        ("exit 3", ConnectionError, "serve: its log is empty: exit status 3"),
        ("kill -9 $$", ConnectionError, "serve: its log is empty: killed by signal 9"),
        ("echo bye >&2; kill -9 $$", ConnectionError, "serve: bye: killed by signal 9"),
        (
            "echo bye >&2; echo grpc x; kill -9 $$",
            (ConnectionError, VersionMismatchError),
            "bye|its server does not say",
        ),
        (
            "echo 'agentfense: unknown flag: --idle-exit (see `agentfense serve --help`)' >&2; exit 2",
            VersionMismatchError,
            "agentfense is older than this package: agentfense: unknown flag: --idle-exit .*: upgrade it, or name",
        ),
        ("echo grpc x; exec sleep 1000", VersionMismatchError, "its server does not say where it is: upgrade it"),
        ("trap '' TERM; echo grpc x; while :; do sleep 0.1; done", VersionMismatchError, "upgrade it"),
    ],
)
def test_a_program_that_does_not_serve(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, raised: Any, says: str
) -> None:
    monkeypatch.setattr(_server, "END_LIMIT", 0.2)
    program = tmp_path / "agentfense"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("AGENTFENSE_BINARY", str(program))
    before = threading.active_count()
    with pytest.raises(raised, match=says):
        SandboxClient()
    wait_until("no thread waits for it", lambda: threading.active_count() <= before)


def test_an_impossible_state_directory(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFENSE_HOME", "/dev/null/home")
    with pytest.raises(InvalidConfigurationError, match="state directory /dev/null/home: Not a directory"):
        SandboxClient()
    for name in ("AGENTFENSE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidConfigurationError, match="no state directory"):
        SandboxClient()


def test_a_state_directory_with_an_odd_name(odd_home: Path, project: Path) -> None:
    with Sandbox.from_local(project) as sb:
        assert sb.run("echo ran").stdout == "ran\n"
    with SandboxClient(f"unix://{odd_home}/server.sock") as client:  # it is met again by its name
        assert client.same_host and client.list_sandboxes() == []


def test_a_state_directory_whose_name_is_not_utf8(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFENSE_HOME", f"{own_home}\udcff")
    with pytest.raises(
        InvalidConfigurationError, match=r"^state directory '.*\\udcff': is not UTF-8: set AGENTFENSE_HOME"
    ):
        SandboxClient()
    assert not own_home.parent.exists() or not list(own_home.parent.iterdir())


@pytest.mark.parametrize("name", ["start.lock", "server.log"])
def test_a_state_directory_that_cannot_be_written_to(own_home: Path, name: str) -> None:
    (own_home / name).mkdir(parents=True)  # root may write to whatever is no directory
    says = "^state directory /.*: Is a directory: set AGENTFENSE_HOME$"
    with pytest.raises(InvalidConfigurationError, match=says):
        SandboxClient()


def test_an_impossible_temporary_directory(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(
        InvalidConfigurationError, match=r"^temporary directory: No such file or directory: set TMPDIR$"
    ):
        SandboxClient()


def test_a_server_file_that_is_not_locked(own_home: Path) -> None:
    own_home.mkdir(parents=True)
    assert _server.running(own_home) is None
    (own_home / "server.json").write_text(json.dumps({"grpc": "127.0.0.1:1", "token_file": "/x", "tls": False}))
    assert _server.running(own_home) is None
    (own_home / "server.json").unlink()
