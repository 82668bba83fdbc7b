"""The executor of smolagents: its interface, hostile answers, and the real agent loop with a scripted model."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest
from smolagents import CodeAgent, FinalAnswerTool, Model, Tool, tool
from smolagents.local_python_executor import InterpreterError
from smolagents.models import ChatMessage, MessageRole
from smolagents_agent import work
from waiting import wait_until

from agentfense import FileDiff, InvalidConfigurationError, Sandbox, SandboxNotFoundError
from agentfense.integrations.smolagents import SandboxExecutor

WAIT = 30.0


class Scripted(Model):
    """Says what it was told to say, and keeps what it heard."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="scripted")
        self.codes = list(codes)
        self.heard = ""

    def generate(
        self,
        messages: List[ChatMessage],
        stop_sequences: Optional[List[str]] = None,
        response_format: Optional[Dict[str, str]] = None,
        tools_to_call_from: Optional[List[Tool]] = None,
        **kwargs: Any,
    ) -> ChatMessage:
        parts = [part for message in messages for part in message.content or [] if isinstance(part, dict)]
        self.heard = "\n".join(part["text"] for part in parts)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.codes.pop(0)}\n</code>")


@pytest.fixture
def sandbox(home: Path, project: Path) -> Iterator[Sandbox]:
    with Sandbox.from_local(project, preset="development") as sandbox:
        yield sandbox


@pytest.fixture
def executor(sandbox: Sandbox) -> Iterator[SandboxExecutor]:
    with SandboxExecutor(sandbox, timeout=WAIT, max_output_bytes=10_000, max_answer_bytes=100_000) as executor:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        yield executor


def test_an_agent_reads_is_refused_changes_and_a_person_applies(home: Path, project: Path) -> None:
    model = Scripted(
        "text = open('main.py').read()\nprint(text)",
        "open('.env')",
        "import os\nprint(os.listdir('.'))",
        "open('main.py', 'w').write(text.replace('hello', 'better'))\nimport subprocess\n"
        "print(subprocess.run(['python3', 'main.py'], capture_output=True, text=True).stdout)",
        "final_answer({'done': [1, 2.5, 'ü', None]})",
    )
    seen: List[FileDiff] = []

    def approve(changes: List[FileDiff]) -> bool:
        assert (project / "main.py").read_text() == "print('hello')\n"
        seen.extend(changes)
        return True

    assert work(model, str(project), "improve it", approve) == {"done": [1, 2.5, "ü", None]}
    assert "print('hello')" in model.heard and "better" in model.heard
    assert "FileNotFoundError: [Errno 2] No such file or directory: '.env'" in model.heard
    assert "'.env'," not in model.heard
    assert [change.path for change in seen] == ["main.py"] and "+print('better')" in seen[0].patch
    assert (project / "main.py").read_text() == "print('better')\n"


def test_variables_stay_and_the_last_expression_is_the_value(executor: SandboxExecutor) -> None:
    assert executor("x = 20\ndef double(n): return 2 * n").output is None
    output = executor("print('ü')\ndouble(x) + 2")
    assert (output.output, output.logs, output.is_final_answer) == (42, "ü\n", False)


def test_output_of_code_and_its_children_is_kept(executor: SandboxExecutor) -> None:
    output = executor(
        "import os, sys\nprint(1)\nos.system('echo 2; echo 3 >&2')\nsys.stderr.write('4\\n')\nos.write(1, b'\\xff')"
    )
    assert output.logs == "1\n2\n3\n4\n\ufffd"


def test_a_long_output_and_value_are_cut(executor: SandboxExecutor) -> None:
    output = executor("print('x' * 3_000_000)\n'y' * 3_000_000")
    assert output.logs == "x" * 10_000 + "\n[the output was longer]"
    assert len(output.output) < 100_000 and output.output.endswith("y\n[the value was longer]")
    assert executor("1").output == 1


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("final_answer('text')", "text"),
        ("final_answer(answer=(1, [True, None]))", [1, [True, None]]),
        ("final_answer({'a': {'b': 1.5}})", {"a": {"b": 1.5}}),
        ("final_answer({1: 2})", "{1: 2}"),
        ("final_answer({3})", "{3}"),
        ("final_answer(b'x')", "b'x'"),
        ("final_answer(float('nan'))", "nan"),
        ("final_answer(10 ** 5000)", "<int: ValueError>"),
        ("final_answer('\\ud800')", "?"),
        ("a = []\na.append(a)\nfinal_answer(a)", "[[...]]"),
        ("try:\n    final_answer(1)\nexcept Exception:\n    pass", 1),
    ],
)
def test_a_final_answer_is_json_or_text(executor: SandboxExecutor, code: str, want: Any) -> None:
    output = executor(code)
    assert (output.output, output.is_final_answer) == (want, True)


