"""The programs that the packages of `craftcore[test]` install, each beside the interpreter."""

from __future__ import annotations

import os
import platform
import shutil
import sysconfig

import pytest

MACHINES = ("x86_64", "aarch64", "arm64")
"""The machines that the packages of these programs are made for, as `pyproject.toml` says."""


def find_program(name: str, package: str) -> str:
    """Return the path of a program: in the folder of scripts of this interpreter, or on PATH.

    A missing program fails the test: an incomplete environment would otherwise leave tests out unnoticed. The test is
    skipped on a machine for which the package does not exist.
    """
    scripts = sysconfig.get_path("scripts")
    places = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    program = shutil.which(name, path=places)
    if program is not None:
        return program
    missing = f"the program {name} is neither in {scripts} nor on PATH: pip install {package}"
    if platform.machine() not in MACHINES:
        pytest.skip(missing)
    pytest.fail(missing, pytrace=False)
