"""The settings file: the shipped file equals the defaults, and each mistake is reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import pytest

from craftcore.config import Config
from craftcore.config.http_targets import HttpTarget, SecretHeader
from craftcore.config.notify_rules import NotifySettings
from craftcore.config.references import ENDPOINT_SAID
from craftcore.errors import ConfigInvalid
from tests.support.code_blocks import PAGES

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "config" / "craftcore.toml"


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a text from a settings file."""

    def load(text: str) -> Config:
        path = tmp_path / "craftcore.toml"
        path.write_text(text)
        return Config.load(path)

    return load


@pytest.fixture
def mistakes(load, tmp_path):
    """Return a function that returns the mistakes of a text, one for each line, without the name of the file."""

    def mistakes(text: str) -> list[str]:
        with pytest.raises(ConfigInvalid) as refused:
            load(text)
        start = f"{tmp_path / 'craftcore.toml'}: "
        lines = str(refused.value).split("\n")
        assert all(line.startswith(start) for line in lines)
        return [line.removeprefix(start) for line in lines]

    return mistakes


def test_defaults_hold_without_a_file():
    assert Config.load(None) == Config()


def test_byte_order_mark_before_the_settings_is_skipped(tmp_path):
    file = tmp_path / "bom.toml"
    file.write_bytes(b"\xef\xbb\xbf[daemon]\nconcurrency = 3\n")

    assert Config.load(file).daemon.concurrency == 3


def test_shipped_file_holds_exactly_the_defaults():
    assert Config.load(SHIPPED) == Config()


def test_shipped_file_shows_every_key_with_its_default():
    shown = tomllib.loads(SHIPPED.read_text())
    known = asdict(Config())
    for name in ("schedule", "notify"):
        assert known.pop(name) == ()  # a comment of the file shows its keys, and those of a target
    assert known["http"].pop("target") == {}
    assert known["web"].pop("person") == ()

    assert {table: list(keys) for table, keys in shown.items()} == {table: list(keys) for table, keys in known.items()}


UNITS = {"s": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "hours": 3600, "days": 86_400}


SETTINGS_PAGES = ("reference/configuration.md", "how-to/send-email.md", "how-to/call-http-apis.md")


def read_documented_defaults() -> dict[str, object]:
    """Return the documented default of each setting in a table of the pages, by its name."""
    found: dict[str, object] = {}
    for page in SETTINGS_PAGES:
        table = None
        for line in PAGES[f"docs/{page}"].splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if header := re.match(r"`\[(\w+)\]`", cells[0]):
                table = header[1]
            elif not line.startswith("|"):
                table = None
            if len(cells) > 2 and re.match(r"`[a-z_.]+`", cells[0]):
                names, default = cells[0].split(" · "), cells[1].split(" · ")
                if table is None and "." not in names[0]:
                    continue
                for name, text in zip(names, default, strict=True):
                    full = name.strip("`") if table is None else f"{table}.{name.strip('`')}"
                    found[full] = parse_default(text)
    return found


def parse_default(text: str) -> object:
    """Return the value of a default as the pages write it."""
    if number := re.fullmatch(r"([\d,.]+)(?: (\w+))?", text):
        return float(number[1].replace(",", "")) * UNITS[number[2] or "s"]
    words = {"none": "", "false": False, "true": True}
    quoted = tuple(re.findall(r"`(\w+)`", text))
    return words.get(text, quoted if len(quoted) > 1 else text.strip("`"))


def test_setting_is_documented_with_its_default():
    known = {
        f"{table}.{name}": value
        for table, values in asdict(Config()).items()
        if table not in ("schedule", "notify")  # their keys are in separate tables
        for name, value in values.items()
        if name != "target"  # a separate table, with its own test
    }

    settings = read_documented_defaults()

    assert known.keys() - settings.keys() == set()
    assert {name: settings[name] for name in known} == {
        name: "" if value == () else value for name, value in known.items()
    }


def test_line_of_the_shipped_file_has_its_reason():
    settings = [line for line in SHIPPED.read_text().splitlines() if " = " in line and not line.startswith("#")]

    assert settings
    assert [line for line in settings if "#" not in line] == []


