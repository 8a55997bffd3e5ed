"""What every daemon can do besides its app; and what an app declares itself is the app's."""

from __future__ import annotations

from craftcore import App, Call, TaskContext
from craftcore.config import Config
from craftcore.daemon.builtin_actions import declare_ready_made


def test_every_app_can_run_programs_and_send_mail():
    app = App()
    declare_ready_made(app, Config(), {})

    assert {"command.run", "email.send"} <= app.workflows.keys()
    assert "email.send" in app.actions
    assert app.actions["email.send"].terms.irreversible


def test_what_an_app_declares_itself_stays_the_apps():
    app = App()

    @app.action("email.send", irreversible=True)
    async def send(call: Call, *, to: str, subject: str, body: str) -> str:
        return to

    @app.workflow("email.send")
    async def sends(ctx: TaskContext, to: str) -> None: ...

    @app.workflow("command.run")
    async def runs() -> None: ...

    declare_ready_made(app, Config(), {})

    assert app.actions["email.send"] is send
    assert app.workflows["email.send"].fn is sends
    assert app.workflows["command.run"].fn is runs


def test_it_may_be_declared_again_as_by_a_check_and_then_a_run():
    app = App()
    for _ in range(2):
        declare_ready_made(app, Config(), {})
