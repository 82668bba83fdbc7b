"""Sandboxes for agent frameworks, notebooks and tests, with a module for each.

The modules are ``deepagents``, ``jupyter``, ``langchain``, ``openai_agents``, ``pytest`` and
``smolagents``. Each imports its framework, which this package does not install. Without the
framework, the import raises MissingExtraError. The modules do not trust the output of a sandbox:
they bound its size, and never unpickle it.
"""

from __future__ import annotations

from ..exceptions import SandboxError


class MissingExtraError(SandboxError, ImportError):
    """The framework of an integration is not installed."""

    def __init__(self, extra: str = "", cause: object = "", message: str = "") -> None:
        said = f"agentfense.integrations.{extra.replace('-', '_')}: {cause}: pip install 'agentfense[{extra}]'"
        super().__init__(message or said)
        self.extra = extra


__all__ = ["MissingExtraError"]