def test_commented_notification_of_the_shipped_file_is_valid(load):
    lines = SHIPPED.read_text().partition("# [[notify]]")[2].splitlines()
    shown = "\n".join(line.removeprefix("# ") for line in lines)

    [rule] = load(f"[[notify]]\n{shown}").notify

    assert rule.on == ("question", "in_doubt", "dead", "failed", "schedule_missed", "unhealthy")
    assert rule.webhook == "https://ntfy.sh/my-topic"
    assert rule.digest == NotifySettings().digest


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("notify = 3", "notify must be written as [[notify]], once for each"),
        ('[[notify]]\non = "dead"', "notify 1: give it one of webhook, command, email, ping"),
        ('[[notify]]\non = "dead"\ncommand = ["a"]\nwebhook = "https://a"', "notify 1: give it one of webhook"),
        (
            '[[notify]]\ncommand = ["a"]',
            "notify 1: on is None; allowed: a list out of question",
        ),
        ('[[notify]]\non = ["died"]\ncommand = ["a"]', "notify 1: on is ['died']; allowed: a list out of question"),
        (
            '[[notify]]\non = "dead"\nwebhook = "ftp://a"',
            "notify 1: webhook must be the URL of a server, with https://",
        ),
        ('[[notify]]\nping = "https://a"', "notify 1: a ping is for the successes and failures of one schedule"),
        ('[[notify]]\non = "dead"\ncommand = [3]', "notify 1: command is [3]; allowed: a list of texts"),
        (
            '[[notify]]\non = "dead"\ncommand = ["a"]\ndigest = 0',
            "notify 1: digest is 0; allowed: a whole number",
        ),
        ('[[notify]]\non = "dead"\ncommand = ["a"]\ntarget = "t"', "notify 1: target is for a webhook"),
        ('[[notify]]\non = "dead"\nemail = "ops"', "notify 1: email is 'ops'; allowed: "),
        ('[[notify]]\non = "dead"\nemail = "a@b.org"', "email.host is not set; notify 1 sends email"),
        ('[[notify]]\non = "dead"\nwebhook = "https://a"\ntarget = "t"', "notify 1: target t is unknown; give it"),
        ('[[notify]]\nwhen = "dead"', "notify 1: when is unknown; allowed: on, workflow, schedule, webhook"),
        ('[[notify]]\nschedule = 3\non = "dead"\ncommand = "a"', "notify 1: schedule is 3; allowed: a text"),
    ],
)
def test_mistake_in_a_notification_rule_is_refused(mistakes, text, mistake):
    [line] = mistakes(text)
    assert line.startswith(mistake)


def test_commented_schedule_of_the_shipped_file_is_valid(load):
    lines = SHIPPED.read_text().partition("# [[schedule]]")[2].partition("\n\n")[0].splitlines()
    shown = "\n".join(line.removeprefix("# ") for line in lines)

    [schedule] = load(f"[[schedule]]\n{shown}").schedule

    assert schedule["id"] == "backup"
    assert schedule["command"] == ["restic", "backup", "/srv"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("schedule = 3", "schedule must be written as [[schedule]], once for each"),
        ("[schedule]\nid = 'a'", "schedule must be written as [[schedule]], once for each"),
        ("[[schedule]]\nwhen = 'every 1h'\nworkflow = 'w'", "schedule 1: id is missing, or no text"),
        ("[[schedule]]\nid = 'a'\nwhen = 3\nworkflow = 'w'", "schedule 'a': when is missing, or no text"),
        ("[[schedule]]\nid = 'a'\nwhen = 'x'", "schedule 'a': give it a workflow, a command or deliver, one of them"),
        (
            "[[schedule]]\nid = 'a'\nwhen = 'x'\nworkflow = 'w'\ncommand = ['ls']",
            "schedule 'a': give it a workflow, a command or deliver, one of them",
        ),
        (
            "[[schedule]]\nid = 'a'\nwhen = 'x'\ncommand = 'ls -l'",
            "schedule 'a': command is 'ls -l'; allowed: a list of words, the program first",
        ),
        (
            "[[schedule]]\nid = 'a'\nwhen = 'x'\ncommand = ['ls']\npayload = {}",
            "schedule 'a': a command makes its own payload; give one of them",
        ),
        (
            "[[schedule]]\nid = 'a'\nwhen = 'x'\nworkflow = 'w'\nirreversible = true",
            "schedule 'a': irreversible is for a command; what else a workflow does once, its code says with ctx.act",
        ),
        (
            "[[schedule]]\nid = 'a'\nwhen = 'x'\ncommand = ['ls']\nirreversible = 'yes'",
            "schedule 'a': irreversible is 'yes'; allowed: true or false",
        ),
        (
            "[[schedule]]\nid = 'a'\nwhen = 'x'\nworkflow = 'w'\njiter = 3",
            "schedule 'a': jiter is unknown; did you mean 'jitter'?",
        ),
    ],
)
def test_invalid_schedule_is_refused(mistakes, text, mistake):
    assert mistakes(text) == [mistake]


