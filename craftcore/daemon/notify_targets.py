"""The notification rules of settings and code, each as the trigger of a workflow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from urllib.parse import urlsplit

from craftcore.actions.email.email_action import EMAIL
from craftcore.actions.http.http_action import HTTP_REQUEST
from craftcore.actions.process.command_run import COMMAND
from craftcore.config import Config, HttpSettings
from craftcore.config.http_targets import HttpTarget
from craftcore.config.notify_rules import NotifySettings
from craftcore.notifications.model import (
    FAILURES,
    Compose,
    Notification,
    NotifyRule,
    Work,
    body_of,
    document_of,
    subject_of,
)
from craftcore.registry.registry import Registry

TEXT_VARIABLE = "CRAFTCORE_NOTIFICATION"
"""The environment variable in which a command receives the text; the JSON document is its input."""


def notify_rules(app: Registry, config: Config) -> list[NotifyRule]:
    """Return the rules of the settings, by their number, and those of the code, by the names of their workflows."""
    rules = [_rule(str(number), rule) for number, rule in enumerate(config.notify, 1)]
    for name, workflow in app.notified.items():
        rules.append(NotifyRule(name=name, kinds=workflow.kinds, compose=_compose_call(name, workflow.parameter)))
    return rules


def with_webhooks(config: Config) -> HttpSettings:
    """Return the settings of `http.request` with a target for each webhook that names none. A notification may be sent
    twice when its answer is lost, so no person is asked about that."""
    targets = {
        _target(str(number)): HttpTarget(base_url=_origin(rule.webhook), provider_dedupes=True)
        for number, rule in enumerate(config.notify, 1)
        if rule.webhook is not None and rule.target is None
    }
    return replace(config.http, target={**config.http.target, **targets}) if targets else config.http


def _rule(name: str, given: NotifySettings) -> NotifyRule:
    if given.ping is not None:
        return NotifyRule(
            name=name,
            kinds=frozenset(("succeeded", *FAILURES)),
            compose=_compose_ping(given.ping),
            workflows=given.workflow,
            schedule=given.schedule,
        )
    return NotifyRule(
        name=name,
        kinds=frozenset(given.on),
        compose=_compose_message(name, given),
        workflows=given.workflow,
        schedule=given.schedule,
        digest=given.digest,
    )


def _compose_message(name: str, given: NotifySettings) -> Compose:
    def post(those: Sequence[Notification]) -> Work:
        target = _target(name) if given.target is None else given.target
        payload = {"url": given.webhook, "method": "POST", "target": target, "json": document_of(those)}
        return Work(HTTP_REQUEST, payload)

    def run(those: Sequence[Notification]) -> Work:
        return Work(
            COMMAND,
            {
                "argv": list(given.command),
                "stdin": json.dumps(document_of(those), ensure_ascii=False),
                "env": {TEXT_VARIABLE: body_of(those).replace("\0", "")},  # a variable cannot have it
            },
        )

    def send(those: Sequence[Notification]) -> Work:
        return Work(EMAIL, {"to": list(given.email), "subject": subject_of(those), "body": body_of(those)})

    return post if given.webhook is not None else run if given.command else send


def _compose_ping(url: str) -> Compose:
    parts = urlsplit(url)
    failed = parts._replace(path=f"{parts.path.rstrip('/')}/fail").geturl()
    return lambda those: Work(HTTP_REQUEST, {"url": failed if those[0].kind in FAILURES else url})


def _compose_call(workflow: str, parameter: str) -> Compose:
    return lambda those: Work(workflow, {parameter: asdict(those[0])})


def _target(rule: str) -> str:
    return f"notify/{rule}"  # no name of the settings has a slash


def _origin(url: str | None) -> str:
    parts = urlsplit(url or "")
    return f"{parts.scheme}://{parts.netloc}/"
