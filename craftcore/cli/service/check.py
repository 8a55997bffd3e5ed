"""`craftcore check`: everything that would keep the daemon from running well, all at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import PROBLEM, SETTINGS
from craftcore.cli.service.turn_calls_store import TurnCalls
from craftcore.cli.session import Session
from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.config.web_settings import WebSettings
from craftcore.diagnostics.environment import zone_finding
from craftcore.diagnostics.finding import Finding, Level
from craftcore.diagnostics.web_access import address_findings, find_libraries, login_findings
from craftcore.errors import CannotCreate, ConfigInvalid, CraftcoreError, NotFound, PermissionRefused, StateRefused
from craftcore.serialization.plurals import agree_noun, format_count
from craftcore.storage.sqlite_errors import describe_refusal
from craftcore.tasks.listing_store import TaskLists

if TYPE_CHECKING:
    from craftcore.registry.registry import Registry
    from craftcore.services import Services

NAMED_MAX = 20
OTHERS_READ, OTHERS_WRITE, STICKY = 0o077, 0o022, 0o1000

Check = Callable[[], str]
"""Says what is well; raises a CraftcoreError for what is not."""


@click.command(
    cls=Command,
    touches="Only reads, and may run beside a daemon. Imports the app; a missing database is not an error.",
    exits={
        PROBLEM: "a problem with the directory, the database, its permissions or the page's address, a live task that "
        "would be held, or a trigger or schedule whose workflow is missing",
        SETTINGS: "one with what is declared",
    },
    examples=("craftcore check app:app", "craftcore --config craftcore.toml check"),
    see=("craftcore doctor", "craftcore run", "docs/how-to/deploy-with-systemd.md"),
)
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.pass_obj
def check(session: Session, /, app: str | None) -> int:
    """Find what would keep the daemon or a task from running.

    Looks at the settings, the page, the app and the schedules they declare. Looks at the database, its permissions and
    the work in it. Lists every problem, not only the first. A live task that the app does not fit would be held. A
    trigger that waits, or an operator's schedule, whose workflow is not declared would fail. An action whose name
    suggests that it cannot be taken back, without irreversible=True, is a warning. So is a machine whose time
    zone is not known. So is an act or a step that a live task has done under a key or name that its workflow does
    not have any more. So are a step that takes a list of messages, and what a function in `app.checks` returns.
    """
    checks: dict[str, Check] = {
        "config": lambda: _config(session),
        "web": lambda: _check_web(session),
        "app": lambda: _app(app),
        "schedules": lambda: _schedules(session, app),
        "directory": lambda: _directory(session.path.absolute()),
        "database": lambda: _database(session),
        "tasks": lambda: _tasks(session, app),
        "workflows": lambda: _workflows(session, app),
        "permissions": lambda: _permissions(session.path),
    }
    results: list[tuple[str, str, CraftcoreError | None]] = []
    for area, run in checks.items():
        unread = any(error is not None for before, _, error in results if before not in ("web", "tasks"))
        if area in ("schedules", "tasks", "workflows") and unread:
            continue  # they are declared in what cannot be read; or judged by it
        if area == "web" and unread:
            continue
        results.append((area, *_try_check(run)))
    warnings = [] if any(area == "app" and error is not None for area, _, error in results) else _warnings(app)
    if all(error is None for area, _, error in results if area in ("config", "web")):
        warnings += [f"web: {text}" for text in _list_texts(_check_access(session), Level.WARN)]
    if app is not None and any(area == "tasks" for area, _, _ in results):
        warnings += _list_changes(session, app)
    zone = zone_finding(SystemClock().machine_zone())
    warnings += [f"{zone.code}: {zone.text}"] if zone.level is Level.WARN else []
    if session.json:
        documents = [{"check": area, "ok": error is None, "message": text} for area, text, error in results]
        passed = all(error is None for _, _, error in results)
        session.out.document({"ok": passed, "checks": documents, "warnings": warnings})
    else:
        for area, text, error in results:
            for line in text.splitlines():
                mark = "ok  " if error is None else "FAIL"
                session.out.line(f"{mark}  {area}: {line}", style="good" if error is None else "bad")
        for line in warnings:
            session.out.line(f"warn  {line}", style="warn")
    errors = [error for _, _, error in results if error is not None]
    if any(isinstance(error, ConfigInvalid) for error in errors):
        return ConfigInvalid.exit_code
    return 1 if errors else 0


def _try_check(run: Check) -> tuple[str, CraftcoreError | None]:
    try:
        return run(), None
    except CraftcoreError as error:
        return error.message, error
    except PermissionError as error:
        refused = PermissionRefused(describe_refusal(error.filename))
        return refused.message, refused


def _config(session: Session) -> str:
    if session.load_config().metrics.listen:
        from craftcore.daemon.metrics.endpoint import require_client

        require_client()
    return f"{session.config_path or 'the defaults'}"


def _check_web(session: Session) -> str:
    """Check that `craftcore web` has its library, that people can log in, and that the address is free."""
    found = _check_access(session)
    if wrong := _list_texts(found, Level.FAIL):
        raise ConfigInvalid("\n".join(wrong))
    if found:
        found += address_findings(session.load_config().web, session.path)
    if wrong := _list_texts(found, Level.FAIL):
        raise CannotCreate("\n".join(wrong))
    return "\n".join(_list_texts(found, Level.OK)) or "nothing is set"


def _check_access(session: Session) -> list[Finding]:
    settings = session.load_config().web
    return [] if settings == WebSettings() else [*find_libraries(), *login_findings(settings, os.environ)]


def _list_texts(found: list[Finding], level: Level) -> list[str]:
    return [finding.text for finding in found if finding.level is level]


def _app(named: str | None) -> str:
    if named is None:
        return "none given; there is what is ready-made, like command.run"
    from craftcore.daemon.app_loader import import_app
    from craftcore.daemon.builtin_actions import READY_MADE
    from craftcore.registry.executor import require_importable

    app = import_app(named)
    app.check_actions()
    app.check_fallbacks(READY_MADE)
    require_importable(app.workflows.values())
    actions = f", and the {agree_noun(len(app.actions), 'action')} {', '.join(app.actions)}" if app.actions else ""
    return f"{named} declares {', '.join(app.workflows) or 'no workflow'}{actions}"


def _warnings(named: str | None) -> list[str]:
    """Return what an app that can be run should have said."""
    if named is None:
        return []
    from craftcore.daemon.app_loader import import_app
    from craftcore.daemon.declared_schedules import MARK_IT

    app = import_app(named)
    return [f"action {name}: {MARK_IT}" for name in app.check_actions()] + app.list_checks()


def _schedules(session: Session, named: str | None) -> str:
    """Check that the schedules of the app and of the settings can be declared as they are, and what they run would
    take them."""
    from craftcore.daemon.app_loader import import_app
    from craftcore.daemon.builtin_actions import declare_ready_made
    from craftcore.daemon.declared_schedules import declarations
    from craftcore.registry.registry import Registry

    app, core = Registry() if named is None else import_app(named), session.core()
    declare_ready_made(app, core.config, os.environ)
    declared = [spec.id for specs in declarations(app, core.config, core.schedules).values() for spec in specs]
    return f"declared are {', '.join(declared)}" if declared else "none are declared"


def _directory(path: Path) -> str:
    """Check that the directory of the database can be written, or made."""
    folder = path.parent
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        raise CannotCreate(f"{existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionRefused(f"{existing} cannot be written by this user")
    return str(folder) if existing == folder else f"{folder} will be made"


def _database(session: Session) -> str:
    """Check that the file belongs to craftcore, is readable, and has this program's schema. A missing file is fine."""
    from craftcore.services import Services

    core = Services(session.path, Config(), read_only=session.is_read_only)
    try:
        with core.reading():
            return f"{core.database.path} has this program's schema"
    except NotFound:
        return f"{core.database.path} is not there yet; the daemon or the first emit makes it"


