"""Who calls the command, as the operating system knows them.

Only what the caller cannot choose is believed: the user id of the process, and the id under which they logged in, which
Linux keeps through sudo and su. Not SUDO_UID: it is a variable of the environment, where anybody writes anything.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from craftcore.storage.audit import Actor

LOGIN_UID = Path("/proc/self/loginuid")
NOBODY_LOGGED_IN = 2**32 - 1


def caller() -> str:
    """`ada (uid 1000)`; `uid 1000` where that user has no name."""
    return named(actor())


def actor() -> Actor:
    """The user of this process. Its name is '' where that user has none."""
    return _user(os.getuid())


def logged_in() -> Actor | None:
    """Who logged in, where that is somebody else than the user of this process; None also where nobody can tell."""
    try:
        uid = int(LOGIN_UID.read_text())
    except (OSError, ValueError):  # no Linux, or a kernel that does not keep it
        return None
    return None if uid in (os.getuid(), NOBODY_LOGGED_IN) else _user(uid)


def named(who: Actor) -> str:
    """`ada (uid 1000)`; `uid 1000` where that user has no name."""
    return f"{who.name} (uid {who.uid})" if who.name else f"uid {who.uid}"


def _user(uid: int) -> Actor:
    try:
        return Actor(uid=uid, name=pwd.getpwuid(uid).pw_name)
    except KeyError:
        return Actor(uid=uid, name="")
