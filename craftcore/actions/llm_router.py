"""Alias of `craftcore.actions.llm.router`, kept for programs that import this name."""

from craftcore.actions.llm.router import LLMRouter, RoutingFailed

__all__ = ["LLMRouter", "RoutingFailed"]
