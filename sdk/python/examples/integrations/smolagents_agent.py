"""An agent of smolagents works in a sandbox; a person sees what it changed, and decides.

Usage: python smolagents_agent.py MODEL DIRECTORY TASK
"""

from __future__ import annotations

import sys
from typing import Any, Callable, List

from smolagents import CodeAgent, InferenceClientModel, Model

from agentfense import FileDiff, Sandbox
from agentfense.integrations.smolagents import SandboxExecutor


def work(model: Model, directory: str, task: str, approve: Callable[[List[FileDiff]], bool]) -> Any:
    """Let an agent do a task, apply what it changed if that is approved, and return its answer."""
    with Sandbox.from_local(directory, preset="development") as sb, SandboxExecutor(sb) as executor:
        agent = CodeAgent(tools=[], model=model, executor=executor, additional_authorized_imports=["*"])
        answer = agent.run(task)
        changes = sb.diff()
        if changes and approve(changes):
            sb.apply()
        return answer


def ask(changes: List[FileDiff]) -> bool:
    """Show changes to the person at the terminal."""
    for change in changes:
        print(change.patch or f"{change.status.value} {change.path}")
    return input("Apply? [y/N] ") == "y"


if __name__ == "__main__":
    print(work(InferenceClientModel(sys.argv[1]), sys.argv[2], sys.argv[3], ask))
