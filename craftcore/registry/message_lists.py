"""Steps that take the messages of a chat as an argument, found in the source of workflows for `craftcore check`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from craftcore.registry.workflow import Workflow

NAMES = frozenset({"messages", "history", "chat_history", "message_history", "conversation", "transcript"})
"""The names of lists that grow with each message."""

FRAMEWORKS = frozenset(
    {"agents", "anthropic", "google", "langchain_core", "langgraph", "llama_index", "openai", "pydantic_ai"}
)
"""The packages whose message types are known."""

ADVICE = (
    "it differs when the turn is entered again with more messages, which is refused as STEP_CONFLICT. Give the step "
    'on_change="keep", or a number instead of the list'
)


def list_message_lists(workflows: Mapping[str, Workflow]) -> Iterator[str]:
    """Yield a sentence for each step in the source of a workflow that is called with a list of messages."""
    for workflow in workflows.values():
        fn = inspect.unwrap(workflow.fn)
        for call in _list_steps(fn):
            name, function, *given = call.args
            if any(keyword.arg == "on_change" for keyword in call.keywords):
                continue
            shown = ast.unparse(name).strip("'\"")
            if (argument := _find_list(given) or _find_parameter(_look_up(fn, function), len(given))) is not None:
                yield f"workflow {workflow.name}: step {shown} takes the list {argument}: {ADVICE}"


def _list_steps(fn: Callable[..., Any]) -> Iterator[ast.Call]:
    """Yield the calls of `.step(name, function, argument, …)` in the source of a function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        is_step = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
        if is_step and isinstance(node, ast.Call) and len(node.args) >= 3:
            yield node


def _find_list(given: list[ast.expr]) -> str | None:
    """Return the source of the first argument that is named as a list of messages; None: there is none."""
    for argument in given:
        name = argument.attr if isinstance(argument, ast.Attribute) else getattr(argument, "id", None)
        if name in NAMES:
            return ast.unparse(argument)
    return None


def _find_parameter(fn: Any, given: int) -> str | None:
    """Return the first of the parameters given that is annotated as a list of messages; None: there is none."""
    try:
        parameters = list(inspect.signature(fn, eval_str=True).parameters.values())[:given]
    except (TypeError, ValueError, NameError, AttributeError):
        return None
    return next((each.name for each in parameters if _is_message_list(each.name, each.annotation)), None)


def _is_message_list(name: str, annotation: Any) -> bool:
    if not _is_list(annotation):
        return False
    items = [item for argument in get_args(annotation) for item in (argument, *get_args(argument))]
    return name in NAMES or any(_is_message(item) for item in items)


def _is_list(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    return origin is Sequence or (isinstance(origin, type) and issubclass(origin, list | tuple))


def _is_message(item: Any) -> bool:
    package = str(getattr(item, "__module__", "")).partition(".")[0]
    return package in FRAMEWORKS and "message" in str(getattr(item, "__name__", "")).lower()


def _look_up(fn: Any, function: ast.expr) -> Any:
    """Return what a name or a dotted name means in a function; None: it is not known before the function runs."""
    parts = ast.unparse(function).split(".")
    try:
        closure = inspect.getclosurevars(fn)
    except (TypeError, ValueError):
        return None
    scope = {**closure.builtins, **closure.globals, **closure.nonlocals}
    found = scope.get(parts[0])
    for part in parts[1:]:
        found = getattr(found, part, None)
    return found