def test_file_overrides_only_the_named_keys(load):
    config = load("[daemon]\nconcurrency = 1\n[command]\nenvironment = ['PATH']\n")

    assert config.daemon.concurrency == 1
    assert config.command.environment == ("PATH",)
    assert config.daemon.poll_seconds == Config().daemon.poll_seconds
    assert config.retry == Config().retry


def test_whole_number_is_accepted_as_a_number(load):
    grace = load("[daemon]\nshutdown_grace = 5\n").daemon.shutdown_grace

    assert (grace, type(grace)) == (5.0, float)


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Config().daemon.concurrency = 2  # type: ignore[misc]


def test_all_mistakes_are_reported_together_with_a_line_each(mistakes):
    found = mistakes(
        """
        concurrency = 4
        [daemon]
        concurrency = 0
        lease_seconds = 9
        zebra = 1
        [trigers]
        [log]
        levle = "info"
        format = "xml"
        """
    )

    assert found == [
        "daemon.concurrency is 0; allowed: a whole number from 1 to 1000",
        "daemon.lease_seconds is unknown; it belongs in [triggers]",
        "daemon.zebra is unknown; allowed: concurrency, worker_processes, shutdown_grace, poll_seconds",
        'log.format is \'xml\'; allowed: "auto" or "json" or "text"',
        "log.levle is unknown; did you mean 'level'?",
        "concurrency is unknown; it belongs in [daemon]",
        "trigers is unknown; did you mean 'triggers'?",
    ]


def test_durations_are_seconds_or_text(tmp_path):
    file = tmp_path / "craftcore.toml"
    file.write_text(
        "[daemon]\nshutdown_grace = '1m30s'\n[retention]\nbodies = '7d'\ntriggers = 60\n"
        "[http.target.bank]\nbase_url = 'https://bank.example'\nprovider_dedupes = true\ndedup_window = '1d'\n"
    )

    config = Config.load(file)

    assert (config.daemon.shutdown_grace, config.retention.bodies, config.retention.triggers) == (90.0, 604_800.0, 60.0)
    assert config.http.target["bank"].dedup_window == 86_400.0


@pytest.mark.parametrize(
    ("table", "line", "allowed"),
    [
        ("daemon", "concurrency = true", "a whole number from 1 to 1000"),
        ("daemon", "concurrency = 1.0", "a whole number from 1 to 1000"),
        ("daemon", "concurrency = '4'", "a whole number from 1 to 1000"),
        ("daemon", "concurrency = 1001", "a whole number from 1 to 1000"),
        ("daemon", "shutdown_grace = false", 'a number from 0 to 3600, in seconds, or text like "10m"'),
        ("daemon", "shutdown_grace = nan", 'a number from 0 to 3600, in seconds, or text like "10m"'),
        ("daemon", "shutdown_grace = inf", 'a number from 0 to 3600, in seconds, or text like "10m"'),
        ("daemon", "shutdown_grace = -0.1", 'a number from 0 to 3600, in seconds, or text like "10m"'),
        ("daemon", "poll_seconds = 0", 'a number from 0.1 to 30, in seconds, or text like "10m"'),
        ("daemon", "poll_seconds = '1m'", 'a number from 0.1 to 30, in seconds, or text like "10m"'),
        ("daemon", "poll_seconds = 'soon'", 'a number from 0.1 to 30, in seconds, or text like "10m"'),
        ("storage", "synchronous = 'off'", '"full" or "normal"'),
        ("storage", "synchronous = 1", '"full" or "normal"'),
        ("triggers", "lease_seconds = 4.9", 'a number from 5 to 86400, in seconds, or text like "10m"'),
        ("triggers", "payload_max_bytes = 16777217", "a whole number from 1024 to 16777216"),
        ("retry", "max_attempts = 0", "a whole number from 1 to 1000"),
        ("command", "environment = 'PATH'", "a list of names of environment variables"),
        ("command", "environment = ['A=B']", "a list of names of environment variables"),
        ("command", "environment = [1]", "a list of names of environment variables"),
        ("email", "host = 'smtp.example.org:465'", "the name or the address of a server, without its port"),
        ("email", "host = 25", "the name or the address of a server, without its port"),
        ("email", "port = 65536", "a whole number from 0 to 65535"),
        ("email", "security = 'ssl'", '"tls" or "starttls" or "none"'),
        ("email", 'username = "a\\u000ab"', "one line, at most 200 characters"),
        (
            "email",
            "sender = 'Ada'",
            "an address like ada@example.org or Ada Lovelace <ada@example.org>",
        ),
        ("http", "allow_private = 1", "true or false"),
        ("log", "level = ['info']", '"auto" or "debug" or "info" or "warning" or "error"'),
        ("metrics", "listen = '0.0.0.0:9464'", ENDPOINT_SAID),
        ("metrics", "listen = 9464", ENDPOINT_SAID),
    ],
)
def test_value_outside_the_choices_is_refused_with_the_choices(mistakes, table, line, allowed):
    [mistake] = mistakes(f"[{table}]\n{line}\n")

    assert mistake.startswith(f"{table}.{line.split(' = ')[0]} is ")
    assert mistake.endswith(f"; allowed: {allowed}")


