"""The built-in workflows of every daemon: a declaration of the app takes precedence."""

from __future__ import annotations

from craftcore import App, Call, TaskContext
from craftcore.config import Config
from craftcore.daemon.builtin_actions import declare_ready_made


def test_app_has_the_builtin_command_and_email_workflows():
    app = App()
    declare_ready_made(app, Config(), {})

    assert {"command.run", "email.send"} <= app.workflows.keys()
    assert "email.send" in app.actions
    assert app.actions["email.send"].terms.irreversible


def test_builtin_workflow_does_not_replace_a_workflow_of_the_app():
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


def test_builtin_declaration_may_be_repeated():
    app = App()
    for _ in range(2):
        declare_ready_made(app, Config(), {})
