"""Alias of `craftcore.actions.llm.model_router`, kept for programs that import this name."""

from craftcore.actions.llm.model_router import LLMRouter, RoutingFailed

__all__ = ["LLMRouter", "RoutingFailed"]
