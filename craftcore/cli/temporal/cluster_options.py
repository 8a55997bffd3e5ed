"""The options that all commands on a cluster share: its address, its namespace, the key. A flag counts before the
environment, and that before the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from craftcore.cli.base import Command, CommandGroup, WriteCommand, name_of
from craftcore.cli.exit_codes import NOT_PERMITTED, SETTINGS, TRY_LATER
from craftcore.cli.session import Session
from craftcore.config.temporal_settings import TemporalSettings, replace_settings
from craftcore.errors import ConfigInvalid

FLAGS = "craftcore.temporal.flags"
"""Where a context keeps the flags that were given."""

ENDS: Mapping[int, str | None] = {
    TRY_LATER: "the cluster, or a worker there, does not answer: try later",
    NOT_PERMITTED: "the cluster refuses the key or the certificate",
    SETTINGS: "the settings are wrong, or the extra temporal is missing",
}

CONNECTION = (
    ("--address", "HOST:PORT", "The cluster; else $CRAFTCORE_TEMPORAL_ADDRESS, else the settings."),
    ("--namespace", "NAMESPACE", "Its namespace; else $CRAFTCORE_TEMPORAL_NAMESPACE, else the settings."),
    ("--task-queue", "QUEUE", "Where the workers of the app find work: the name of the app."),
    ("--api-key", "REFERENCE", "The key of the cluster as env:NAME or credential:NAME; it turns on TLS."),
    ("--tls-cert", "FILE", "PEM file of the client's certificate; needs --tls-key."),
    ("--tls-key", "FILE", "PEM file of the key of that certificate."),
    ("--data-converter", "MODULE:NAME", "The object that encodes payloads, for example to encrypt them."),
)
WORKER = (
    ("--heartbeat-timeout", "DURATION", "A worker that is silent for this long is dead."),
    ("--sticky-timeout", "DURATION", "The time that a task waits for a dead worker which had it in memory."),
    ("--task-timeout", "DURATION", "The time that the cluster waits for a worker which took an event."),
    ("--shutdown-grace", "DURATION", "The time that running turns have after SIGTERM."),
    ("--metrics", "HOST:PORT", "A port of this machine for Prometheus."),
)
NAMING = ("address", "namespace")
"""The options that name the cluster. A command to paste has them, too."""

ENVIRONMENT = {"address": "CRAFTCORE_TEMPORAL_ADDRESS", "namespace": "CRAFTCORE_TEMPORAL_NAMESPACE"}


def _make_options(rows: Sequence[tuple[str, str, str]]) -> list[click.Parameter]:
    return [
        click.Option(
            [flag],
            metavar=metavar,
            help=text,
            envvar=ENVIRONMENT.get(flag.removeprefix("--")),
            expose_value=False,
            callback=_keep,
        )
        for flag, metavar, text in rows
    ]


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value == "":
        raise click.BadParameter("it is empty", ctx, param)
    if value is not None and param.name:
        ctx.meta.setdefault(FLAGS, {})[param.name] = value


class ClusterCommand(Command):
    """A command that reads on a cluster. `for_worker`: it takes the settings of a worker, too. `needs_extra`: it ends
    where the library of Temporal is not installed; otherwise its code says so."""

    default_touches = "Only reads on the cluster; uses no database."
    home = "namespace"

    def __init__(
        self,
        *args: Any,
        for_worker: bool = False,
        needs_extra: bool = False,
        exits: Mapping[int, str | None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, exits={**(exits or {}), **ENDS}, **kwargs)
        self.needs_extra = needs_extra
        self.params[-len(self.common) : -len(self.common)] = _make_options(CONNECTION + (WORKER if for_worker else ()))

    def invoke(self, ctx: click.Context) -> Any:
        flags = ctx.meta.get(FLAGS, {})
        ctx.obj.cluster = [word for name in NAMING if name in flags for word in (f"--{name}", flags[name])]
        if self.needs_extra:
            require_extra()
        return super().invoke(ctx)


class ClusterWriteCommand(ClusterCommand, WriteCommand):
    """A command that writes on a cluster, and that --read-only refuses."""

    default_touches = "Writes on the cluster; uses no database."


class ClusterNoun(CommandGroup):
    """Commands on a cluster. One that only a database file has is refused with the advice of the cluster."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            from craftcore.temporal.cluster_lacks import COMMANDS

            name = name_of(ctx).removeprefix("temporal")
            if (advice := COMMANDS.get(f"{name} {args[0]}".lstrip())) is not None:
                ctx.fail(advice)
        return super().resolve_command(ctx, args)


def require_extra() -> None:
    """Raise ConfigInvalid where the library of Temporal is not installed."""
    try:
        import temporalio as temporalio
    except ImportError as error:
        raise ConfigInvalid("craftcore temporal needs temporalio: pip install 'craftcore[temporal]'") from error


def read_cluster_settings(session: Session) -> TemporalSettings:
    """Return the settings of [temporal] under the flags and the environment. Raises ConfigInvalid."""
    context = click.get_current_context()
    return replace_settings(session.load_config().temporal, context.meta.get(FLAGS, {}))
