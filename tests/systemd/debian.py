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
"""The required programs, and the Debian package of each."""

CACHE_VARIABLE = "BOOTED_ROOT"
"""The environment variable with the folder where the Debian is kept between runs."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOTSTRAP_SECONDS = 900.0


class Unavailable(Exception):
    """The machine lacks what these tests need, as the text explains; craftcore has no fault."""


def require_programs() -> None:
    """Check for root and the required programs. Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable("only root can make a Debian and boot it (debootstrap, systemd-nspawn)")
    if missing := [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]:
        packages = " ".join(sorted({PROGRAMS[name] for name in missing}))
        raise Unavailable(f"not installed: {', '.join(missing)} (Debian: apt-get install {packages})")


def make(root: Path) -> None:
    """Make a Debian in the new folder `root`; copy it from the cache if there is one. Raises Unavailable."""
    require_programs()
    cache = os.environ.get(CACHE_VARIABLE)
    if not cache:
        _bootstrap(root)
        return
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()
    original = Path(cache).absolute() / f"{SUITE}-{digest[:8]}"
    if not original.exists():
        original.parent.mkdir(parents=True, exist_ok=True)
        draft = original.with_name(f"{original.name}.{os.getpid()}")
        _bootstrap(draft)
        draft.rename(original)
    subprocess.run(["cp", "--archive", "--reflink=auto", original, root], check=True)


def _bootstrap(root: Path) -> None:
    # Namespaces of its own: after a failure, only the folder is left on the host.
    isolation = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    log = root.with_name(f"{root.name}.log")
    try:
        with log.open("wb") as output:
            subprocess.run(
                [*isolation, "debootstrap", *options, SUITE, root],
                env={**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=BOOTSTRAP_SECONDS,
                check=True,
            )
    except subprocess.SubprocessError as error:
        shutil.rmtree(root, ignore_errors=True)
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"debootstrap made no {SUITE} here: {' '.join(last) or error}") from error
