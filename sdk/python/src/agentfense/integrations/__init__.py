"""Sandboxes for agent frameworks, notebooks and tests, a module for each.

``deepagents``, ``jupyter``, ``langchain``, ``openai_agents``, ``pytest`` and ``smolagents``. Each imports its
framework, which this package does not; without it the import raises MissingExtraError. What comes out of a sandbox is
not trusted: sizes are bounded, and nothing is unpickled.
"""

from __future__ import annotations

from ..exceptions import SandboxError


class MissingExtraError(SandboxError, ImportError):
    """An integration's framework is not installed."""

    def __init__(self, extra: str = "", cause: object = "", message: str = "") -> None:
        said = f"agentfense.integrations.{extra.replace('-', '_')}: {cause}: pip install 'agentfense[{extra}]'"
        super().__init__(message or said)
        self.extra = extra


__all__ = ["MissingExtraError"]