def test_an_object_comes_back_as_text_and_nothing_is_unpickled(executor: SandboxExecutor, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    code = (
        "class Evil:\n"
        f"    def __reduce__(self): return (open, ({str(marker)!r}, 'w'))\n"
        "    def __str__(self): return 'evil'\n"
        "final_answer(Evil())"
    )
    assert executor(code).output == "evil"
    assert executor("class Mute:\n    def __str__(self): 1 / 0\nMute()").output == "<Mute: ZeroDivisionError>"
    assert not marker.exists()


def failing(executor: SandboxExecutor, code: str) -> str:
    with pytest.raises(InterpreterError) as raised:
        executor(code)
    return str(raised.value)


def test_an_error_has_its_traceback_and_what_was_printed(executor: SandboxExecutor) -> None:
    said = failing(executor, "print('before')\nx = 1\n\n1 / 0")
    assert "line 4" in said and "1 / 0" in said and said.endswith("ZeroDivisionError: division by zero\n")
    assert "_guest" not in said and 'File "<string>"' not in said
    assert executor.state["_print_outputs"] == "before\n"
    assert "SyntaxError" in failing(executor, "1 +") and "RecursionError" in failing(executor, "def f(): f()\nf()")
    assert "SystemExit" in failing(executor, "raise SystemExit(3)")
    assert executor("x").output == 1


def test_a_step_that_takes_too_long_is_interrupted_and_keeps_its_variables(sandbox: Sandbox) -> None:
    with SandboxExecutor(sandbox, timeout=WAIT) as executor:
        executor("x = 7")
        executor._timeout = 1
        said = failing(executor, "import time\nprint('begun')\ntime.sleep(3001)")
        assert "KeyboardInterrupt" in said and "took longer than 1 s" in said and "variables are kept" in said
        assert executor.state["_print_outputs"] == "begun\n"
        executor._timeout = WAIT
        assert executor("x").output == 7


def test_a_step_that_does_not_stop_ends_the_interpreter(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfense.integrations._interpreter.GRACE", 0.5)
    with SandboxExecutor(sandbox, timeout=WAIT) as executor:
        executor.send_variables({"given": 1})
        executor("x = 7")
        code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(3002)"
        executor._timeout = 1
        said = failing(executor, code)
        executor._timeout = WAIT
        assert "took longer than 1 s" in said and "variables are lost" in said
        assert "NameError" in failing(executor, "x")
        assert executor("given").output == 1


def test_an_interpreter_that_does_not_read_is_ended(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfense.integrations._interpreter.GRACE", 0.5)
    began = time.monotonic()
    with SandboxExecutor(sandbox, timeout=WAIT) as executor:
        pid = executor("import os\nos.getpid()").output
        sandbox.run(f"kill -STOP {pid}", raise_on_error=True)
        executor._timeout = 1
        with pytest.raises(InvalidConfigurationError, match=r"longer than 1 s.*variables are lost"):
            executor.send_variables({"more than fits on the way": "x" * (32 << 20)})
    assert time.monotonic() - began < 60, "the signal waited behind the input, for 10 minutes"


def test_an_interpreter_that_died_is_replaced(executor: SandboxExecutor) -> None:
    executor("x = 7")
    assert "exit code 9; its variables are lost" in failing(executor, "print('last')\nimport os\nos._exit(9)")
    assert executor.state["_print_outputs"] == "last\n"
    assert "NameError" in failing(executor, "x")
    assert executor("final_answer(1)").is_final_answer
    assert "exit code 137" in failing(executor, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")


FORGE = (
    "import gc, io, json, time\n"
    "out = next(o for o in gc.get_objects() if isinstance(o, io.BufferedWriter) and o.name not in (1, 2))\n"
)


@pytest.mark.parametrize(
    ("forged", "want"),
    [
        ("b'no json\\n'", "no JSON"),
        ("b'[' * 50_000 + b'\\n'", "more than 100 lists"),
        ("b'[' * 102 + b'1' + b']' * 102 + b'\\n'", "more than 100 lists"),
        ("b'[\"' + b'{\"a\": [' * 102 + b'\\n'", "no JSON"),
        ("('\\u2200' + '[' * 50_000).encode('utf-16-le') + b'\\n'", "no JSON"),
        ("b'{\"id\": ' + b'9' * 50_000 + b'}\\n'", "no JSON"),
        ("b'x' * 200_000", "larger than"),
        ("b'x' * 200_000 + b'\\n'", "larger than"),
    ],
)
def test_a_forged_answer_ends_the_interpreter(executor: SandboxExecutor, forged: str, want: str) -> None:
    said = failing(executor, f"{FORGE}out.write({forged})\nout.flush()\ntime.sleep(3003)")
    assert want in said and "variables are lost" in said
    assert executor("1").output == 1


def nested(depth: int) -> List[Any]:
    value: List[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_a_value_that_is_too_deep_is_text(executor: SandboxExecutor) -> None:
    code = "value = []\nfor _ in range({}): value = [value]\nfinal_answer(value)"
    assert executor(code.format(99)).output == nested(100)
    assert executor(code.format(100)).output == str(nested(101))
    assert executor("{'\\\\\"[': '[' * 200}").output == {'\\"[': "[" * 200}


def test_an_answer_to_another_step_is_ignored(executor: SandboxExecutor) -> None:
    forged = [[], 1, {"id": "0" * 32, "kind": "final", "json": "forged"}, {"id": None}, {"kind": "final", "json": 1}]
    writes = "".join(f"out.write({(json.dumps(answer) + chr(10)).encode()!r})\n" for answer in forged)
    assert executor(f"{FORGE}{writes}out.flush()\n5").output == 5
    assert executor("6").output == 6


def test_a_workspace_cannot_replace_modules_of_the_interpreter(sandbox: Sandbox) -> None:
    sandbox.run("echo 'raise SystemExit(1)' > json.py; cp json.py ast.py; echo 'y = 5' > mine.py")
    with SandboxExecutor(sandbox, timeout=WAIT) as executor:
        assert executor("import mine\nmine.y").output == 5


class Shout(Tool):
    name = "shout"
    description = "Shouts."
    inputs = {"text": {"type": "string", "description": "What to shout."}}  # noqa: RUF012
    output_type = "string"

    def forward(self, text: str) -> str:
        import os

        return f"{text.upper()} in {os.getcwd()}"


@tool
def host_name(prefix: str) -> str:
    """Tell where it runs.

    Args:
        prefix: Stands before.
    """
    import os

    return prefix + str(os.path.exists("/workspace"))


def test_tools_are_sent_and_run_in_the_sandbox(home: Path, project: Path, sandbox: Sandbox) -> None:
    model = Scripted("print(shout(text='hi'), host_name('yes: '))", "final_answer(given['n'] + 1)")
    with SandboxExecutor(sandbox) as executor:
        agent = CodeAgent(tools=[Shout(), host_name], model=model, executor=executor)
        assert agent.run("shout", additional_args={"given": {"n": 4}}) == 5
        assert f"HI in {project} yes: True" in model.heard
        model.codes = ["final_answer(given['n'] + 2)"]
        assert agent.run("again", additional_args={"given": {"n": 5}}) == 7


class Needy(Shout):
    def forward(self, text: str) -> str:
        import nosuchpackage  # type: ignore[import-not-found]

        return str(nosuchpackage)


def test_objects_that_cannot_be_sent(executor: SandboxExecutor, sandbox: Sandbox) -> None:
    agent = CodeAgent(tools=[], model=Scripted(), name="other", description="Another.", executor=executor)
    with pytest.raises(InvalidConfigurationError, match="tool other: CodeAgent cannot be sent"):
        executor.send_tools({"other": agent})
    with pytest.raises(InvalidConfigurationError, match=r"nosuchpackage.*the sandbox has not"):
        executor.send_tools({"shout": Needy()})
    for value in (object(), b"x", float("nan"), {1, 2}, nested(100_000)):
        with pytest.raises(InvalidConfigurationError, match="variable v: is not a value of JSON"):
            executor.send_variables({"v": value})


def test_imports_that_are_not_authorized_are_refused_in_the_framework_s_words(sandbox: Sandbox) -> None:
    with SandboxExecutor(sandbox, authorized_imports=["json", "os.path"]) as executor:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        assert executor("import json, math, os.path\nfrom datetime import date\njson.dumps(1)").output == "1"
        assert "Import of subprocess is not allowed" in failing(executor, "import subprocess")
        assert "Import of os is not allowed" in failing(executor, "def f():\n    from os import path")


def test_an_error_names_the_missing_python(sandbox: Sandbox) -> None:
    with (
        SandboxExecutor(sandbox, python="nosuchpython") as executor,
        pytest.raises(InvalidConfigurationError) as raised,
    ):
        executor("1")
    assert "exit code 127" in str(raised.value)


def test_a_sandbox_that_is_gone_raises(executor: SandboxExecutor, sandbox: Sandbox) -> None:
    failed: List[Optional[BaseException]] = []

    def run() -> None:
        try:
            executor("open('output/begun', 'w').close()\nimport time\ntime.sleep(3004)")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: sandbox.files.exists("output/begun"))
    sandbox.client.destroy_sandbox(sandbox.id)
    thread.join()
    assert failed and not isinstance(failed[0], AssertionError)
    with pytest.raises(SandboxNotFoundError):
        executor("1")


def test_leaving_the_block_ends_the_interpreter(sandbox: Sandbox) -> None:
    with SandboxExecutor(sandbox) as executor:
        executor("1")
        assert "python3 -I" in sandbox.run("ps axww").stdout
    gone: Callable[[], bool] = lambda: "python3 -I" not in sandbox.run("ps axww").stdout  # noqa: E731
    wait_until(gone)
