"""Where secrets come from: the environment, and the credentials that systemd hands to a unit.

Settings name them, and nothing but what needs one asks for its text, when it needs it. The text never appears in a
setting, an argument, a record or an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from craftcore.config.references import REFERENCE_SAID, secret_reference
from craftcore.files import NoRegularFile, open_regular
from craftcore.outcome_exceptions import NoEffect
from craftcore.serialization.untrusted import is_text

SECRET_MAX_BYTES = 64 << 10
DIRECTORY = "CREDENTIALS_DIRECTORY"


class Secrets:
    """The secrets that this environment leads to, looked up each time: a variable, or a file that may be replaced."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, reference: str) -> str:
        """Return the text behind `env:NAME` or `credential:NAME`; of a file without the line break at its end.

        Raises NoEffect, with the reference and what to do: nothing was sent yet, and another attempt may find it.
        """
        found = secret_reference(reference)
        if found is None:
            raise NoEffect(f"a secret is named as {REFERENCE_SAID}")
        text = self._variable(found.name) if found.scheme == "env" else self._credential(found.name)
        if not text:
            raise NoEffect(f"the secret {reference} is empty: give it its text")
        return text

    def _variable(self, name: str) -> str:
        if name not in self._environ:
            raise NoEffect(
                f"the secret env:{name} is not there: set {name} in the environment of this process, and start it again"
            )
        text = self._environ[name]
        if not is_text(text):
            raise NoEffect(f"the secret env:{name} is not UTF-8 text: set {name} to text")
        return text

    def _credential(self, name: str) -> str:
        directory = self._environ.get(DIRECTORY)
        if not directory:
            raise NoEffect(
                f"the secret credential:{name} cannot be looked up, for ${DIRECTORY} is not set: run this process as a "
                f"systemd unit with LoadCredential={name}:/path/to/its/file"
            )
        content = _content(Path(directory, name))
        if isinstance(content, str):
            raise NoEffect(f"the secret credential:{name} {content}; see LoadCredential= of the systemd unit")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = None  # raised below: the error has the content with it, and would stay in the context of ours
        if text is None:
            raise NoEffect(f"the secret credential:{name} is not UTF-8 text: put text into its file")
        return text.removesuffix("\n")


def get_process_secret(reference: str) -> str:
    """Return the text behind a reference in the environment of this process. Raises NoEffect."""
    return Secrets(os.environ).get(reference)


def _content(path: Path) -> bytes | str:
    """Return what is in the file, or what is wrong with it, in words."""
    try:
        with open_regular(path) as file:
            content = file.read(SECRET_MAX_BYTES + 1)
    except NoRegularFile:
        return f"is not a file in ${DIRECTORY}"
    except OSError as error:
        return f"cannot be read from ${DIRECTORY} ({error.strerror})"
    return content if len(content) <= SECRET_MAX_BYTES else f"is longer than {SECRET_MAX_BYTES} bytes"
