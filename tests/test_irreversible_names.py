"""Actions with an irreversible name: the engine warns of an action that does not declare its reversibility."""

from __future__ import annotations

import pytest

from craftcore import App
from craftcore.daemon.lifespan import running
from craftcore.errors import ConfigInvalid
from craftcore.registry.action import is_irreversible_name
from tests.support.engine_harness import lab, settings
from tests.support.log_capture import capture_logs


@pytest.mark.parametrize(
    "name",
    [
        *("send", "email", "email.send", "send_email", "sendEmail", "SendMail", "e-mail", "mails"),
        *("payments.create", "user:payment", "bank.transfer", "stripe-charge-v2", "refund", "http.post", "postMessage"),
        *("sms", "SMS", "sendSMS", "SMSGateway", "messages", "blog.publish"),
    ],
)
def test_name_with_a_listed_word_is_irreversible(name):
    assert is_irreversible_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("weather", "postgres.query", "mailbox.read", "paypal", "sender", "compost", "smsx", "payload.check"),
        *("repost", "transferable", "", "42", "http.get"),
    ],
)
def test_name_that_only_contains_the_letters_is_not_irreversible(name):
    assert not is_irreversible_name(name)


async def nothing(call):
    pass


def an_app() -> App:
    app = App()
    app.action("email.send")(nothing)
    app.action("mail.preview", irreversible=False)(nothing)
    app.action("pay", irreversible=True)(nothing)
    app.action("weather")(nothing)
    return app


def test_undeclared_action_alone_is_doubtful():
    assert an_app().check_actions() == ["email.send"]


@pytest.mark.anyio
async def test_start_warns_of_a_doubtful_name_once(tmp_path):
    with capture_logs() as logs:
        async with lab(an_app(), tmp_path):
            pass

    assert [line for line in logs if line["event"] == "action.not_irreversible"] == [
        {
            "event": "action.not_irreversible",
            "log_level": "warning",
            "action": "email.send",
            "advice": "after a crash it may be done again: say irreversible=True, or irreversible=False where that "
            "does no harm",
        }
    ]


@pytest.mark.anyio
async def test_action_without_its_reconcile_function_stops_the_start(tmp_path):
    app = App()
    app.action("wire", irreversible=True, on_unknown="reconcile")(nothing)
    ship = app.action("ship", irreversible=True, on_unknown="reconcile")(nothing)
    ship.reconcile(nothing)

    with pytest.raises(ConfigInvalid, match=r"^action wire: on_unknown=RECONCILE, and no reconcile of it is declared$"):
        async with running(app, tmp_path / "agent.db", settings()):
            pass

    assert not (tmp_path / "agent.db").exists()