def _load_deployment(session: Session, named: str) -> tuple[Registry, Services]:
    """Return the app with what is ready-made, and the database, to be read."""
    from craftcore.daemon.app_loader import import_app
    from craftcore.daemon.builtin_actions import declare_ready_made
    from craftcore.services import Services

    app, config = import_app(named), session.load_config()
    declare_ready_made(app, config, os.environ)
    return app, Services(session.path, config, read_only=True)


def _tasks(session: Session, named: str | None) -> str:
    """Check that the app fits every live task."""
    if named is None:
        return "not looked at: which they must fit is MODULE:APP"
    from craftcore.engine.held_tasks import misfits

    app, core = _load_deployment(session, named)
    try:
        with core.reading() as reader:
            found = misfits(reader, app)
            fit = TaskLists().counts(reader)
    except NotFound:
        return "none yet"
    if not found:
        return f"{named} fits {format_count(fit['running'] + fit['waiting'], 'live task')}"
    lines = [f"task {task_id}: {wrong}" for task_id, wrong in list(found.items())[:NAMED_MAX]]
    if len(found) > NAMED_MAX:
        lines.append(f"and {format_count(len(found) - NAMED_MAX, 'more', 'more')}")
    advice = "a start with this app would hold these until it fits them, or a person decides: task retry, task cancel"
    raise StateRefused(
        "\n".join([f"{format_count(len(found), 'live task')} that {named} does not fit", *lines, advice])
    )


