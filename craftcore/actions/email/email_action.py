"""`email.send`: a message through the SMTP server of the settings, and what became of it.

It needs aiosmtplib, of the extra `email`, and asyncio. SMTP has no idempotency key, so nothing that is in doubt is sent
again unasked: a person decides, or a reconcile function of the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from craftcore.actions.email.message import Draft, build_message
from craftcore.actions.email.smtp import QUIT_SECONDS, Delivery
from craftcore.activities.model import ActionTerms, OnUnknown
from craftcore.clock import Clock, SystemClock
from craftcore.config import EmailSettings
from craftcore.config.references import Mailbox, mailbox
from craftcore.engine.turn.context import TaskContext
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail
from craftcore.registry.action import Action
from craftcore.registry.call import Call, message_id

EMAIL = "email.send"
Addresses = str | list[str]


def email_action(
    settings: EmailSettings,
    secret: Callable[[str], str],
    clock: Clock | None = None,
    *,
    reconcile: Callable[..., Any] | None = None,
    settle_after: float = 600.0,
) -> Action:
    """Make the action. `secret` gives the text behind a reference, at each call, or raises NoEffect.

    `reconcile` is asked what became of a message in doubt, as `Action.reconcile` has it, `settle_after` seconds after
    the call. An app that has one declares the action itself, with `app.declare_action`. Without one a person is asked.
    """
    time = clock or SystemClock()

    async def send(
        call: Call,
        *,
        to: Addresses,
        subject: str,
        body: str,
        cc: Addresses | None = None,
        bcc: Addresses | None = None,
        reply_to: str | None = None,
        html: str | None = None,
        in_reply_to: str | None = None,
        sender: str | None = None,
    ) -> dict[str, str]:
        configured = _sender(settings)
        _require_what_it_needs()
        draft = Draft(
            to=to,
            subject=subject,
            body=body,
            cc=cc,
            bcc=bcc,
            reply_to=reply_to,
            html=html,
            in_reply_to=in_reply_to,
            sender=sender,
        )
        own_id = message_id(call.key, configured.domain)
        mail = build_message(draft, message_id=own_id, sender=configured, now=time.now())
        password = secret(settings.password) if settings.password else None
        reply = await Delivery(settings, password, mail).send()
        return {"provider_ref": own_id, "message_id": own_id, "reply": reply}

    on_unknown = OnUnknown.ASK if reconcile is None else OnUnknown.RECONCILE
    limit = 2 * settings.timeout + 2 * QUIT_SECONDS  # for both halves: the limit of each is met before this one
    terms = ActionTerms(irreversible=True, on_unknown=on_unknown, timeout=limit, settle_after=settle_after)
    action = Action(EMAIL, send, terms)
    if reconcile is not None:
        action.reconcile(reconcile)
    return action


async def send_email(
    ctx: TaskContext,
    to: Addresses,
    subject: str,
    body: str,
    cc: Addresses | None = None,
    bcc: Addresses | None = None,
    reply_to: str | None = None,
    html: str | None = None,
    in_reply_to: str | None = None,
    sender: str | None = None,
) -> Any:
    """Return the workflow of the same name, for `emit` and `schedule`: one message, and what the action returned."""
    optional = {"cc": cc, "bcc": bcc, "reply_to": reply_to, "html": html, "in_reply_to": in_reply_to, "sender": sender}
    given: dict[str, Any] = {name: value for name, value in optional.items() if value is not None}
    return await ctx.act(EMAIL, to=to, subject=subject, body=body, **given)


def _sender(settings: EmailSettings) -> Mailbox:
    """Raise Fail when there is no server to send with."""
    found = mailbox(settings.sender)
    if not settings.host or found is None:
        raise Fail(
            ErrorCode.CAPABILITY_NOT_FOUND,
            f"{EMAIL} has no server: set host and sender in [email] of the configuration, "
            "username and password too if the server asks for them, and start the daemon again",
        )
    return found


def _require_what_it_needs() -> None:
    try:
        import aiosmtplib  # noqa: F401 - whether it is there
    except ModuleNotFoundError:
        raise Fail(
            ErrorCode.CAPABILITY_NOT_FOUND, f"{EMAIL} needs aiosmtplib: pip install 'craftcore[email]'"
        ) from None
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise Fail(
            ErrorCode.CAPABILITY_NOT_FOUND,
            f"{EMAIL} needs asyncio: aiosmtplib knows no trio. Run the app with `craftcore run`, or on asyncio",
        ) from None
