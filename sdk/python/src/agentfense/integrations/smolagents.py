"""A sandbox as the interpreter of an agent of smolagents.

    from agentfense import Sandbox
    from agentfense.integrations.smolagents import SandboxExecutor
    from smolagents import CodeAgent

    with Sandbox.from_local(".") as sb, SandboxExecutor(sb) as executor:
        agent = CodeAgent(tools=[], model=model, executor=executor)
        agent.run("Improve the README.")

The agent's code and its tools run in the sandbox.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Mapping, Optional, Sequence

try:
    from smolagents import Tool
    from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor
    from smolagents.tools import get_tools_definition_code
    from smolagents.utils import BASE_BUILTIN_MODULES
except ImportError as cause:
    from . import MissingExtraError

    raise MissingExtraError("smolagents", cause) from cause

from ..exceptions import InvalidConfigurationError
from ..sandbox import Sandbox
from ._commands import OUTPUT_BYTES, TIMEOUT
from ._interpreter import Interpreter, Step

_MISSING = """
import importlib.util
[name for name in {names!r} if importlib.util.find_spec(name) is None]
"""
_START = 60.0
"""Seconds within which an interpreter must start, with the agent's tools."""
_MODULES = {"pillow": "PIL", "pyyaml": "yaml", "beautifulsoup4": "bs4", "scikit-learn": "sklearn"}


class SandboxExecutor(PythonExecutor):
    """Runs an agent's Python code and its tools in a sandbox. Variables are kept from step to step.

    The caller destroys the sandbox. Leaving the ``with`` block of this, or of the agent, ends the
    interpreter, which is the sandbox's program ``python``.

    Nothing from the sandbox is unpickled. A result or a final answer is a value of JSON, where a
    tuple is a list, or else its text. Images, sets of bytes, data frames and lists nested more than
    100 deep arrive as text. Variables that are sent must be values of JSON.

    A step has a time-out of ``timeout`` seconds. Then it is interrupted; its variables are kept if
    it stops within 5 s. ``max_output_bytes`` of its output are kept, and a result has at most
    ``max_answer_bytes`` of JSON.

    With ``authorized_imports`` the agent may import these and smolagents' own list of harmless
    modules. This guides the agent; the sandbox confines its code.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        authorized_imports: Optional[Sequence[str]] = None,
        timeout: float = TIMEOUT,
        python: str = "python3",
        max_output_bytes: int = OUTPUT_BYTES,
        max_answer_bytes: int = OUTPUT_BYTES,
    ) -> None:
        self._interpreter = Interpreter(sandbox, python, max_output_bytes, max_answer_bytes)
        self._timeout = timeout
        self._authorized = None
        if authorized_imports is not None and "*" not in authorized_imports:
            self._authorized = sorted({*BASE_BUILTIN_MODULES, *authorized_imports})
        self._tools = ""
        self._final = ""
        self._variables: Dict[str, Any] = {}
        self.state: Dict[str, str] = {"_print_outputs": ""}
        """The output of the last step, which smolagents reads after an error."""

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Send tools as source. They run in the sandbox, with the rights of the agent's code.

        Raises InvalidConfigurationError for an agent, which cannot be sent, and for a tool whose
        packages the sandbox lacks.
        """
        for name, tool in tools.items():
            if not isinstance(tool, Tool):
                raise InvalidConfigurationError(f"tool {name}: {type(tool).__name__} cannot be sent into a sandbox")
        self._tools = get_tools_definition_code(dict(tools)) if tools else ""
        self._final = "final_answer" if "final_answer" in tools else ""
        self._prepare(tools)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Send variables. Raises InvalidConfigurationError unless they are values of JSON."""
        for name, value in variables.items():
            try:
                self._variables[name] = json.loads(json.dumps(value, allow_nan=False))
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidConfigurationError(f"variable {name}: is not a value of JSON: {error}") from None
        if self._interpreter.started:
            self._checked(self._interpreter.run({"variables": self._variables}, self._timeout))

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a step. Raises InterpreterError with the traceback, also after a time-out."""
        if not self._interpreter.started:
            self._prepare({})
        step = self._interpreter.run({"code": code_action, "authorized": self._authorized}, self._timeout)
        self.state["_print_outputs"] = step.logs
        if step.kind == "error":
            raise InterpreterError(step.value)
        return CodeOutput(output=step.value, logs=step.logs, is_final_answer=step.kind == "final")

    def cleanup(self) -> None:
        """End the interpreter. The next step starts another."""
        self._interpreter.close()

    def __enter__(self) -> SandboxExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def _prepare(self, tools: Mapping[str, Any]) -> None:
        """Give an interpreter the tools and variables that the agent's code expects."""
        packages = {
            re.split(r"[\[<>=!~; ]", p)[0].lower() for tool in tools.values() for p in tool.to_dict()["requirements"]
        }
        wanted = sorted(_MODULES.get(p, p.replace("-", "_")) for p in packages - {"smolagents"})
        if wanted:
            missing = self._checked(
                self._interpreter.run({"code": _MISSING.format(names=wanted)}, max(self._timeout, _START))
            )
            if missing.value:
                raise InvalidConfigurationError(
                    f"tools need {missing.value}, which the sandbox has not: install them where it sees them"
                )
        request = {"code": self._tools, "final": self._final, "variables": self._variables}
        self._checked(self._interpreter.run(request, max(self._timeout, _START)))

    @staticmethod
    def _checked(step: Step) -> Step:
        if step.kind == "error":
            raise InvalidConfigurationError(f"interpreter: {step.value}")
        return step