def _list_changes(session: Session, named: str) -> list[str]:
    """Return the calls of live turns that the app makes under another name or key."""
    from craftcore.cli.service.changed_calls import list_changed_calls

    app, core = _load_deployment(session, named)
    try:
        with core.reading() as reader:
            return list(islice(list_changed_calls(app, TurnCalls().list_live(reader)), NAMED_MAX))
    except NotFound:
        return []


def _workflows(session: Session, named: str | None) -> str:
    """Check that the app declares the workflow of every trigger that waits, and of what every schedule fires."""
    if named is None:
        return "not looked at: who declares them is MODULE:APP"
    from craftcore.diagnostics.undeclared import find_undeclared

    app, core = _load_deployment(session, named)
    try:
        with core.reading() as reader:
            found = find_undeclared(reader, app.workflows)
    except NotFound:
        return "no trigger and no schedule yet"
    if not found.lines:
        return f"{named} declares those of all triggers and schedules"
    what = f"{format_count(found.triggers, 'trigger')} and {format_count(found.schedules, 'schedule')}"
    lines = [f"{what} name a workflow that {named} does not declare", *found.lines[:NAMED_MAX]]
    if len(found.lines) > NAMED_MAX:
        lines.append(f"and {format_count(len(found.lines) - NAMED_MAX, 'more', 'more')}")
    advice = "each would fail with CAPABILITY_NOT_FOUND: declare it, or decide: trigger cancel, schedule edit, "
    raise StateRefused("\n".join([*lines, f"{advice}schedule remove"]))


def _permissions(path: Path) -> str:
    """Check that no other user can read the file or write beside it."""
    if not path.exists():
        return "nothing to look at yet"
    mode, folder = path.stat().st_mode, path.resolve().parent.stat().st_mode
    if path.stat().st_uid != os.geteuid():
        raise PermissionRefused(f"{path} belongs to user id {path.stat().st_uid}, not to this user")
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionRefused(f"{path} cannot be read and written by this user (mode {mode & 0o777:o})")
    if mode & OTHERS_READ:
        raise PermissionRefused(f"{path} may be read by others (mode {mode & 0o777:o}); chmod 600 {path}")
    if folder & OTHERS_WRITE and not folder & STICKY:
        raise PermissionRefused(f"others may write in its directory (mode {folder & 0o777:o})")
    return f"mode {mode & 0o777:o}, in a directory of mode {folder & 0o777:o}"
