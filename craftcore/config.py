"""Settings: frozen, read once from TOML, every mistake reported at once.

One class per table, one field per key: its type says what is allowed, its default is what holds without a file.
`config/craftcore.toml` tells the why of each to the person who edits it.

    Config.load(None)                       the defaults
    Config.load(Path("craftcore.toml"))     the file over the defaults, or ConfigInvalid with one line per mistake

Settings built in Python (`RetrySettings(max_attempts=3)`) are taken as they are.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from craftcore.errors import ConfigInvalid
from craftcore.http_targets import HttpTarget, http_targets, window_mistakes
from craftcore.regular_file import open_regular
from craftcore.spelling import (
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

_FILE_MAX_BYTES = 1 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class Between:
    """A number within these bounds, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Spelt:
    """Text of which this holds; what is allowed, in words. Without any text it is not set."""

    holds: Callable[[str], object]
    said: str
    hidden: bool = False
    """It may be a secret that somebody wrote out by mistake: no mistake shows it."""


Variables = tuple[str, ...]
"""Names of environment variables."""

Host = Annotated[str, Spelt(is_host, "the name or the address of a server, without its port")]
Address = Annotated[str, Spelt(mailbox, ADDRESS_SAID)]
Words = Annotated[str, Spelt(lambda text: len(text) <= 200 and is_one_line(text), "one line, at most 200 characters")]
Reference = Annotated[str, Spelt(secret_reference, REFERENCE_SAID, hidden=True)]
"""Where a secret is, never the secret."""
Listen = Annotated[str, Spelt(endpoint, ENDPOINT_SAID)]
Targets = Mapping[str, HttpTarget]
"""Tables of a table, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How the process runs. Times in seconds."""

    concurrency: Annotated[int, Between(1, 1000)] = 16
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
    """What a task may take. `max_turns` and `max_steps` count what it does without rest: since something last came from
    outside, or it slept for a minute. Times in seconds; `stall_after` 0: never."""

    state_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 1 << 20
    result_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 8 << 20
    max_turns: Annotated[int, Between(1, 1_000_000)] = 1000
    max_steps: Annotated[int, Between(1, 1_000_000)] = 10_000
    stall_after: Annotated[float, Between(0, 31_536_000)] = 3600.0
    resume_max_age: Annotated[float, Between(60, 31_536_000)] = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """What is kept of an execution."""

    response_max_bytes: Annotated[int, Between(1024, 256 << 20)] = 8 << 20


KEPT_MAX = 315_360_000.0
"""Ten years, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long what is over is kept, in seconds after its end; 0: for ever."""

    triggers: Annotated[float, Between(0, KEPT_MAX)] = 86_400.0
    dead: Annotated[float, Between(0, KEPT_MAX)] = 2_592_000.0
    keys: Annotated[float, Between(0, KEPT_MAX)] = 7_776_000.0
    bodies: Annotated[float, Between(0, KEPT_MAX)] = 604_800.0
    history: Annotated[float, Between(0, KEPT_MAX)] = 7_776_000.0
    audit: Annotated[float, Between(0, KEPT_MAX)] = 7_776_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What `command.run` allows. `timeout` in seconds; `environment` names the variables it passes on."""

    timeout: Annotated[float, Between(0.1, 2_592_000)] = 3600.0
    output_max_bytes: Annotated[int, Between(0, 16 << 20)] = 64 << 10
    environment: Variables = ("PATH", "HOME", "LANG", "TZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings:
    """How `email.send` reaches the server that sends, and, with an `imap_host`, the folder that tells what was sent.

    Empty text: not set. Port 0: the usual one of that security. `timeout` and `imap_settle` in seconds.
    """

    host: Host = ""
    port: Annotated[int, Between(0, 65_535)] = 0
    security: Literal["tls", "starttls", "none"] = "tls"
    username: Words = ""
    password: Reference = ""
    sender: Address = ""
    timeout: Annotated[float, Between(1, 3600)] = 60.0
    imap_host: Host = ""
    imap_port: Annotated[int, Between(0, 65_535)] = 0
    imap_security: Literal["tls", "starttls", "none"] = "tls"
    imap_username: Words = ""
    imap_password: Reference = ""
    imap_folder: Words = "Sent"
    imap_settle: Annotated[float, Between(0, 86_400)] = 600.0
    imap_is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What `http.request` allows, and the providers it knows by name. `timeout` in seconds, for the whole of a call."""

    timeout: Annotated[float, Between(0.1, 3600)] = 30.0
    response_max_bytes: Annotated[int, Between(0, 16 << 20)] = 64 << 10
    redirects_max: Annotated[int, Between(0, 20)] = 5
    allow_private: bool = False
    target: Targets = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How much the daemon says, and in which form."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where numbers about the engine can be read. Empty text: nowhere."""

    listen: Listen = ""


