"""The integrations without their frameworks; tests/integrations has the other tests."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Callable

import pytest

from agentfense import OutputChunk, SandboxError
from agentfense.integrations import MissingExtraError
from agentfense.integrations._commands import Output
from agentfense.integrations._interpreter import _Answer

EXTRAS = ["deepagents", "jupyter", "langchain", "openai-agents", "pytest", "smolagents"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_without_its_framework_a_module_names_the_extra(extra: str) -> None:
    module = f"agentfense.integrations.{extra.replace('-', '_')}"
    absent = dict.fromkeys(["deepagents", "langchain_core", "agents", "smolagents", "IPython", "pytest"])
    program = f"import sys; sys.modules.update({absent})\nimport {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"agentfense.integrations.MissingExtraError: {module}: ")
    assert last.endswith(f": pip install 'agentfense[{extra}]'")


def test_the_error_is_of_both_packages() -> None:
    error = MissingExtraError("deepagents", "no module")
    assert isinstance(error, SandboxError) and isinstance(error, ImportError) and error.extra == "deepagents"


def test_the_package_of_integrations_imports_none() -> None:
    program = "import agentfense, agentfense.integrations, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    frameworks = {"IPython", "agents", "deepagents", "langchain_core", "pytest", "smolagents"}
    assert not (frameworks | {"grpc"}) & set(done.stdout.split())


def kept_for(take: Callable[[bytes], object], pieces: int) -> float:
    """Return how many bytes are kept for each piece of a single byte."""
    tracemalloc.start()
    try:
        for n in range(pieces):
            take(bytes([97 + n % 26]))
        return tracemalloc.get_traced_memory()[1] / pieces
    finally:
        tracemalloc.stop()


def test_output_of_single_bytes_needs_little_memory() -> None:
    output = Output(15_000, 1)
    both = {True: "stdout", False: "stderr"}
    assert kept_for(lambda byte: output.add(OutputChunk(both[byte < b"n"], byte)), 20_000) < 5  # type: ignore[arg-type]
    assert len(output.stdout) + len(output.stderr) == len(output.text) == 15_000 and output.truncated
    assert output.stdout.startswith(b"abc") and output.stderr.startswith(b"nop")
    assert output.text.startswith("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_of_an_interpreter_byte_by_byte_needs_little_memory(stream: str) -> None:
    answer = _Answer(10_000, 30_000)
    assert kept_for(lambda byte: answer.take(stream, byte), 20_000) < 5


def test_an_answer_that_comes_byte_by_byte_is_read() -> None:
    answer = _Answer(100, 100)
    said = f'[1]\n{{"id": "{answer.id}", "kind": "value", "json": 7}}\n'.encode()
    over = [answer.take("stdout", said[n : n + 1]) for n in range(len(said))]
    assert not any(over) and answer.step is not None and answer.step.value == 7
    mark = b"log\0" + answer.id.encode() + b"\0"
    assert [answer.take("stderr", mark[n : n + 1]) for n in range(len(mark))].index(True) == len(mark) - 1
    assert answer.logs == "log"