@pytest.mark.parametrize("text", ["daemon = 3", "[[daemon]]\nconcurrency = 2"])
def test_non_table_in_place_of_a_table_is_refused(mistakes, text):
    [mistake] = mistakes(text)

    assert mistake.startswith("daemon is ")
    assert mistake.endswith("; allowed: a table")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "[retry]\nbase_seconds = 60\ncap_seconds = 30",
            "retry.cap_seconds is 30; allowed: at least retry.base_seconds (60)",
        ),
        (
            "[command]\noutput_max_bytes = 2048\n[http]\nresponse_max_bytes = 0\n[records]\nresponse_max_bytes = 1024",
            "command.output_max_bytes is 2048; allowed: at most records.response_max_bytes (1024)",
        ),
        (
            "[command]\noutput_max_bytes = 0\n[http]\nresponse_max_bytes = 2048\n[records]\nresponse_max_bytes = 1024",
            "http.response_max_bytes is 2048; allowed: at most records.response_max_bytes (1024)",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(mistakes, text, mistake):
    assert mistakes(text) == [mistake]


SERVER = "[email]\nhost = 'smtp.example.org'\nsender = 'ada@example.org'\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SERVER, []),
        (SERVER + "username = 'ada'\npassword = 'env:SMTP'\n", []),
        (SERVER + "security = 'none'\n", []),
        ("[email]\nhost = 'a'", ["sender is not set; email.host needs it"]),
        ("[email]\nsender = 'a@b'", ["host is not set; email.sender is of no use without it"]),
        (SERVER + "username = 'ada'", ["password is not set; email.username is of no use without it"]),
        (SERVER + "password = 'env:A'", ["username is not set; email.password is of no use without it"]),
        (
            SERVER + "username = 'ada'\npassword = 'env:A'\nsecurity = 'none'",
            [
                'security is "none"; allowed: "tls" or "starttls", for email.password would travel to smtp.example.org '
                "in clear text"
            ],
        ),
    ],
)
def test_mail_server_needs_all_settings_and_no_clear_text_password(load, mistakes, text, found):
    if found:
        assert mistakes(text) == [f"email.{line}" for line in found]
    else:
        load(text)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_clear_text_password_is_allowed_to_this_machine_only(load, host):
    text = f"[email]\nhost = '{host}'\nsender = 'a@b'\nusername = 'ada'\npassword = 'env:A'\nsecurity = 'none'"
    assert load(text).email.host == host


@pytest.mark.parametrize("secret", ["hunter2", "env:hunter-2", "credential:a/hunter2", "/etc/hunter2"])
def test_secret_in_the_file_is_refused_and_not_shown(mistakes, secret):
    [mistake] = mistakes(f"[email]\npassword = '{secret}'")

    assert mistake.startswith('email.password is not shown; allowed: "env:NAME", ')
    assert "hunter" not in mistake


IMAP_KEYS = ["host", "port", "security", "username", "password", "folder", "settle", "is_complete"]


@pytest.mark.parametrize("key", IMAP_KEYS)
def test_setting_without_effect_is_refused_with_the_remedy(mistakes, key):
    [mistake] = mistakes(f"{SERVER}imap_{key} = 'hunter2'\n")

    assert mistake.startswith(f"email.imap_{key} is unknown; remove it")
    assert "examples/email_sent_folder.py" in mistake
    assert "hunter" not in mistake


