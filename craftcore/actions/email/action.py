"""`email.send`: a message through the SMTP server of the settings, and what became of it.

It needs aiosmtplib, of the extra `email`, and asyncio. SMTP has no idempotency key, so nothing that is in doubt is sent
again unasked: a person decides, or, with an `imap_host`, the folder where the server puts what it sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from craftcore.actions.email.imap import is_in_folder
from craftcore.actions.email.message import Draft, outgoing
from craftcore.actions.email.smtp import QUIT_SECONDS, Delivery
from craftcore.activities.model import OnUnknown, Terms
from craftcore.clock import Clock, SystemClock
from craftcore.config import EmailSettings
from craftcore.config.references import Mailbox, mailbox
from craftcore.engine.turn.context import TaskContext
from craftcore.errors import ErrorCode, Fail, NoEffect
from craftcore.registry.action import Action, Call, message_id
from craftcore.tasks.outcomes import Done

log = structlog.get_logger(__name__)

EMAIL = "email.send"
Addresses = str | list[str]


def email_action(settings: EmailSettings, secret: Callable[[str], str], clock: Clock | None = None) -> Action:
    """The action. `secret` gives the text behind a reference, at each call, or raises NoEffect."""
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
        mail = outgoing(draft, message_id=own_id, sender=configured, now=time.now())
        password = secret(settings.password) if settings.password else None
        reply = await Delivery(settings, password, mail).send()
        return {"provider_ref": own_id, "message_id": own_id, "reply": reply}

    async def look_up(call: Call, **arguments: Any) -> Done[str] | NoEffect | None:
        """Found: it was sent. Missing: it was not, if the settings say that the folder is complete."""
        own_id = message_id(call.key, _sender(settings).domain)
        ours, at, _ = own_id.partition("@")  # a part of it is searched for: the domain may have been another one then
        found = await is_in_folder(settings, secret(settings.imap_password), ours + at)
        log.info("email.looked_up", message_id=own_id, folder=settings.imap_folder, found=found)
        if found:
            return Done(own_id)
        if settings.imap_is_complete:
            return NoEffect(f"{own_id} is not in {settings.imap_folder}, which holds everything that was sent")
        return None

    action = Action(EMAIL, send, _terms(settings))
    if settings.imap_host:
        action.reconcile(look_up)
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
    """The workflow of the same name, for `emit` and `schedule`: one message, and what the action returned."""
    optional = {
        "cc": cc,
        "bcc": bcc,
        "reply_to": reply_to,
        "html": html,
        "in_reply_to": in_reply_to,
        "sender": sender,
    }
    given: dict[str, Any] = {name: value for name, value in optional.items() if value is not None}
    return await ctx.act(EMAIL, to=to, subject=subject, body=body, **given)


def _terms(settings: EmailSettings) -> Terms:
    """Time enough for both halves of a delivery, so that the limit of each is the one that is met."""
    return Terms(
        irreversible=True,
        on_unknown=OnUnknown.RECONCILE if settings.imap_host else OnUnknown.ASK,
        timeout=2 * settings.timeout + 2 * QUIT_SECONDS,
        settle_after=settings.imap_settle,
    )


def _sender(settings: EmailSettings) -> Mailbox:
    """Raises Fail when there is no server to send with."""
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
