"""The permitted reasons to skip a test: missing parts of a fresh machine. Any other skip is a failure.

A test that is skipped on every machine proves nothing, so each reason is listed here. `.ci/run` installs the programs
where it can, and `pytest -rs` prints the skipped tests.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from types import MappingProxyType

PERMITTED = {
    "root": r"only root (can|mounts|is let) .*",
    "a user who is not root": r"root may read every file",
    "a checkout that other users cannot read": r"(we are root, and nobody|only root can become nobody, who must) .*",
    "a Debian package": r".* \((Debian: (the package |apt-get install )?|apt-get install )[a-z0-9 -]+\).*"
    r"|no Chromium: apt-get install chromium",
    "a shell, openssl or curl": r"there is no (bash|zsh|fish)( here)?|openssl is not installed.*|.* curl, .* not here",
    "the rights to mount": r"(may not mount a small disk|mount|mkfs\.btrfs|losetup|btrfs)\b.*: .*",
    "user namespaces": r"this machine lets nobody have users of their own \(unshare --user\)",
    "a kernel that names the holders of locks": r"this kernel does not say who holds which lock",
    "another version of dovecot": r"dovecot is .*, and these settings are for 2\.3",
    "a mirror of Debian": r"debootstrap made no .*|what craftcore needs cannot be downloaded: .*",
    "the rights to boot a container": r"systemd-nspawn boots no Debian here: .*",
}
"""The missing programs, each with a pattern of the whole reason."""

OTHER_PLATFORMS = {"programs of wheels": r".*: pip install [a-z-]+-bin\b.*"}
"""Reasons on platforms for which the lock file has no such wheel."""

PLATFORMS_OF_PROGRAMS = ("x86_64", "aarch64", "arm64")


def is_permitted(
    reason: str, machine: str = platform.machine(), permitted: Mapping[str, str] = MappingProxyType(PERMITTED)
) -> bool:
    """Return whether a fresh machine of this kind may skip a test for the reason."""
    patterns = [*permitted.values(), *(OTHER_PLATFORMS.values() if machine not in PLATFORMS_OF_PROGRAMS else ())]
    return any(re.fullmatch(pattern, reason, re.DOTALL) for pattern in patterns)
