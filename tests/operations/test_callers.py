"""The callers of `craftcore.operations`: each operator action is one function, called by one command and one form.

The tests read the code as syntax trees. Exceptions are listed here, with the reason.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from craftcore.cli.base import OperatorCommand
from craftcore.web.actions.table import ACTIONS
from craftcore.web.asgi_app import make_app
from craftcore.web.request_gate import Gate
from tests.support import operation_uses, prose
from tests.support.commands import commands
from tests.support.web_actions import make_site


@cache
def uses_of_commands() -> dict[str, list[str]]:
    return {
        name: operation_uses.used_by(command.callback)
        for name, command in commands()
        if isinstance(command, OperatorCommand) and command.callback is not None
    }


@cache
def uses_of_forms() -> dict[str, list[str]]:
    return {name: operation_uses.used_by(action.run) for name, action in ACTIONS.items()}


WITHOUT_OPERATION = {"db migrate"}
"""This command writes the tables that operations need, and its own audit rows."""

WITH_TWO_OPERATIONS = {
    "release": ["maintenance.end_doubt", "maintenance.release"],  # all holds, and the doubt with --complete
    "trigger cancel": ["triggers.cancel", "triggers.cancel_all"],  # ids, or --all
    "db gc": ["maintenance.give_pages_back", "maintenance.take_old"],  # batches, each in its own transaction
}

SHARED_OPERATIONS = {
    "schedules.declare": {"schedule add", "schedule edit"},
    "executions.decide": {"execution retry", "execution skip"},  # the decision is an argument
    "triggers.requeue": {"trigger requeue", "dead requeue"},  # for a FAILED and for a DEAD trigger
}

PAGE_OPERATIONS = {"triggers.requeue_error", "triggers.discard_error"}
"""The page changes all dead letters of one error; the command has --all."""


def group_callers(uses: dict[str, list[str]]) -> dict[str, set[str]]:
    found = defaultdict(set)
    for name, used in uses.items():
        for one in used:
            found[one].add(name)
    return dict(found)


def test_operator_command_calls_a_single_operation():
    uses = uses_of_commands()

    assert len(uses) > 20
    for name, used in uses.items():
        assert used == WITH_TWO_OPERATIONS.get(name, used[:1]), name
        assert bool(used) is (name not in WITHOUT_OPERATION), name


def test_operation_is_called_by_a_single_command():
    by_command = group_callers(uses_of_commands())

    assert len(operation_uses.actions()) > 20
    for operation in sorted(operation_uses.actions()):
        found = by_command.get(operation, set())
        if operation in SHARED_OPERATIONS:
            assert found == SHARED_OPERATIONS[operation], operation
        else:
            assert len(found) == (operation not in PAGE_OPERATIONS), (operation, found)


@pytest.mark.parametrize("name", ACTIONS)
def test_form_calls_the_operation_of_its_command(name):
    [operation] = uses_of_forms()[name]

    assert operation in (PAGE_OPERATIONS if name.endswith(" --all") else uses_of_commands()[name])


def test_operation_has_a_single_form():
    more = {operation: names for operation, names in group_callers(uses_of_forms()).items() if len(names) > 1}

    assert more == {"executions.decide": {"execution retry", "execution skip"}}


def test_commands_alone_call_operations():
    """Each use of an operation in a command-line module belongs to a command."""
    found = Counter(one for used in operation_uses.used_in("cli").values() for one in used)
    reached = Counter(one for used in uses_of_commands().values() for one in used)

    assert found == reached - Counter(["executions.decide"])  # two commands share the function with this call


def test_forms_alone_call_operations_on_the_page():
    assert {module.rpartition("/")[0] for module in operation_uses.used_in("web")} == {"web/actions"}


def test_operations_are_called_by_the_name_of_their_module():
    """The other tests would miss an operation that is imported by its own name."""
    imported = operation_uses.imported_into("cli") | operation_uses.imported_into("web")

    assert imported & operation_uses.actions() == set()
    assert imported >= operation_uses.MODULES


def routes(database: Any, clock: Any) -> list[Route]:
    site = make_site(database, clock)
    app = make_app(site)
    site.services.close()
    assert isinstance(app, Gate)
    assert isinstance(app._app, Starlette)
    return [route for route in app._app.routes if isinstance(route, Route)]


def test_post_routes_are_forms_and_the_login(tmp_path, clock):
    posts = [route.path for route in routes(tmp_path / "none.db", clock) if "POST" in (route.methods or ())]

    forms = [action.path for action in ACTIONS.values()]
    assert Counter(posts) == Counter(
        [*forms, "/login", "/logout", "/{path:path}"]
    )  # the last route answers for missing pages
    assert Counter(forms).most_common(1)[0][1] == 1


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_form_leaves_its_transaction_to_the_operation(action):
    """A form neither writes nor calls a service without the operation."""
    module = action.run.__module__.removeprefix("craftcore.").replace(".", "/")
    node = operation_uses.functions(prose.PACKAGE / f"{module}.py")[action.run.__name__]
    parts = [one.value for one in ast.walk(node) if isinstance(one, ast.Attribute)]

    assert {one.id for one in parts if isinstance(one, ast.Name)} & {"services", "tx", "scope"} == set()


def test_page_opens_no_transaction():
    """The only transaction is that of a form's operation, and a single place calls run_once."""
    ways = {"transaction", "audited_transaction", "operator_transaction", "run_once", "connect", "connect_and_watch"}
    found: set[tuple[str, str]] = set()
    for path, tree in prose.modules():
        if not path.is_relative_to(prose.PACKAGE / "web"):
            continue
        module = path.relative_to(prose.PACKAGE / "web").as_posix()
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="apsw" | "sqlite3" as name))):
                    found.add((module, name))
                case ast.Attribute(attr=name) | ast.Name(id=name) if name in ways:
                    found.add((module, name))

    assert found == {("actions/form.py", "run_once")}