# The targets of http.request

TARGET = """
[http.target.payments]
base_url = "https://api.example.com/v1"
headers = { Authorization = { secret = "env:PAYMENTS_KEY", prefix = "Bearer " }, Accept = "application/json" }
"""


def test_target_is_found_by_its_name(load):
    assert load(TARGET).http.target == {
        "payments": HttpTarget(
            base_url="https://api.example.com/v1",
            headers={
                "Authorization": SecretHeader(secret="env:PAYMENTS_KEY", prefix="Bearer "),
                "Accept": "application/json",
            },
        )
    }


def test_commented_target_of_the_shipped_file_is_valid(load):
    lines = SHIPPED.read_text().partition("# [http.target.payments]")[2].partition("[log]")[0].splitlines()
    shown = "\n".join(line.removeprefix("# ") for line in lines)

    target = load(f"[http.target.payments]\n{shown}").http.target["payments"]

    assert set(asdict(target)) == {line.split(" = ")[0] for line in shown.split("\n") if " = " in line}
    assert target.provider_dedupes
    assert target.dedup_window == 86_400


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("base_url = 'api.example.com'", ".base_url must be like"),
        ("base_url = 'ftp://api.example.com'", ".base_url must be like"),
        ("base_url = 3", ".base_url must be like"),
        ("base_url = 'https://:0'", ".base_url must be like"),
        ("base_url = 'https://api.example.com:99999'", ".base_url must be like"),
        ('base_url = "https://api.example.com/\\u0000"', ".base_url must be like"),
        ("base_url = 'https://me:hunter2@api.example.com'", ".base_url must have no user"),
        ("base_url = 'https://api.example.com/?key=hunter2'", ".base_url must have no user"),
        ("base_url = 'https://api.example.com/v1/../v2'", ".base_url must have no . or .."),
        ("headers = 'Accept'", ".headers must be a table"),
        ("headers = { Authorization = 'Bearer hunter2' }", ".headers.Authorization must not stand here in plain text"),
        ("headers = { x-api-key = 'hunter2' }", ".headers.x-api-key must not stand here in plain text"),
        ("headers = { X-Mine = 'bearer hunter2' }", ".headers.X-Mine must not stand here in plain text"),
        ("headers = { X-Mine = 'env:NAME' }", ".headers.X-Mine must not stand here in plain text"),
        ("headers = { X-Mine = { secret = 'hunter2' } }", ".headers.X-Mine must be a text without line breaks, or a"),
        ("headers = { X-Mine = { secret = 'env:A', prefx = 'hunter2' } }", ".headers.X-Mine must be a text"),
        ("headers = { X-Mine = { secret = 'env:A', prefix = 3 } }", ".headers.X-Mine has a prefix that is not text"),
        ("headers = { X-Mine = 3 }", ".headers.X-Mine must be a text"),
        ('headers = { X-Mine = "hunter2\\r\\nX: y" }', ".headers.X-Mine must be a text without line breaks"),
        ("headers = { 'X Mine' = 'a' }", ".headers: 'X Mine' is not a header that can be given"),
        ("headers = { Host = 'a' }", ".headers: 'Host' is not a header that can be given"),
        ("headers = { Accept = 'a', accept = 'b' }", ".headers names one twice"),
        ("headers = { idempotency-key = 'a' }", ".headers.Idempotency-Key is where the key travels"),
        ("key_header = 'a b'", ".key_header is 'a b'; allowed: the name of a header"),
        ("key_header = 'Authorization'", ".key_header is 'Authorization', which means something else"),
        ("provider_dedupes = 1", ".provider_dedupes is 1; allowed: true or false"),
        ("dedup_window = 600", ".dedup_window is how long a provider remembers a key; say provider_dedupes = true"),
        ("provider_dedupes = true\ndedup_window = 0", ".dedup_window is 0; allowed: seconds or text"),
        ("provider_dedupes = true\ndedup_window = true", ".dedup_window is True; allowed: seconds"),
        ("provider_dedupes = true\ndedup_window = 35", ".dedup_window is 35; allowed: more than the 35 seconds that"),
        (
            "on_unknown = 'resend'",
            '.on_unknown is \'resend\'; allowed: "ask" or "assume_done"; for a provider that drops',
        ),
        ("base_urll = 'x'", ".base_urll is unknown; did you mean 'base_url'?"),
        ("token = 'x'", ".token is unknown; allowed: base_url, headers, "),
    ],
)
def test_invalid_target_is_refused_in_a_line_without_secrets(mistakes, line, mistake):
    base = "" if line.startswith("base_url =") else "base_url = 'https://api.example.com'\n"
    [found] = mistakes(f"[http.target.payments]\n{base}{line}\n")

    assert found.startswith(f"http.target.payments{mistake}")
    assert "hunter2" not in found


