"""The interpreter inside the sandbox, which gets it as text. It runs Python code step by step.

A request is a line of JSON on standard input, and its answer one on standard output. Everything
that the code and its children write goes to standard error. There a mark follows the output of each
step. It needs only Python 3.6 and the standard library.
"""

import ast
import json
import linecache
import os
import signal
import sys
import traceback
import types
from contextlib import suppress
from typing import Any, Dict, List, TextIO

names: Dict[str, Any] = {}
running = False


class FinalAnswer(BaseException):
    """Ends a step and the agent's work. No ``except Exception`` catches it."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


def interrupt(number: int, frame: Any) -> None:
    """Interrupt a step, but not the code between two steps."""
    if running:
        raise KeyboardInterrupt


def plain(value: Any, deepest: int) -> Any:
    """Return a value that JSON can represent. Raises TypeError for others, and ValueError for too deep ones."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and value - value == 0:
        return value
    if not deepest:
        raise ValueError("too deep")
    if type(value) in (list, tuple):
        return [plain(item, deepest - 1) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: plain(item, deepest - 1) for key, item in value.items()}
    raise TypeError(type(value).__name__)


def encoded(value: Any, room: int, deepest: int) -> Dict[str, Any]:
    """Return a value as JSON, or as text if it cannot be JSON, is too long or too deep."""
    with suppress(Exception):
        answer = {"json": plain(value, deepest)}
        if len(json.dumps(answer)) <= room:
            return answer
    try:
        text = value if type(value) is str else str(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return {"text": text[: room // 12], "cut": len(text) > room // 12}


def check_imports(tree: ast.AST, authorized: List[str]) -> None:
    """Refuse imports that the agent was not given. This is a hint for the agent; the sandbox confines."""
    for node in ast.walk(tree):
        found: List[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = [node.module or ""]
        for name in found:
            if not any(name == known or name.startswith(known + ".") for known in authorized):
                raise ImportError(f"Import of {name} is not allowed. Authorized imports are: {authorized}")


def evaluate(request: Dict[str, Any]) -> Any:
    """Run the code of a step, and return the value of its last expression."""
    names.update(request.get("variables", {}))
    code, file = request.get("code", ""), f"<step {request['id'][:8]}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    tree = ast.parse(code, file)
    if request.get("authorized") is not None:
        check_imports(tree, request["authorized"])
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, file, "exec"), names)
    value = None if last is None else eval(compile(last, file, "eval"), names)
    if request.get("final") in names:
        names[request["final"]] = ending(names[request["final"]])
    return value


def ending(tool: Any) -> Any:
    """Return a tool whose result becomes the final answer."""

    def final_answer(*args: Any, **kwargs: Any) -> Any:
        raise FinalAnswer(tool(*args, **kwargs))

    return final_answer


def step(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run a step, and return its answer."""
    global running
    limits = request["room"], request["deepest"]
    try:
        running = True
        try:
            value = evaluate(request)
        finally:
            running = False
        return dict(encoded(value, *limits), kind="value")
    except FinalAnswer as answer:
        return dict(encoded(answer.value, *limits), kind="final")
    except BaseException as error:
        # Leave out the frames of this file.
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<step "):
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace))
        return dict(encoded(text[-10000:], *limits), kind="error")


def opened(number: int) -> TextIO:
    """Return a stream of text for a file of this process."""
    return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def main() -> None:
    """Answer requests until the input ends."""
    global names
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout, sys.stderr = opened(1), opened(2)
    sys.path.insert(0, "")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names = module.__dict__
    signal.signal(signal.SIGINT, interrupt)
    for line in requests:
        request = json.loads(line.decode("utf-8"))
        answer = dict(step(request), id=request["id"])
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os.write(2, b"\0" + request["id"].encode() + b"\0")
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
