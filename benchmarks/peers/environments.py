"""A virtual environment for each peer, in a folder that outlives the run: a second run installs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INSTALL_SECONDS_MAX = 240


class NotInstalled(Exception):
    """The packages of a system could not be installed. The message has the reason."""


def python_of(folder: Path, requirements: tuple[str, ...]) -> str:
    """Return the interpreter that has these packages, pinned. Raises NotInstalled.

    pip asks the index that this machine is configured for.
    """
    if not requirements:
        return sys.executable
    here = folder / "-".join(requirements).replace("==", "-").replace("[", "-").replace("]", "")
    python, complete = here / "bin" / "python", here / "complete"
    if not complete.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(here)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
        complete.touch()
    return str(python)


def _run(command: list[str]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"the installation took longer than {INSTALL_SECONDS_MAX} s") from error
    except OSError as error:
        raise NotInstalled(str(error)) from error
    if ended.returncode != 0:
        raise NotInstalled(last_line(ended.stderr) or f"exit status {ended.returncode}")


def last_line(text: str) -> str:
    """Return the last line that says something: an error names its reason there."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
