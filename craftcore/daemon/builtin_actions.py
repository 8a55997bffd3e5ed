"""The built-in workflows and actions of every app that the daemon runs, unless the app declares the same name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from craftcore.actions.email.email_action import EMAIL, email_action, send_email
from craftcore.actions.http.http_action import HTTP_REQUEST, http_action, send_request
from craftcore.actions.process.command_run import COMMAND, command_action, command_run, is_irreversible
from craftcore.actions.process.program import Programs, select_environment
from craftcore.config import Config
from craftcore.daemon.notify_targets import with_webhooks
from craftcore.daemon.secrets import Secrets
from craftcore.registry.registry import Registry

READY_MADE = (COMMAND, EMAIL, HTTP_REQUEST)


@contextmanager
def with_ready_made(app: Registry, config: Config, environ: Mapping[str, str]) -> Iterator[None]:
    """Declare the ready-made workflows and actions while an engine runs the app. The next engine may have other
    settings."""
    workflows, actions = set(app.workflows), set(app.actions)
    declare_ready_made(app, config, environ)
    try:
        yield
    finally:
        for name in READY_MADE:
            if name not in workflows:
                app.remove_workflow(name)
            if name not in actions:
                app.remove_action(name)


def declare_ready_made(app: Registry, config: Config, environ: Mapping[str, str]) -> None:
    """Declare the built-in workflows that run programs, send mail and call HTTP providers, and the irreversible ones as
    actions for `ctx.act`."""
    settings = config.command
    programs = Programs(
        timeout=settings.timeout,
        output_max_bytes=settings.output_max_bytes,
        environment=select_environment(settings.environment, environ),
    )
    secret = Secrets(environ).get
    command = command_action(programs)
    for action in (command, email_action(config.email, secret), http_action(with_webhooks(config), secret)):
        if action.name not in app.actions:
            app.declare_action(action)
    if COMMAND not in app.workflows:
        app.declare(COMMAND, command_run(programs, command), task_when=is_irreversible)
    for name, workflow in ((EMAIL, send_email), (HTTP_REQUEST, send_request)):
        if name not in app.workflows:
            app.declare(name, workflow)
