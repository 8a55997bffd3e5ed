"""`craftcore completion`: the script by which a shell asks for candidates."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from craftcore.cli.base import Command
from craftcore.cli.completion.candidates import VARIABLE
from craftcore.cli.session import Session


@click.command(
    cls=Command,
    touches="Touches no database. At TAB an existing database is read without waiting; nothing is created or printed.",
    exits={},
    examples=(
        'eval "$(craftcore completion bash)"    # in ~/.bashrc',
        'eval "$(craftcore completion zsh)"     # in ~/.zshrc, after compinit',
        "craftcore completion fish > ~/.config/fish/completions/craftcore.fish",
    ),
    see=("docs/reference/cli.md",),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(session: Session, /, shell: str) -> None:
    """Print the script by which a shell completes.

    It offers commands, options, what an option may be, and from the database ids, workflows and schedules.
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root().command
    script = ShellComplete.source(kind(root, {}, "craftcore", VARIABLE))  # bash's own would run bash first
    if session.json:
        session.out.document({"shell": shell, "script": script})
    else:
        click.echo(script, nl=False)
