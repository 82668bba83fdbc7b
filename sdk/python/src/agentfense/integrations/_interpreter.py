"""A Python interpreter in a sandbox that keeps its variables, driven by JSON. Its answers are not trusted."""

from __future__ import annotations

import json
import secrets
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Dict, Optional

from ..attach import AttachedExec
from ..exceptions import ExecEndedError, SandboxError
from ..sandbox import Sandbox

GRACE = 5.0
"""Seconds that code has to end after an interrupt."""
DEEPEST = 100
"""The deepest nesting of lists and objects in an answer. The guest sends deeper values as text."""


@dataclass
class Step:
    """The result of a step."""

    kind: str
    """``value``, ``final`` or ``error``."""
    value: Any
    """A value of JSON; text for other values and for errors."""
    logs: str
    lost: bool = False
    """Whether the interpreter ended, and its variables are lost."""


class Interpreter:
    """A Python interpreter that starts when it is first used, and again after it ended. Threads may share it."""

    def __init__(self, sandbox: Sandbox, python: str, max_output_bytes: int, max_answer_bytes: int) -> None:
        self._sandbox = sandbox
        self._python = python
        self._max_output_bytes = max_output_bytes
        self._max_answer_bytes = max_answer_bytes
        self._lock = threading.Lock()
        self._exec: Optional[AttachedExec] = None

    @property
    def started(self) -> bool:
        """Whether the interpreter runs, with the variables of earlier steps."""
        return self._exec is not None

    def close(self) -> None:
        """End the interpreter."""
        if self._exec is not None:
            self._exec.close()
            self._exec = None

    def run(self, request: Dict[str, Any], seconds: float) -> Step:
        """Run code. After ``seconds`` it is interrupted, and killed if it does not stop."""
        with self._lock:
            if self._exec is None:
                source = files(__package__).joinpath("_guest.py").read_text(encoding="utf-8")
                self._exec = self._sandbox.attach([self._python, "-I", "-u", "-c", source])
            answer = _Answer(self._max_output_bytes, self._max_answer_bytes)
            alarm = _Alarm(self._exec, seconds)
            try:
                with alarm:
                    said = {**request, "id": answer.id, "room": self._max_answer_bytes, "deepest": DEEPEST}
                    self._exec.write(json.dumps(said) + "\n")
                    for chunk in self._exec.chunks():
                        if answer.take(chunk.stream, chunk.data):
                            break
            except ExecEndedError:
                pass  # it ended before it read the request; the exit code says why
            except BaseException:
                self.close()
                raise
            return self._ended(answer, alarm, seconds)

    def _ended(self, answer: _Answer, alarm: _Alarm, seconds: float) -> Step:
        late = f"the code took longer than {seconds:g} s, and was interrupted"
        if answer.step is not None and not answer.broken:
            step = answer.step
            step.logs = answer.logs
            if alarm.rang and step.kind == "error":
                step.value = f"{step.value}\n{late}; variables are kept"
            return step
        code = self._exec.exit_code if self._exec is not None else None
        self.close()
        reason = "the interpreter ended" if code is None else f"the interpreter ended with exit code {code}"
        reason = answer.broken or (late if alarm.rang else reason)
        return Step("error", f"{reason}; its variables are lost", answer.logs, lost=True)


class _Alarm:
    """A context manager that interrupts a step after its time-out, and then closes the interpreter."""

    def __init__(self, command: AttachedExec, seconds: float) -> None:
        self.rang = False
        self._command = command
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(seconds,), name="agentfense-step", daemon=True)

    def _watch(self, seconds: float) -> None:
        if self._over.wait(seconds):
            return
        self.rang = True
        # Started before the signal, which may wait behind input that the code does not read.
        closing = threading.Timer(GRACE, self._command.close)
        closing.daemon = True
        closing.start()
        with suppress(SandboxError):
            self._command.signal(signal.SIGINT)
        self._over.wait()  # closing the interpreter ends the step
        closing.cancel()

    def __enter__(self) -> _Alarm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class _Answer:
    """The answer and output of a step. Each step has a new id, so that late output of earlier steps is ignored."""

    def __init__(self, max_output_bytes: int, max_answer_bytes: int) -> None:
        self.id = secrets.token_hex(16)
        self.step: Optional[Step] = None
        self.broken = ""
        self._mark = b"\0" + self.id.encode() + b"\0"
        self._room = max_output_bytes
        self._most = max_answer_bytes + 1024
        self._said = bytearray()
        self._rest = b""
        self._logs = bytearray()
        self._cut = False
        self._marked = False

    @property
    def logs(self) -> str:
        """The output of the step."""
        text = (self._logs + (b"" if self._marked else self._rest)).decode("utf-8", "replace")
        return text + ("\n[the output was longer]" if self._cut else "")

    def take(self, stream: str, data: bytes) -> bool:
        """Take a piece of output, and return whether the step has ended."""
        if stream == "stderr":
            self._take_log(data)
        else:
            self._take_answer(data)
        return bool(self.broken) or (self.step is not None and self._marked)

    def _take_log(self, data: bytes) -> None:
        if self._marked:
            return
        self._rest += data
        before, mark, _ = self._rest.partition(self._mark)
        if mark:
            self._marked, ready = True, before
        else:
            ready, self._rest = self._rest[: -len(self._mark)], self._rest[-len(self._mark) :]
        self._cut = self._cut or len(ready) > self._room
        self._logs += ready[: self._room]
        self._room -= len(ready[: self._room])

    def _take_answer(self, data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            if self.step is None and not self.broken:
                self.step = self._step_of(self._said)
            self._said.clear()
        self._add(rest)

    def _add(self, data: bytes) -> None:
        """Take a piece of a line."""
        if len(self._said) + len(data) > self._most:
            self.broken = f"the answer is larger than {self._most} bytes"
        self._said += data

    def _step_of(self, line: bytearray) -> Optional[Step]:
        if _depth(line) > DEEPEST + 1:
            self.broken = f"the answer has more than {DEEPEST} lists and objects in one another"
            return None
        try:
            answer = json.loads(line.decode("utf-8"))
            if not isinstance(answer, dict) or answer.get("id") != self.id:
                return None
            kind = answer.get("kind")
            if kind not in ("value", "final", "error"):
                return None
            value = _clean(answer["json"] if "json" in answer else str(answer.get("text", "")))
        except ValueError:
            self.broken = "the answer is no JSON"
            return None
        if answer.get("cut"):
            value = f"{value}\n[the value was longer]"
        return Step(kind, value, "")


def _depth(line: bytearray) -> int:
    """Return the nesting of lists and objects in a line of JSON; an upper bound for malformed JSON."""
    bare = line.replace(rb"\\", b"").replace(rb"\"", b"")
    depth = deepest = 0
    for sign in b"".join(bare.split(b'"')[::2]):
        depth += (sign in b"[{") - (sign in b"]}")
        deepest = max(deepest, depth)
    return deepest


def _clean(value: Any) -> Any:
    """Return a value of JSON whose strings are all valid."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
