"""The installation of craftcore on a server: the wheel and its dependencies, by docs/how-to/deploy-with-systemd.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.processes import Result
from tests.systemd import debian
from tests.systemd.debian import Unavailable
from tests.systemd.machine import booted_machine

ROOT = Path(__file__).parents[2]
SOURCES = [
    "craftcore",
    "migrations",
    "config",
    "systemd",
    "pyproject.toml",
    "requirements.lock",
    "README.md",
    "LICENSE",
]
WHEEL_SECONDS = 600.0


def read_steps(name: str, page_name: str = "deploy-with-systemd.md") -> str:
    """Return the code block under this mark of a page of docs/how-to/."""
    page = (ROOT / "docs" / "how-to" / page_name).read_text(encoding="utf-8")
    [found] = re.findall(rf"<!-- booted: {name} -->\n```\w+\n(.*?)```", page, re.DOTALL)
    return str(found)


def build_wheels(folder: Path) -> Path:
    """Build the wheels in a copy of the sources, as on the page; return their folder. Raises Unavailable offline."""
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree)
    download, wheel = read_steps("gather").splitlines()
    server_python = {"PIP_PYTHON_VERSION": debian.PYTHON}  # the page requires the same Python on both machines
    if (done := _run_line(download, tree, **server_python)).code != 0:
        raise Unavailable(f"what craftcore needs cannot be downloaded: {' '.join(done.err.strip().splitlines()[-1:])}")
    done = _run_line(wheel, tree)
    assert done.code == 0, done.err
    return tree / "dist"


def install(root: Path, wheels: Path) -> Result:
    """Boot the Debian, run the commands of the page, power off, and return the result of the commands."""
    shutil.copytree(wheels, root / "root" / "dist")
    with booted_machine(root) as machine:
        done = machine.run("bash", "-eu", "-c", f"cd /root\n{read_steps('install')}")
        machine.power_off()
    return done


def _run_line(line: str, folder: Path, **env: str) -> Result:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **env}
    ended = subprocess.run(
        ["bash", "-eu", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=WHEEL_SECONDS
    )
    return Result(code=ended.returncode, out=ended.stdout, err=ended.stderr)
