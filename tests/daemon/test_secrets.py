"""References to secrets: the value is read from its source, and no error contains it."""

from __future__ import annotations

import os
import traceback

import pytest

from craftcore.config.references import secret_reference
from craftcore.daemon.secrets import SECRET_MAX_BYTES, Secrets
from craftcore.outcome_exceptions import NoEffect

CANARY = "correct horse battery staple"


@pytest.fixture
def credentials(tmp_path):
    """Return a function that writes a credential into a directory like that of systemd."""

    def put(name: str, content: bytes) -> Secrets:
        (tmp_path / name).write_bytes(content)
        return Secrets({"CREDENTIALS_DIRECTORY": str(tmp_path)})

    return put


def refusal(secrets: Secrets, reference: str) -> str:
    """Return the message of the refusal, after checking that no part of the error contains the canary."""
    with pytest.raises(NoEffect) as refused:
        secrets.get(reference)
    error = refused.value
    assert error.__context__ is None or isinstance(error.__context__, OSError)
    assert CANARY not in "".join(traceback.format_exception(error))
    return str(error)


def test_secret_from_the_environment_is_taken_literally():
    secrets = Secrets({"SMTP_PASSWORD": f" {CANARY}\n"})

    assert secrets.get("env:SMTP_PASSWORD") == f" {CANARY}\n"


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (CANARY.encode(), CANARY),
        (f"{CANARY}\n".encode(), CANARY),
        (f"{CANARY}\n\n".encode(), f"{CANARY}\n"),
        (f" {CANARY}\r".encode(), f" {CANARY}\r"),
        ("пароль\n".encode(), "пароль"),
        (b"x" * SECRET_MAX_BYTES, "x" * SECRET_MAX_BYTES),
    ],
)
def test_secret_from_a_credential_file_loses_the_final_line_break(credentials, content, secret):
    assert credentials("smtp-password", content).get("credential:smtp-password") == secret


def test_byte_order_mark_is_not_part_of_a_secret(credentials):
    assert credentials("token", b"\xef\xbb\xbf" + CANARY.encode()).get("credential:token") == CANARY


def test_replaced_secret_is_read_again(credentials):
    """The secret is read at each use and is not cached."""
    secrets = credentials("token", b"old")
    assert secrets.get("credential:token") == "old"

    credentials("token", b"new")

    assert secrets.get("credential:token") == "new"


def test_missing_environment_secret_is_named_with_a_remedy():
    assert refusal(Secrets({}), "env:SMTP_PASSWORD") == (
        "the secret env:SMTP_PASSWORD is not there: set SMTP_PASSWORD in the environment of this process, "
        "and start it again"
    )


def test_credential_outside_a_unit_is_refused_with_instructions():
    message = refusal(Secrets({}), "credential:smtp-password")

    assert message.startswith("the secret credential:smtp-password cannot be looked up")
    assert "LoadCredential=smtp-password:/path/to/its/file" in message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (CANARY.encode() + b"\xff", "is not UTF-8 text"),
        (CANARY.encode() * SECRET_MAX_BYTES, f"is longer than {SECRET_MAX_BYTES} bytes"),
    ],
)
def test_unusable_credential_is_refused_by_name(credentials, content, complaint):
    message = refusal(credentials("smtp-password", content), "credential:smtp-password")

    assert message.startswith(f"the secret credential:smtp-password {complaint}")


@pytest.mark.parametrize("text", ["", f"{CANARY}\udcff"])
def test_unusable_variable_is_refused_by_name(text):
    assert refusal(Secrets({"TOKEN": text}), "env:TOKEN").startswith("the secret env:TOKEN is ")


def test_missing_credential_file_is_refused(tmp_path):
    """A folder and a named pipe are also refused, without a wait for a writer of the pipe."""
    secrets = Secrets({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    assert "cannot be read from $CREDENTIALS_DIRECTORY (No such file or directory)" in refusal(secrets, "credential:no")
    assert "folder" in refusal(secrets, "credential:folder")
    assert "is not a file in $CREDENTIALS_DIRECTORY" in refusal(secrets, "credential:pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_credential_of_another_user_is_refused(credentials, tmp_path):
    secrets = credentials("token", CANARY.encode())
    (tmp_path / "token").chmod(0o000)

    assert "cannot be read" in refusal(secrets, "credential:token")


INVALID_REFERENCES = [
    "",
    CANARY,
    "env:",
    "env:A-B",
    "env:A=B",
    "env:2FA",
    "env:A\n",
    "ENV:A",
    "credential:",
    "credential:.",
    "credential:..",
    "credential:../shadow",
    "credential:a/b",
    "credential:/etc/shadow",
    "credential:a b",
    "credential:a\0b",
    "credential:a:b",
    "credential:" + "a" * 201,
    "file:/etc/shadow",
    None,
    3,
]


@pytest.mark.parametrize("text", INVALID_REFERENCES)
def test_text_that_is_not_a_reference_is_neither_resolved_nor_shown(text, tmp_path):
    """The text may be the secret itself, given in place of its reference."""
    assert secret_reference(text) is None
    message = refusal(Secrets({"CREDENTIALS_DIRECTORY": str(tmp_path)}), text)
    assert message.startswith('a secret is named as "env:NAME"')


@pytest.mark.parametrize(
    ("text", "scheme", "name"),
    [
        ("env:SMTP_PASSWORD", "env", "SMTP_PASSWORD"),
        ("env:_a1", "env", "_a1"),
        ("credential:smtp-password", "credential", "smtp-password"),
        ("credential:...", "credential", "..."),
        ("credential:me@example.org", "credential", "me@example.org"),
    ],
)
def test_secret_reference_has_a_kind_and_a_name(text, scheme, name):
    assert secret_reference(text) == (scheme, name)


def test_secret_holder_shows_no_secret():
    assert CANARY not in repr(Secrets({"TOKEN": CANARY}))