SCHEDULE_KEYS = (
    *("id", "when", "workflow", "payload", "command", "timezone", "catch_up", "catch_up_window", "catch_up_max"),
    *("catch_up_spacing", "overlap", "jitter", "expires_after", "start", "until", "max_runs", "session_id", "priority"),
    *("description", "max_attempts", "irreversible"),
)
"""What a `[[schedule]]` may say. Its values are judged where schedules are declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, table by table, and the schedules as they were written."""

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
    schedule: tuple[dict[str, Any], ...] = ()

    @classmethod
    def load(cls, path: Path | None) -> Config:
        """The file's settings over the defaults; None is the defaults.

        Raises ConfigInvalid: one line for a file that cannot be read, else one line per mistake in it.
        """
        if path is None:
            return cls()
        document = _read(path)
        mistakes: list[str] = []
        kinds = get_type_hints(cls)
        del kinds["schedule"]
        tables = {name: _table(name, kind, document.get(name, {}), mistakes) for name, kind in kinds.items()}
        config = cls(**tables, schedule=_schedules(document.get("schedule", []), mistakes))
        mistakes.extend(_unknown("", document, {**kinds, "schedule": None}))
        if not mistakes:  # how two values relate is worth a word only once each is allowed
            mistakes.extend(_broken_relations(config))
        if mistakes:
            raise ConfigInvalid("\n".join(f"{path}: {mistake}" for mistake in mistakes))
        return config


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            text = file.read(_FILE_MAX_BYTES + 1)
        if len(text) > _FILE_MAX_BYTES:
            raise ConfigInvalid(f"{path}: over {_FILE_MAX_BYTES} bytes, so it is no configuration")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigInvalid(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{path}: is not UTF-8 text, at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise ConfigInvalid(f"{path}: is not TOML: {error}") from error


def _table(name: str, kind: type[Any], given: object, mistakes: list[str]) -> Any:
    """The settings of one table. A mistake is noted, and its key keeps the default."""
    if not isinstance(given, dict):
        mistakes.append(f"{name} is {_shown(given)}; allowed: a table")
        return kind()
    rules = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for key in (key for key in rules if key in given):
        if rules[key] == Targets:
            values[key] = http_targets(f"{name}.{key}", given[key], mistakes)
            continue
        try:
            values[key] = _allowed(rules[key], given[key])
        except ValueError as refused:
            shown = "not shown" if _is_hidden(rules[key]) else _shown(given[key])
            mistakes.append(f"{name}.{key} is {shown}; allowed: {refused}")
    mistakes.extend(_unknown(f"{name}.", given, rules))
    return kind(**values)


def _schedules(given: object, mistakes: list[str]) -> tuple[dict[str, Any], ...]:
    """The `[[schedule]]` tables with nothing in them that is not one of their keys."""
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        mistakes.append("schedule must be written as [[schedule]], once for each")
        return ()
    for number, table in enumerate(given, 1):
        where = f"schedule {_shown(table.get('id', number))}"
        mistakes.extend(f"{where}: {line}" for line in _unknown("", table, dict.fromkeys(SCHEDULE_KEYS)))
        for key in ("id", "when"):
            if not isinstance(table.get(key), str):
                mistakes.append(f"{where}: {key} is missing, or no text")
        if ("workflow" in table) == ("command" in table):
            mistakes.append(f"{where}: give it a workflow or a command, one of them")
        command = table.get("command", [""])
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            mistakes.append(f"{where}: command is {_shown(command)}; allowed: a list of words, the program first")
        if type(table.get("irreversible", False)) is not bool:
            mistakes.append(f"{where}: irreversible is {_shown(table['irreversible'])}; allowed: true or false")
        elif "irreversible" in table and "command" not in table:
            mistakes.append(
                f"{where}: irreversible is for a command; what else a workflow does once, its code says with ctx.act"
            )
        if "command" in table and "payload" in table:
            mistakes.append(f"{where}: a command makes its own payload; give one of them")
    return tuple(given)


def _allowed(rule: Any, value: Any) -> Any:
    """The value as its setting keeps it. Raises ValueError that says what is allowed."""
    if get_origin(rule) is Literal:
        choices = get_args(rule)
        if value in choices:
            return value
        raise ValueError(" or ".join(f'"{choice}"' for choice in choices))
    if rule == Variables:
        if isinstance(value, list) and all(isinstance(name, str) and _VARIABLE.fullmatch(name) for name in value):
            return tuple(value)
        raise ValueError("a list of names of environment variables")
    if rule is bool:
        if isinstance(value, bool):
            return value
        raise ValueError("true or false")
    kind, bounds = get_args(rule)
    if isinstance(bounds, Spelt):
        if isinstance(value, str) and (not value or bounds.holds(value)):
            return value
        raise ValueError(bounds.said)
    # By exact type: True is an int to Python, and no number to a reader of TOML. NaN is within no bounds.
    if (type(value) is int or type(value) is kind) and bounds.low <= value <= bounds.high:
        return kind(value)
    raise ValueError(f"a {'whole number' if kind is int else 'number'} from {bounds.low} to {bounds.high}")


def _is_hidden(rule: Any) -> bool:
    return any(isinstance(mark, Spelt) and mark.hidden for mark in get_args(rule))


def _unknown(table: str, given: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    """A line for each name that is not one of ours, with the one that was probably meant."""
    for name in given:
        if name in known:
            continue
        homes = [home for home, kind in get_type_hints(Config).items() if name in getattr(kind, "__annotations__", ())]
        if homes:
            hint = f"it belongs in [{homes[0]}]"
        elif near := get_close_matches(name.lower(), known, n=1):
            hint = f"did you mean '{near[0]}'?"
        else:
            hint = f"allowed: {', '.join(known)}"
        shown = name if name.isidentifier() and len(name) <= 80 else _shown(name)
        yield f"{table}{shown} is unknown; {hint}"


def _broken_relations(config: Config) -> Iterator[str]:
    retry, output, response = config.retry, config.command.output_max_bytes, config.records.response_max_bytes
    if retry.cap_seconds < retry.base_seconds:
        allowed = f"at least retry.base_seconds ({retry.base_seconds:g})"
        yield f"retry.cap_seconds is {retry.cap_seconds:g}; allowed: {allowed}"
    if output > response:
        yield f"command.output_max_bytes is {output}; allowed: at most records.response_max_bytes ({response})"
    yield from _broken_relations_of_email(config.email)
    if (body := config.http.response_max_bytes) > response:
        yield f"http.response_max_bytes is {body}; allowed: at most records.response_max_bytes ({response})"
    yield from window_mistakes("http.target", config.http.target, config.http.timeout)


def _broken_relations_of_email(email: EmailSettings) -> Iterator[str]:
    """A server without what it needs, and what belongs to a server that is not named."""
    for start, needed in (("", ("sender",)), ("imap_", ("imap_username", "imap_password"))):
        host, security = getattr(email, f"{start}host"), getattr(email, f"{start}security")
        username, password = getattr(email, f"{start}username"), getattr(email, f"{start}password")
        if host:
            yield from (
                f"email.{key} is not set; email.{start}host needs it" for key in needed if not getattr(email, key)
            )
        elif given := [key for key in (*needed, f"{start}username", f"{start}password") if getattr(email, key)]:
            yield f"email.{start}host is not set; email.{given[0]} is of no use without it"
        if host and not start and bool(username) != bool(password):
            absent, present = ("username", "password") if password else ("password", "username")
            yield f"email.{absent} is not set; email.{present} is of no use without it"
        if host and password and security == "none" and not is_loopback(host):
            yield (
                f'email.{start}security is "none"; allowed: "tls" or "starttls", '
                f"for email.{start}password would travel to {host} in clear text"
            )
    if email.imap_host and not email.host:
        yield "email.host is not set; email.imap_host only tells what became of what it sent"
    if email.imap_is_complete and not email.imap_host:
        yield "email.imap_host is not set; email.imap_is_complete is said of its folder"
    if email.imap_host and not email.imap_folder:
        yield "email.imap_folder is not set; email.imap_host needs it"


def _shown(value: object) -> str:
    """The value in one short line, whatever a file may hold."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
