"""Terminals, pipes, signals and detached commands, for threads, on a real server.

Each command has a time-out of its own, so that no test waits without a limit.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import pytest
from conftest import on_both, wait_until

from agentfense import (
    CommandTimeoutError,
    ConnectionError,
    DetachedExec,
    ExecEndedError,
    ExecNotFoundError,
    InvalidConfigurationError,
    OutputChunk,
    Sandbox,
    SandboxClient,
    SandboxNotFoundError,
    SandboxNotRunningError,
    _attach,
    _interrupts,
)
from agentfense.attach import AttachedExec

LIMIT = 120
"""Seconds that a command may take; only one of a test that has failed takes so long."""

LOOP = "while :; do sleep 0.05; done"


def until(attached: AttachedExec, text: bytes) -> bytes:
    """Read until the output ends with a text."""
    seen = b""
    while not seen.endswith(text):
        seen += next(attached)
    return seen


def shell(sandbox: Sandbox, script: str, **more: Any) -> AttachedExec:
    return sandbox.attach(["sh", "-c", script], timeout=LIMIT, **more)


def gone(sandbox: Sandbox) -> bool:
    return not sandbox.run("kill -0 $(cat output/pid)").success


# Pipes


@on_both
def test_a_conversation(sandbox: Sandbox) -> None:
    with sandbox.attach(["cat"], timeout=LIMIT) as cat:
        assert cat.exec_id != "" and cat.lost_bytes == 0 and cat.exit_code is None
        for data in ("text ä\n", b"\xff\0\n", "last\n"):
            cat.write(data)
            content = data.encode() if isinstance(data, str) else data
            assert until(cat, b"\n") == content
        cat.write("")
        cat.close_stdin()
        cat.close_stdin()
        assert list(cat) == [] and cat.exit_code == 0
        with pytest.raises(ValueError, match="the input is closed"):
            cat.write("more")


def test_arguments_output_and_exit_code_of_a_program(sandbox: Sandbox) -> None:
    script = 'echo "$A $1"; pwd; read line; echo "$line" >&2; exit 5'
    with sandbox.attach(["sh", "-c", script, "sh", "a b"], env={"A": "1"}, workdir="src", timeout=LIMIT) as attached:
        assert until(attached, b"src\n") == f"1 a b\n{sandbox.info.workspace}/src\n".encode()
        attached.write("line\n")
        assert list(attached.chunks()) == [OutputChunk("stderr", b"line\n")]
        assert attached.exit_code == attached.wait() == 5


def test_much_input_in_little_memory(sandbox: Sandbox) -> None:
    with sandbox.attach(["wc", "-c"], timeout=LIMIT) as count:
        for _ in range(30):
            count.write(b"x" * 1_000_000)
        count.close_stdin()
        assert b"".join(count) == b"30000000\n"


def test_a_command_that_does_not_read_is_ended(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_attach, "WORK", 0.2)
    with (
        sandbox.attach(["sleep", "1000"], timeout=LIMIT) as asleep,
        pytest.raises(CommandTimeoutError, match=r"the command has read nothing for 0\.2 s"),
    ):
        for _ in range(100):
            asleep.write(b"x" * 1_000_000)
    wait_until("the command ends", lambda: sandbox.stats().execs == 0)


def test_a_program_that_cannot_start_ends_as_in_a_shell(sandbox: Sandbox) -> None:
    with sandbox.attach(["no-such-program"]) as attached:
        said = list(attached.chunks())
    assert (said[0].stream, attached.exit_code, attached.exec_id) == ("stderr", 127, "")
    assert b"no-such-program" in said[0].data
    assert sandbox.attach(["/workspace/main.py"]).wait(LIMIT) == 126


# Terminals and signals


@on_both
def test_a_terminal(sandbox: Sandbox) -> None:
    script = f"tty >&2; stty size; trap 'stty size; exit 3' WINCH; echo ready; {LOOP}"
    with shell(sandbox, script, terminal=(24, 80)) as terminal:
        begun = until(terminal, b"ready\r\n")
        assert begun.startswith(b"/dev/pts/") and begun.endswith(b"\r\n24 80\r\nready\r\n")
        terminal.resize(50, 132)
        assert list(terminal.chunks()) == [OutputChunk("stdout", b"50 132\r\n")]
        assert terminal.exit_code == 3


def test_the_keys_of_a_terminal(sandbox: Sandbox) -> None:
    script = f"trap 'echo caught' INT; cat; echo end; stty -echo; {LOOP}"
    with shell(sandbox, script, terminal=(24, 80)) as terminal:
        terminal.write("one\n")
        assert until(terminal, b"one\r\none\r\n") == b"one\r\none\r\n"
        terminal.write("\x04")  # Ctrl-D
        until(terminal, b"end\r\n")
        terminal.write("\x03")  # Ctrl-C
        until(terminal, b"caught\r\n")


@on_both
def test_a_signal_reaches_the_command(sandbox: Sandbox) -> None:
    with shell(sandbox, f"trap 'echo caught; exit 7' INT; echo ready; {LOOP}", terminal=(24, 80)) as attached:
        until(attached, b"ready\r\n")
        attached.signal(signal.SIGINT)
        until(attached, b"caught\r\n")
        assert attached.wait(LIMIT) == 7
    with sandbox.attach(["sleep", "1000"], timeout=LIMIT) as attached:
        attached.signal(signal.SIGTERM)
        assert attached.wait(LIMIT) == 128 + signal.SIGTERM
    assert sandbox.attach(["sleep", "1000"], timeout=LIMIT).kill() == 128 + signal.SIGKILL


# How it ends


@pytest.mark.parametrize("how", ["close", "with", "forget", "client"])
def test_leaving_ends_the_command(sandbox: Sandbox, how: str) -> None:
    threads = set(threading.enumerate())
    other = Sandbox.connect(sandbox.id)
    attached = shell(other, "echo $$ > output/pid; echo started; exec sleep 1000")
    assert next(attached) == b"started\n"
    if how == "close":
        attached.close()
        assert list(attached) == []
        with pytest.raises(ExecEndedError, match="it was closed before its end"):
            attached.wait()
    elif how == "with":
        with attached:
            pass
    elif how == "forget":
        del attached
    else:
        other.client.close()
    wait_until("the command ends", lambda: gone(sandbox))
    other.client.close()
    wait_until("no thread stays", lambda: set(threading.enumerate()) <= threads)


def test_another_thread_may_close_it(sandbox: Sandbox) -> None:
    attached = shell(sandbox, f"echo started; {LOOP}")
    seen: List[bytes] = []
    reader = threading.Thread(target=lambda: seen.extend(attached))
    reader.start()
    wait_until("it has started", lambda: seen == [b"started\n"])
    attached.close()
    reader.join(LIMIT)
    assert not reader.is_alive() and attached.exit_code is None


def test_nothing_can_be_sent_to_a_command_that_has_ended(sandbox: Sandbox) -> None:
    with sandbox.attach(["true"]) as attached:
        assert attached.wait(LIMIT) == 0
        says: List[Callable[[], None]] = [
            lambda: attached.write("x"),
            attached.close_stdin,
            lambda: attached.resize(1, 1),
        ]
        for say in says:
            with pytest.raises(ExecEndedError, match=f"exec {attached.exec_id}: the command has ended") as caught:
                say()
            assert caught.value.exec_id == attached.exec_id
        assert attached.wait() == attached.kill() == 0


def test_timeouts(sandbox: Sandbox) -> None:
    with pytest.raises(CommandTimeoutError, match=r"'sleep 1000': took longer than 0\.3 s"):
        sandbox.attach(["sleep", "1000"], timeout=0.3).wait()
    with pytest.raises(CommandTimeoutError, match=r"'sleep 1000': took longer than 0\.1 s"):
        sandbox.attach(["sleep", "1000"], timeout=LIMIT).wait(0.1)
    wait_until("the commands end", lambda: sandbox.stats().execs == 0)


def test_a_server_that_does_not_answer(client: SandboxClient, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late:
        def __init__(self) -> None:
            self.cancelled = threading.Event()

        def cancel(self) -> None:
            self.cancelled.set()

        def __next__(self) -> None:
            assert self.cancelled.wait(LIMIT)
            raise StopIteration

    monkeypatch.setattr(_attach, "ANSWER", 0.1)
    monkeypatch.setattr(client._connection, "talk", lambda *_: Late())
    with pytest.raises(ConnectionError, match=r"attach: the server at .* does not answer within 0\.1 s"):
        client.attach("sb_0123456789abcdef", ["true"])


def test_invalid_arguments_are_refused(sandbox: Sandbox) -> None:
    cases: List[Tuple[Any, Dict[str, Any], Type[Exception], str]] = [
        ("ls -l", {}, ValueError, "want a list of the program and its arguments"),
        ([], {}, ValueError, "want a list of the program and its arguments"),
        (["\udcff"], {}, ValueError, "which UTF-8 cannot encode"),
        ([""], {}, InvalidConfigurationError, "argv: is required"),
        (["a\0b"], {}, InvalidConfigurationError, "argv: an argument contains a NUL"),
        (["true"], {"workdir": "no/such"}, InvalidConfigurationError, "workdir"),
        (["true"], {"terminal": (24, 65536)}, ValueError, "want rows and columns from 0 to 65535"),
        (["true"], {"timeout": 0}, ValueError, "more than 0 seconds"),
        (["true"], {"env": {"A=": "x"}}, InvalidConfigurationError, "env: "),
    ]
    for argv, more, error, says in cases:
        with pytest.raises(error, match=says):
            sandbox.attach(argv, **more)


def test_invalid_signals_and_sizes_are_refused(sandbox: Sandbox) -> None:
    with sandbox.attach(["cat"], timeout=LIMIT) as cat:
        for number in (0, -1, 65):
            with pytest.raises(ValueError, match=f"signal {number}: want"):
                cat.signal(number)
        with pytest.raises(ValueError, match="want rows and columns from 0 to 65535"):
            cat.resize(-1, 80)
        cat.write("still there\n")
        assert until(cat, b"\n") == b"still there\n"


def test_errors_for_missing_commands(sandbox: Sandbox, client: SandboxClient) -> None:
    with pytest.raises(ExecNotFoundError, match="no such exec") as caught:
        sandbox.resume("nothing")
    assert (caught.value.exec_id, caught.value.grpc_code) == ("nothing", (5, "not found"))
    with pytest.raises(InvalidConfigurationError, match="exec_id: is required"):
        sandbox.resume("")
    with pytest.raises(ValueError, match="want 0 or more"):
        sandbox.resume("x", stderr_offset=-1)
    calls: List[Callable[[str], Any]] = [
        client.list_execs,
        lambda i: client.attach(i, ["true"]),
        lambda i: client.exec_detached(i, "true"),
    ]
    for call in calls:
        with pytest.raises(SandboxNotFoundError):
            call("sb_0123456789abcdef")
    attached = sandbox.attach(["sleep", "1000"], timeout=LIMIT)
    sandbox.stop()
    with pytest.raises(SandboxNotRunningError):
        attached.wait(LIMIT)
    for stopped in (sandbox.execs, lambda: sandbox.attach(["true"]), lambda: sandbox.resume(attached.exec_id)):
        with pytest.raises(SandboxNotRunningError):
            stopped()


# Detached commands


@on_both
def test_another_client_resumes_a_detached_command(sandbox: Sandbox) -> None:
    script = "echo one; echo two >&2; while [ ! -e output/go ]; do sleep 0.05; done; echo three; exit 6"
    exec_id = sandbox.exec_detached(script, timeout=LIMIT)
    with Sandbox.connect(sandbox.id).client as client:
        listed = client.list_execs(sandbox.id)
        assert [(e.exec_id, e.argv, e.session_id, e.exit_code, e.running) for e in listed] == [
            (exec_id, ["/bin/sh", "-c", script], None, None, True)
        ]
        assert isinstance(listed[0], DetachedExec) and listed[0].started_at is not None
        for _ in range(2):  # leaving it changes nothing
            with client.resume(sandbox.id, exec_id) as attached:
                assert attached.exec_id == exec_id
                chunks = attached.chunks()
                assert {next(chunks).stream, next(chunks).stream} == {"stdout", "stderr"}
        with client.resume(sandbox.id, exec_id, stdout_offset=len("one\n"), stderr_offset=len("two\n")) as attached:
            sandbox.write_file("output/go", "")
            assert list(attached.chunks()) == [OutputChunk("stdout", b"three\n")]
            assert attached.exit_code == 6
        assert [e.exit_code for e in client.list_execs(sandbox.id)] == [6]
        with client.resume(sandbox.id, exec_id) as ended:
            assert sorted(b"".join(ended).split()) == [b"one", b"three", b"two"] and ended.exit_code == 6


def test_the_output_of_detached_commands_is_kept_with_the_sandbox(sandbox: Sandbox) -> None:
    exec_id = sandbox.exec_detached("echo one; echo two >&2; exit 6", timeout=LIMIT)
    for _ in range(2):
        records = list(sandbox.logs(follow=True))
        assert {r.exec_id for r in records} == {exec_id}
        assert records[0].argv[:2] == ["/bin/sh", "-c"] and records[0].time is not None
        assert {(r.stream, r.data) for r in records if r.data} == {("stdout", b"one\n"), ("stderr", b"two\n")}
        assert records[-1].exit_code == 6
        if sandbox.refresh().status == "running":
            sandbox.stop()


def test_an_attached_command_may_be_detached(sandbox: Sandbox) -> None:
    with sandbox.attach(["cat"], terminal=(24, 80), timeout=LIMIT, detach=True) as attached:
        attached.write("one\n")
        until(attached, b"one\r\none\r\n")
    with sandbox.resume(attached.exec_id, stdout_offset=5) as again:
        assert until(again, b"one\r\n") == b"one\r\n"
        again.write("two\n")
        until(again, b"two\r\ntwo\r\n")
        again.close_stdin()
        assert again.wait(LIMIT) == 0
    assert [e.exit_code for e in sandbox.execs()] == [0]


def test_a_command_may_leave_its_terminal(sandbox: Sandbox) -> None:
    script = "exec <&- >&- 2>&-; sleep 0.3; echo back >/dev/tty; exit 7"
    with sandbox.attach(["sh", "-c", script], terminal=(24, 80), timeout=LIMIT) as attached:
        assert (b"".join(attached), attached.exit_code) == (b"back\r\n", 7)


def test_output_that_was_dropped(sandbox: Sandbox) -> None:
    exec_id = sandbox.exec_detached("head -c 1000000 /dev/zero", stdin="ignored", timeout=LIMIT)
    wait_until("it ends", lambda: not sandbox.execs()[0].running)
    with sandbox.resume(exec_id) as attached:
        kept = sum(map(len, attached))
    assert kept == 256 << 10 and attached.lost_bytes == 1_000_000 - kept


def test_ending_a_detached_command(sandbox: Sandbox) -> None:
    exec_id = sandbox.exec_detached("echo $$ > output/pid; sleep 1000 & wait", timeout=LIMIT)
    with sandbox.resume(exec_id) as attached:
        assert attached.kill() == 128 + signal.SIGKILL
    assert gone(sandbox) and not sandbox.execs()[0].running
    sandbox.exec_detached("sleep 1000", timeout=0.2)
    wait_until("its time-out ends it", lambda: sandbox.execs()[1].exit_code == 124)
    with pytest.raises(CommandTimeoutError):
        sandbox.resume(sandbox.execs()[1].exec_id).wait(LIMIT)


def test_a_detached_command_of_a_session(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        session.exec("greeting=hello")
        exec_id = session.exec_detached("echo $greeting; exit 3", timeout=LIMIT)
        with sandbox.resume(exec_id) as attached:
            assert b"".join(attached) == b"hello\n"
        listed = sandbox.execs()
        assert [(e.argv, e.session_id) for e in listed] == [(["echo $greeting; exit 3"], session.id)]


class Interrupted(Future):  # type: ignore[type-arg]
    """Strikes whoever waits for it, once, when it has just been made."""

    def result(self, timeout: Optional[float] = None) -> Any:
        made = super().result(LIMIT if timeout is None else timeout)
        if timeout is None:
            raise KeyboardInterrupt
        return made


def test_an_interrupt_during_the_start_leaves_no_command(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would know its name."""
    monkeypatch.setattr(_interrupts, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        sandbox.attach(["sleep", "1000"], timeout=LIMIT, detach=True)
    with pytest.raises(KeyboardInterrupt):
        sandbox.exec_detached("sleep 1000", timeout=LIMIT)
    assert [e.exit_code for e in sandbox.execs()] == [128 + signal.SIGKILL] * 2
