"""Who calls the command, as the operating system knows them."""

from __future__ import annotations

import os
import pwd


def caller() -> str:
    """`ada (uid 1000)`; `uid 1000` where that user has no name."""
    uid = os.getuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
