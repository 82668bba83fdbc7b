"""An agent of deepagents works in a sandbox; a person sees what it changed, and decides.

Usage: python deepagents_agent.py MODEL DIRECTORY TASK
"""

from __future__ import annotations

import sys
from typing import Callable, List

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from agentfense import FileDiff, Sandbox
from agentfense.integrations.deepagents import SandboxBackend


def work(model: BaseChatModel, directory: str, task: str, approve: Callable[[List[FileDiff]], bool]) -> str:
    """Let an agent do a task, apply what it changed if that is approved, and return its answer."""
    with Sandbox.from_local(directory, preset="development") as sb:
        # What deepagents itself stores, such as a command's long output, is to be no change of the project.
        backend = CompositeBackend(default=SandboxBackend(sb), routes={}, artifacts_root="/tmp")
        agent = create_deep_agent(model, backend=backend)
        state = agent.invoke({"messages": [{"role": "user", "content": task}]})
        changes = sb.diff()
        if changes and approve(changes):
            sb.apply()
        return str(state["messages"][-1].text)


def ask(changes: List[FileDiff]) -> bool:
    """Show changes to the person at the terminal."""
    for change in changes:
        print(change.patch or f"{change.status.value} {change.path}")
    return input("Apply? [y/N] ") == "y"


if __name__ == "__main__":
    print(work(init_chat_model(sys.argv[1]), sys.argv[2], sys.argv[3], ask))
