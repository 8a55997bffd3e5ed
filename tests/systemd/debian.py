"""A small Debian with systemd in a folder, made by debootstrap, and a check that this machine can make and boot one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

SUITE = "bookworm"
PYTHON = "3.11"
PACKAGES = ["systemd", "systemd-sysv", "dbus", "libpam-systemd", "python3", "python3-venv"]

PROGRAMS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""What it takes, and the Debian package of each."""

KEPT = "BOOTED_ROOT"
"""The variable that names a folder where the Debian is kept from one run to the next."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAKING_SECONDS = 900.0


class Unavailable(Exception):
    """This machine cannot show it; the text says why. It is no fault of craftcore's."""


def require_programs() -> None:
    """Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable("only root can make a Debian and boot it (debootstrap, systemd-nspawn)")
    if missing := [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]:
        packages = " ".join(sorted({PROGRAMS[name] for name in missing}))
        raise Unavailable(f"not installed: {', '.join(missing)} (Debian: apt-get install {packages})")


def make(root: Path) -> None:
    """Make a Debian at `root`, which is not there yet: a copy of the kept one, if one is kept. Raises Unavailable."""
    require_programs()
    kept = os.environ.get(KEPT)
    if not kept:
        _bootstrap(root)
        return
    made_of = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()
    original = Path(kept).absolute() / f"{SUITE}-{made_of[:8]}"
    if not original.exists():
        original.parent.mkdir(parents=True, exist_ok=True)
        draft = original.with_name(f"{original.name}.{os.getpid()}")
        _bootstrap(draft)
        draft.rename(original)
    subprocess.run(["cp", "--archive", "--reflink=auto", original, root], check=True)


def _bootstrap(root: Path) -> None:
    # Mounts and processes of its own: whatever becomes of it, nothing of it is left on this machine but the folder.
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    log = root.with_name(f"{root.name}.log")
    try:
        with log.open("wb") as said:
            subprocess.run(
                [*apart, "debootstrap", *options, SUITE, root],
                env={**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=MAKING_SECONDS,
                check=True,
            )
    except subprocess.SubprocessError as error:
        shutil.rmtree(root, ignore_errors=True)
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"debootstrap made no {SUITE} here: {' '.join(last) or error}") from error
