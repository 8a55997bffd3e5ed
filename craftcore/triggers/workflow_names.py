"""A workflow's name and version in one text: `brief@2.0` is version 2.0 of brief, and `brief` is its first. Pure."""

from __future__ import annotations

FIRST_VERSION = "1.0"
"""The version of a workflow whose name has none."""


def intent_of(workflow: str) -> tuple[str, str]:
    """Name and version of what a workflow is asked for by."""
    name, _, version = workflow.rpartition("@")
    return (name, version) if name and version else (workflow, FIRST_VERSION)


def bare_name(workflow: str) -> str:
    """Return the text by which a workflow is known: the first version is not said."""
    name, version = intent_of(workflow)
    return name if version == FIRST_VERSION else workflow
