"""The search attributes of a task's workflow, by which the cluster lists tasks, questions and doubts."""

from __future__ import annotations

WORKFLOW_ATTRIBUTE = "CraftcoreWorkflow"
STATUS_ATTRIBUTE = "CraftcoreStatus"
SESSION_ATTRIBUTE = "CraftcoreSession"
ASKS_ATTRIBUTE = "CraftcoreAsks"
DOUBTS_ATTRIBUTE = "CraftcoreDoubts"

ATTRIBUTES = {
    WORKFLOW_ATTRIBUTE: "Keyword",
    STATUS_ATTRIBUTE: "Keyword",
    SESSION_ATTRIBUTE: "Keyword",
    ASKS_ATTRIBUTE: "KeywordList",
    DOUBTS_ATTRIBUTE: "KeywordList",
}
"""Their names, with their types on the cluster."""
