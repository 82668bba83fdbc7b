"""An agent of the OpenAI Agents SDK works in a sandbox; a person sees what it changed, and decides.

Usage: python openai_agent.py MODEL DIRECTORY TASK
"""

from __future__ import annotations

import asyncio
import sys
from typing import Callable, List, Union

from agents import Model, RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig

from agentfense import AsyncSandbox, FileDiff
from agentfense.integrations.openai_agents import SandboxSession


async def work(model: Union[str, Model], directory: str, task: str, approve: Callable[[List[FileDiff]], bool]) -> str:
    """Let an agent do a task, apply what it changed if that is approved, and return its answer."""
    async with await AsyncSandbox.from_local(directory, preset="development") as sb:
        agent = SandboxAgent(name="coder", instructions="You work in /workspace.", model=model)
        config = RunConfig(sandbox=SandboxRunConfig(session=SandboxSession(sb)), tracing_disabled=True)
        result = await Runner.run(agent, task, run_config=config)
        changes = await sb.diff()
        if changes and approve(changes):
            await sb.apply()
        return str(result.final_output)


def ask(changes: List[FileDiff]) -> bool:
    """Show changes to the person at the terminal."""
    for change in changes:
        print(change.patch or f"{change.status.value} {change.path}")
    return input("Apply? [y/N] ") == "y"


if __name__ == "__main__":
    print(asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], ask)))