@pytest.mark.parametrize("text", ["[http]\ntarget = 3", "[http]\ntarget.a = 3", "[[http.target]]\nbase_url = 'x'"])
def test_targets_must_be_tables_with_names(mistakes, text):
    assert mistakes(text) == ["http.target must be written as [http.target.NAME], once for each"]


def test_clear_text_secret_is_refused_unless_allowed(load, mistakes):
    plain = TARGET.replace("https:", "http:")
    [found] = mistakes(plain)

    assert found.startswith("http.target.payments: its secret would travel in clear text")
    load(plain + "allow_plain_http = true")
    load(plain.replace("api.example.com", "127.0.0.1:8000"))


def test_mistake_in_every_target_is_reported_together(mistakes):
    found = mistakes(
        """
        [http]
        allow_private = 1
        [http.target.a]
        on_unknown = "guess"
        [http.target.b]
        base_url = "https://b.example"
        key_header = ""
        [http.target."a b"]
        """
    )

    assert [line.partition(" ")[0] for line in found] == [
        "http.allow_private",
        "http.target.a.on_unknown",
        "http.target.a.base_url",
        "http.target.b.key_header",
        "http.target:",
    ]


def test_hostile_name_or_value_is_shown_on_a_single_short_line(mistakes):
    digits = "0x" + "f" * 10_000
    found = mistakes(f'"line\\nbreak" = 1\n[daemon]\nconcurrency = {digits}\npoll_seconds = "{"x" * 999}"\n')

    assert found[0].startswith("daemon.concurrency is a number of thousands of digits; ")
    assert len(found) == 3
    assert max(map(len, found)) < 200


def test_missing_file_is_refused_in_a_single_line(tmp_path):
    path = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigInvalid) as refused:
        Config.load(path)

    assert str(refused.value) == f"{path}: cannot be read: No such file or directory"
    assert refused.value.exit_code == 78


def test_directory_is_refused_in_a_single_line(tmp_path):
    with pytest.raises(ConfigInvalid, match=r"cannot be read: Is a directory$"):
        Config.load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_of_another_user_is_refused_in_a_single_line(tmp_path):
    path = tmp_path / "craftcore.toml"
    path.touch(mode=0o000)
    with pytest.raises(ConfigInvalid, match=r"cannot be read: Permission denied$"):
        Config.load(path)


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        (b"[daemon\n", "is not TOML"),
        (b"a = 1\na = 2\n", "is not TOML"),
        (b"a = " + b"[" * 100_000, "is not TOML"),
        (b"a = " + b"9" * 10_000, "is not TOML"),
        (b"[log]\nlevel = '\xff'\n", "is not UTF-8 text, at byte 15"),
        (b"#" * (1 << 20) + b"\n", "over 1048576 bytes"),
    ],
    ids=["broken", "twice", "deep", "huge number", "encoding", "too large"],
)
def test_file_with_invalid_toml_is_refused_in_a_single_line(tmp_path, content, mistake):
    path = tmp_path / "craftcore.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid) as refused:
        Config.load(path)

    [line] = str(refused.value).split("\n")
    assert line.startswith(f"{path}: {mistake}")


def test_reading_settings_loads_the_standard_library_only():
    """A command that only reads starts quickly. The script replaces the package's `__init__`, which is not measured."""
    script = """
import sys, types
package = types.ModuleType("craftcore")
package.__path__ = [sys.argv[1]]
sys.modules["craftcore"] = package
import craftcore.config
roots = {name.partition(".")[0] for name in sys.modules}
print(sorted(roots & {"anyio", "apsw", "asyncio", "msgspec", "rich", "structlog"}))
"""
    loaded = subprocess.run(
        [sys.executable, "-c", script, str(ROOT / "craftcore")], capture_output=True, text=True, check=True
    )

    assert loaded.stdout == "[]\n"
