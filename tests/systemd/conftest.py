"""Fixtures of a Debian with craftcore, a machine booted from it, and a new unit for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Result
from tests.systemd import debian, installing
from tests.systemd.machine import Machine, booted_machine
from tests.systemd.service import Service


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Path, Result]]:
    """Yield the root of a Debian after the commands of the page, and their result. Skip without a Debian."""
    with tempfile.TemporaryDirectory(prefix="craftcore-booted-") as name:
        folder = Path(name)
        try:
            debian.require_programs()
            wheels = installing.build_wheels(folder)
            debian.make(folder / "debian")
            installed = installing.install(folder / "debian", wheels)
        except debian.Unavailable as reason:
            pytest.skip(str(reason))
        yield folder / "debian", installed


@pytest.fixture(scope="module")
def machine(server: tuple[Path, Result]) -> Iterator[Machine]:
    with booted_machine(server[0]) as machine:
        yield machine


@pytest.fixture
def service(machine: Machine) -> Service:
    return Service(machine)
