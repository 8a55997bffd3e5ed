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

    Without it the test fails: an environment that is not installed in full would leave tests out, and nobody would
    notice. On a machine that has no such package the test is skipped.
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
