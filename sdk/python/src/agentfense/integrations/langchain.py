"""A sandbox as a tool of an agent of LangChain. For deepagents there is a backend."""

from __future__ import annotations

from typing import Optional

try:
    from langchain_core.tools import StructuredTool
except ImportError as cause:
    from . import MissingExtraError

    raise MissingExtraError("langchain", cause) from cause

from ..sandbox import Sandbox
from ._commands import OUTPUT_BYTES, TIMEOUT, run, run_async

_DESCRIPTION = (
    "Run a shell command in a sandbox, in the directory /workspace, and return what it writes. "
    "Files that are not there, or that cannot be written, may be so by the sandbox's policy."
)


def command_tool(
    sandbox: Sandbox,
    *,
    name: str = "run_command",
    description: str = _DESCRIPTION,
    timeout: int = TIMEOUT,
    max_output_bytes: int = OUTPUT_BYTES,
) -> StructuredTool:
    """Return a tool that runs commands in a sandbox, and answers with their output and exit code.

    A command has a time-out of ``timeout`` seconds, or less if the agent asks for it; then it is
    killed. ``max_output_bytes`` of its output are kept. If the sandbox or the connection is lost,
    the tool raises.
    """

    def seconds(asked: Optional[int]) -> int:
        return min(asked, timeout) if asked and asked > 0 else timeout

    def run_command(command: str, timeout: Optional[int] = None) -> str:
        return run(sandbox, command, seconds(timeout), max_output_bytes).report()

    async def run_command_async(command: str, timeout: Optional[int] = None) -> str:
        return (await run_async(sandbox, command, seconds(timeout), max_output_bytes)).report()

    return StructuredTool.from_function(run_command, run_command_async, name=name, description=description)
