"""Recorded calls of live tasks whose name or key the source of their workflow does not have any more."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from craftcore.activities.model import NUMBERED
from craftcore.cli.service.turn_calls_store import TurnCall
from craftcore.registry.action import Action
from craftcore.registry.registry import Registry
from craftcore.registry.workflow import Workflow
from craftcore.serialization.plurals import format_count


class Key(Enum):
    """The key of a call without a constant key."""

    NONE = "no key"
    COMPUTED = "computed"


class Written(NamedTuple):
    """A call in the source of a workflow. `name` None: it is computed."""

    name: str | None
    key: str | Key
    is_act: bool


class Recorded(NamedTuple):
    """A call on record. `may_be_act`: an act that is not irreversible is a step."""

    name: str
    key: str | Key
    is_step: bool


class Source(NamedTuple):
    """The calls of a workflow. `is_whole`: it passes its ctx to nothing else that could call it."""

    calls: tuple[Written, ...]
    is_whole: bool


def list_changed_calls(app: Registry, calls: Iterable[TurnCall]) -> Iterator[str]:
    """Yield a sentence for each call that a workflow makes under another name or key than its live tasks have done.

    Calls are found in the source of the workflow itself. A name that it does not have may be that of a helper to which
    it passes its ctx.
    """
    written = {name: _read_source(workflow) for name, workflow in app.workflows.items()}
    counted = Counter((call.workflow, _read_record(call)) for call in calls)
    for (workflow, recorded), count in counted.items():
        source = written.get(workflow, Source((), False))
        alike = [one for one in source.calls if _is_alike(one, recorded)]
        if any(one.key in (recorded.key, Key.COMPUTED) for one in alike) or not (alike or source.is_whole):
            continue
        had = "without a key" if recorded.key is Key.NONE else f"with key={recorded.key!r}"
        then = "runs again" if recorded.is_step else "is taken for the same act if its arguments are the same"
        tasks = format_count(count, "live task")
        yield f"workflow {workflow}: {tasks} called {recorded.name} {had}, and the source has no such call: it {then}"


def _is_alike(call: Written, recorded: Recorded) -> bool:
    return call.name in (None, recorded.name) and (call.is_act or recorded.is_step)


def _read_record(call: TurnCall) -> Recorded:
    if call.action is not None:
        return Recorded(call.action, _key_of(call.identity.removeprefix(f"activity:{call.task_id}:")), False)
    name, _, key = call.identity.removeprefix("step:").partition("~")[0].partition("|")[0].partition("/")
    return Recorded(name, _key_of(key), True)


def _key_of(place: str) -> str | Key:
    return Key.NONE if not place or NUMBERED.fullmatch(place) else place


def _read_source(workflow: Workflow) -> Source:
    """Return the calls of `act` and `step` in the source of a workflow."""
    fn = inspect.unwrap(workflow.fn)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
        variables = inspect.getclosurevars(fn)
    except (OSError, TypeError, SyntaxError, ValueError):
        return Source((), False)
    known = {**variables.globals, **variables.nonlocals}
    calls, owners, names, owned = [], set(), Counter[str](), Counter[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="act" | "step" as called)):
                owners.add(owner)
                calls.append(Written(_name_of(node, known), _read_key(node), called == "act"))
            case ast.Attribute(value=ast.Name(id=owner)):
                owned[owner] += 1
            case ast.Name(id=name):
                names[name] += 1
    return Source(tuple(calls), bool(owners) and all(names[owner] == owned[owner] for owner in owners))


def _name_of(node: ast.Call, known: dict[str, Any]) -> str | None:
    match node.args[:1]:
        case [ast.Constant(value=str() as name)]:
            return name
        case [ast.Name(id=name)] if isinstance(known.get(name), Action):
            return str(known[name].name)
    return None


def _read_key(node: ast.Call) -> str | Key:
    for keyword in node.keywords:
        match keyword:
            case ast.keyword(arg=None):
                return Key.COMPUTED
            case ast.keyword(arg="key", value=ast.Constant(value=str() as key)):
                return key
            case ast.keyword(arg="key", value=ast.Constant(value=None)):
                return Key.NONE
            case ast.keyword(arg="key"):
                return Key.COMPUTED
    return Key.NONE
