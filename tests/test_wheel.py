"""The wheel: its list of files by default, and its build and installation with `-m packaging`.

The test of the installation runs outside of the repository, with the runtime dependencies alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from craftcore.diagnostics.invariants import list_invariants
from tests.support.processes import PATIENCE, environment

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command, require exit code 0, and return its standard output."""
    child = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=PATIENCE
    )
    assert child.returncode == 0, f"{command}: {child.returncode}\n{child.stdout}\n{child.stderr}"
    return child.stdout


def requirements(name: str) -> Iterator[str]:
    """Yield the distributions that an installed one requires without its extras, and their own requirements."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name
            yield from requirements(requirement.name)


def link(name: str, site: Path) -> None:
    """Make an installed distribution importable from the folder `site`."""
    installed = distribution(name)
    for top in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(installed.locate_file(top))))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` of a virtual environment with the wheel and its requirements."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", "--no-deps", wheel, cwd=folder)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    for name in {*requirements("craftcore")}:
        link(name, site)
    return python.parent


def test_wheel_takes_each_file_of_the_package_and_no_other():
    taken = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}

    sources = {"craftcore": "", "migrations": "craftcore/", "config": "craftcore/_shipped/"}
    sources["systemd"] = sources["config"]
    kept = {
        sources[folder] + file.relative_to(ROOT).as_posix()
        for folder in sources
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.parent.name != "__pycache__"
    }
    assert taken == kept
    assert {"craftcore/web/static/page.js", "craftcore/_shipped/systemd/craftcore.service"} <= taken


@pytest.mark.packaging
def test_wheel_runs_an_app_outside_of_the_repository(installed, tmp_path):
    craftcore, agent = installed / "craftcore", tmp_path / "agent"
    run(craftcore, "init", "agent", cwd=tmp_path)
    settings = {"CRAFTCORE_DB": str(agent / "agent.db"), "CRAFTCORE_CONFIG": str(agent / "craftcore.toml")}

    run(craftcore, "check", "app:app", cwd=agent, **settings)
    emitted = run(craftcore, "--json", "emit", "greet", "--payload", '{"name": "Ada"}', cwd=agent, **settings)
    run(craftcore, "run", "app:app", "--until-idle", cwd=agent, **settings)
    execution = f"exec-{json.loads(emitted)['id']}.1"
    replayed = run(craftcore, "replay", execution, cwd=agent, **settings)

    assert "Hello, Ada!" in replayed
    assert run(craftcore, "--version", cwd=tmp_path) == f"craftcore {distribution('craftcore').version}\n"


@pytest.mark.packaging
def test_wheel_has_its_own_migrations_invariants_settings_and_units(installed, tmp_path):
    where = (
        "from craftcore.cli.init import SETTINGS\n"
        "from craftcore.cli.service.units import SHIPPED\n"
        "from craftcore.diagnostics.invariants import list_invariants\n"
        "from craftcore.storage import migrations\n"
        "folders = [next(place for place in places if place.is_dir()) for places in (SETTINGS, SHIPPED)]\n"
        "print(migrations.__file__, migrations.list_migrations()[0].name, len(list_invariants()), *folders)\n"
    )
    module, first, invariants, *shipped = run(installed / "python", "-c", where, cwd=tmp_path).split()

    site = next((installed.parent / "lib").glob("python*/site-packages"))
    assert Path(module) == site / "craftcore" / "storage" / "migrations.py"
    assert shipped == [str(site / "craftcore" / "_shipped" / name) for name in ("config", "systemd")]
    assert first == "0001_triggers_and_executions"
    assert int(invariants) == len(list_invariants())


@pytest.mark.packaging
def test_wheel_needs_no_extra(installed, tmp_path):
    listed = run(sys.executable, "-m", "pip", "--python", installed / "python", "list", "--format=json", cwd=tmp_path)

    names = {each["name"].replace("-", "_") for each in json.loads(listed)}
    assert {"craftcore", "anyio", "apsw", "click", "structlog"} <= names
    assert names.isdisjoint({"rich", "httpx2", "aiosmtplib", "prometheus_client", "trio", "pytest"})


@pytest.mark.packaging
def test_wheel_has_the_templates_and_files_of_the_page(installed, tmp_path):
    program = (
        "import craftcore, pathlib; package = pathlib.Path(craftcore.__file__).parent / 'web';"
        "print(*sorted(str(file.relative_to(package)) for folder in ('templates', 'static')"
        " for file in (package / folder).rglob('*.*')), sep='\\n')"
    )
    shipped = run(installed / "python", "-c", program, cwd=tmp_path).split()

    web = ROOT / "craftcore" / "web"
    kept = [file for folder in ("templates", "static") for file in (web / folder).rglob("*.*")]
    assert shipped == sorted(str(file.relative_to(web)) for file in kept)
    assert {"templates/base.html", "static/page.css", "static/page.js"} <= set(shipped)
