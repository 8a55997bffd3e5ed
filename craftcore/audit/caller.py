"""The user who runs the command, as the operating system knows them.

Only what the caller cannot choose is believed: the user id of the process, and the id under which they logged in, which
Linux keeps through sudo and su. Not SUDO_UID: it is a variable of the environment, where anybody writes anything.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from craftcore.audit.model import Actor

LOGIN_UID = Path("/proc/self/loginuid")
NOBODY_LOGGED_IN = 2**32 - 1


def actor() -> Actor:
    """Return the user of this process, and the user who logged in where that is another."""
    uid = os.getuid()
    login = _login()
    if login is None or login == uid:
        return Actor(uid=uid, name=_name(uid))
    return Actor(uid=uid, name=_name(uid), login=Actor(uid=login, name=_name(login)))


def _login() -> int | None:
    try:
        uid = int(LOGIN_UID.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no Linux, or a kernel that does not keep it
        return None
    return None if uid == NOBODY_LOGGED_IN else uid


def _name(uid: int) -> str:
    """Return the name of a user; '' when there is none. A byte that is not text is escaped: `\\udcff`."""
    try:
        return pwd.getpwuid(uid).pw_name.encode("utf-8", "backslashreplace").decode()
    except KeyError:
        return ""
