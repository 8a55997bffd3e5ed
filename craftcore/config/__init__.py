"""Settings: frozen, read once from TOML, every mistake reported at once.

One class per table, one field per key: its type says what is allowed (`loader.py` goes by it), its default is
what holds without a file. `config/craftcore.toml` tells the why of each to the person who edits it.

    Config.load(None)                       the defaults
    Config.load(Path("craftcore.toml"))     the file over the defaults, or ConfigInvalid with one line per mistake

Settings built in Python (`RetrySettings(max_attempts=3)`) are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from craftcore.config.http_targets import window_mistakes
from craftcore.config.loader import (
    Between,
    Spelt,
    Targets,
    Variables,
    read,
    schedules_of,
    table_of,
    unknown_name_mistakes,
)
from craftcore.config.notify_rules import NotifySettings, notify_rules
from craftcore.config.references import (
    ADDRESS_SAID,
    ENDPOINT_SAID,
    REFERENCE_SAID,
    endpoint,
    is_host,
    is_loopback,
    is_one_line,
    mailbox,
    secret_reference,
)
from craftcore.config.temporal_settings import TemporalSettings
from craftcore.config.temporal_settings import relation_mistakes as temporal_mistakes
from craftcore.config.web_settings import WebSettings
from craftcore.config.web_settings import relation_mistakes as web_mistakes
from craftcore.errors import ConfigInvalid

Host = Annotated[str, Spelt(is_host, "the name or the address of a server, without its port")]
Address = Annotated[str, Spelt(mailbox, ADDRESS_SAID)]
Words = Annotated[str, Spelt(lambda text: len(text) <= 200 and is_one_line(text), "one line, at most 200 characters")]
Reference = Annotated[str, Spelt(secret_reference, REFERENCE_SAID, hidden=True)]
"""Where a secret is, never the secret."""
Listen = Annotated[str, Spelt(endpoint, ENDPOINT_SAID)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How the process runs. Times in seconds. `worker_processes` 0: one for each processor."""

    concurrency: Annotated[int, Between(1, 1000)] = 16
    worker_processes: Annotated[int, Between(0, 256)] = 0
    shutdown_grace: Annotated[float, Between(0, 3600)] = 30.0
    poll_seconds: Annotated[float, Between(0.1, 30)] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """How the file is written. `busy_timeout` (seconds) is how long a producer waits for the write lock."""

    synchronous: Literal["full", "normal"] = "full"
    busy_timeout: Annotated[float, Between(0, 3600)] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """How triggers are claimed and ordered. `overdue_after` in seconds."""

    lease_seconds: Annotated[float, Between(5, 86_400)] = 60.0
    claim_batch: Annotated[int, Between(1, 10_000)] = 256
    priority_weight: Annotated[float, Between(0, 86_400)] = 60.0
    overdue_after: Annotated[float, Between(0, 31_536_000)] = 120.0
    payload_max_bytes: Annotated[int, Between(1024, 16 << 20)] = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """The retry policy of a workflow that declares none."""

    max_attempts: Annotated[int, Between(1, 1000)] = 5
    base_seconds: Annotated[float, Between(0, 86_400)] = 10.0
    cap_seconds: Annotated[float, Between(0, 2_592_000)] = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The limits of a task. `max_turns` and `max_steps` count what it does without rest: since something last came
    from outside, or it slept for a minute. `history_messages`: the newest messages of a session that are kept. Times in
    seconds; `stall_after` 0: never."""

    state_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 1 << 20
    history_messages: Annotated[int, Between(10, 10_000_000)] = 10_000
    result_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 8 << 20
    stream_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 1 << 20
    max_turns: Annotated[int, Between(1, 1_000_000)] = 1000
    max_steps: Annotated[int, Between(1, 1_000_000)] = 10_000
    stall_after: Annotated[float, Between(0, 31_536_000)] = 3600.0
    resume_max_age: Annotated[float, Between(60, 31_536_000)] = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """The limits and ages of records."""

    response_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 8 << 20


KEPT_MAX = 315_360_000.0
"""Ten years, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long what is over is kept, in seconds after its end; 0: for ever. `max_bytes`: what the database may hold
    before the oldest goes sooner; 0: no limit."""

    max_bytes: Annotated[int, Between(0, 1 << 50)] = 10 << 30
    triggers: Annotated[float, Between(0, KEPT_MAX)] = 86_400.0
    dead: Annotated[float, Between(0, KEPT_MAX)] = 2_592_000.0
    keys: Annotated[float, Between(0, KEPT_MAX)] = 7_776_000.0
    bodies: Annotated[float, Between(0, KEPT_MAX)] = 604_800.0
    history: Annotated[float, Between(0, KEPT_MAX)] = 7_776_000.0
    audit: Annotated[float, Between(0, KEPT_MAX)] = 7_776_000.0
    messages: Annotated[float, Between(0, KEPT_MAX)] = 31_536_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """The limits of `command.run`. `timeout` in seconds; `environment` names the variables it passes on."""

    timeout: Annotated[float, Between(0.1, 2_592_000)] = 3600.0
    output_max_bytes: Annotated[int, Between(0, 16 << 20)] = 64 << 10
    environment: Variables = ("PATH", "HOME", "LANG", "TZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings:
    """How `email.send` reaches the server that sends.

    Empty text: not set. Port 0: the usual one of that security. `timeout` in seconds.
    """

    host: Host = ""
    port: Annotated[int, Between(0, 65_535)] = 0
    security: Literal["tls", "starttls", "none"] = "tls"
    username: Words = ""
    password: Reference = ""
    sender: Address = ""
    timeout: Annotated[float, Between(1, 3600)] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The limits of `http.request`, and its named targets. `timeout` in seconds, for the whole of a call."""

    timeout: Annotated[float, Between(0.1, 3600)] = 30.0
    response_max_bytes: Annotated[int, Between(0, 16 << 20)] = 64 << 10
    redirects_max: Annotated[int, Between(0, 20)] = 5
    allow_private: bool = False
    target: Targets = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How much is logged, and in which form. `successes`: a line for each trigger that succeeded, too.

    The level `auto` is info in a daemon; in a program that runs the engine, its own levels decide.
    """

    level: Literal["auto", "debug", "info", "warning", "error"] = "auto"
    format: Literal["auto", "json", "text"] = "auto"
    successes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where numbers about the engine can be read. Empty text: nowhere."""

    listen: Listen = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, table by table, the schedules as they were written, and the rules of notifications."""

    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    triggers: TriggerSettings = field(default_factory=TriggerSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    records: RecordSettings = field(default_factory=RecordSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    command: CommandSettings = field(default_factory=CommandSettings)
    email: EmailSettings = field(default_factory=EmailSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    temporal: TemporalSettings = field(default_factory=TemporalSettings)
    web: WebSettings = field(default_factory=WebSettings)
    schedule: tuple[dict[str, Any], ...] = ()
    notify: tuple[NotifySettings, ...] = ()

    @classmethod
    def load(cls, path: Path | None) -> Config:
        """Return the file's settings over the defaults; None is the defaults.

        Raises ConfigInvalid: one line for a file that cannot be read, else one line per mistake in it.
        """
        if path is None:
            return cls()
        document = read(path)
        mistakes: list[str] = []
        kinds = get_type_hints(cls)
        del kinds["schedule"], kinds["notify"]
        tables = {name: table_of(name, kinds, document.get(name, {}), mistakes) for name in kinds}
        schedules = schedules_of(document.get("schedule", []), kinds, mistakes)
        config = cls(**tables, schedule=schedules, notify=notify_rules(document.get("notify", []), mistakes))
        mistakes.extend(unknown_name_mistakes("", document, {**kinds, "schedule": None, "notify": None}, kinds))
        if not mistakes:  # how two values relate is worth a word only once each is allowed
            mistakes.extend(_relation_mistakes(config))
        if mistakes:
            raise ConfigInvalid("\n".join(f"{path}: {mistake}" for mistake in mistakes))
        return config


def config_of(given: Config | str | Path | None) -> Config:
    """Return the settings that a program gives: as they are, as the path of a settings file, or None for the defaults.

    Raises ConfigInvalid: for a file, one line per mistake in it.
    """
    match given:
        case None:
            return Config()
        case Config():
            return given
        case str() | Path():
            return Config.load(Path(given))
    raise ConfigInvalid(f"config is {type(given).__name__}: give a Config, or the path of a settings file")


def _relation_mistakes(config: Config) -> Iterator[str]:
    retry, output, response = config.retry, config.command.output_max_bytes, config.records.response_max_bytes
    if retry.cap_seconds < retry.base_seconds:
        allowed = f"at least retry.base_seconds ({retry.base_seconds:g})"
        yield f"retry.cap_seconds is {retry.cap_seconds:g}; allowed: {allowed}"
    if output > response:
        yield f"command.output_max_bytes is {output}; allowed: at most records.response_max_bytes ({response})"
    yield from _email_mistakes(config.email)
    yield from temporal_mistakes(config.temporal)
    yield from web_mistakes(config.web)
    if (body := config.http.response_max_bytes) > response:
        yield f"http.response_max_bytes is {body}; allowed: at most records.response_max_bytes ({response})"
    for number, rule in enumerate(config.notify, 1):
        if rule.email and not config.email.host:
            yield f"email.host is not set; notify {number} sends email"
        if rule.target is not None and rule.target not in config.http.target:
            yield f"notify {number}: target {rule.target} is unknown; give it [http.target.{rule.target}]"
    yield from window_mistakes("http.target", config.http.target, config.http.timeout)


def _email_mistakes(email: EmailSettings) -> Iterator[str]:
    """Yield a server without what it needs, and what belongs to a server that is not named."""
    if email.host:
        if not email.sender:
            yield "email.sender is not set; email.host needs it"
        if bool(email.username) != bool(email.password):
            absent, present = ("username", "password") if email.password else ("password", "username")
            yield f"email.{absent} is not set; email.{present} is of no use without it"
        if email.password and email.security == "none" and not is_loopback(email.host):
            yield (
                'email.security is "none"; allowed: "tls" or "starttls", '
                f"for email.password would travel to {email.host} in clear text"
            )
    elif given := [key for key in ("sender", "username", "password") if getattr(email, key)]:
        yield f"email.host is not set; email.{given[0]} is of no use without it"
