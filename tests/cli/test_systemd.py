"""`craftcore systemd`: the printed units equal the installed ones, and existing files are not overwritten."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

import pytest

from craftcore.cli.service.units import SYSTEM, find_program, hidden_directory, list_units, render, user_scope
from craftcore.errors import InvalidInput, NotFound
from tests.cli.test_permissions import as_nobody, folder, is_reachable_by_others
from tests.test_systemd_units import SYSTEM_UNIT, USER_UNIT, analyze, needs_systemd

__all__ = ["analyze", "folder"]

PROGRAM = "/opt/craftcore/bin/craftcore"
NEXT = "  systemctl daemon-reload && systemctl enable --now craftcore"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return the root of another system's files."""
    (tmp_path / "image").mkdir()
    return tmp_path / "image"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def install(cli, image):
    return lambda *more: cli("systemd", "install", "--program", PROGRAM, "--root", str(image), *more)


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def start_of(unit: str) -> str:
    [line] = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return line.removeprefix("ExecStart=")


def test_systemd_install_writes_the_unit_and_the_environment_file(install, image):
    done = install()

    assert (done.code, done.err) == (0, "")
    unit, environment = image / "etc/systemd/system/craftcore.service", image / "etc/craftcore/environment"
    assert set(everything(image)) == {str(path.relative_to(image)) for path in (unit, environment)}
    assert unit.read_text() == SYSTEM_UNIT.read_text().replace("env craftcore", f"env {PROGRAM}")
    assert start_of(unit.read_text()) == f"/usr/bin/env {PROGRAM} run $CRAFTCORE_APP"
    assert all(line.startswith("#") for line in environment.read_text().splitlines())
    assert "#CRAFTCORE_CONFIG=/etc/craftcore/craftcore.toml\n" in environment.read_text()
    assert done.out.splitlines()[-1] == NEXT
    assert f"wrote {unit}" in done.out


def test_installed_file_modes_do_not_depend_on_the_umask(install, image):
    umask = os.umask(0)
    try:
        install()
    finally:
        os.umask(umask)

    assert mode(image / "etc/systemd/system/craftcore.service") == 0o644
    assert mode(image / "etc/craftcore/environment") == 0o600
    assert {mode(path) for path in image.rglob("*") if path.is_dir()} == {0o755}


def test_systemd_print_matches_the_installed_unit(cli, install, image):
    printed = cli("systemd", "print", "--program", PROGRAM)
    document = cli("--json", "systemd", "print", "--program", PROGRAM).json
    install()

    unit = (image / "etc/systemd/system/craftcore.service").read_text()
    assert printed.out == f"# /etc/systemd/system/craftcore.service\n{unit}"
    assert document["units"] == [
        {"name": "craftcore.service", "path": "/etc/systemd/system/craftcore.service", "text": unit}
    ]
    assert document["environment_file"] == "/etc/craftcore/environment"


def test_systemd_install_a_second_time_writes_nothing(install, image):
    install()
    environment = image / "etc/craftcore/environment"
    environment.write_text("CRAFTCORE_APP=mine:app\n")
    before = everything(image)

    again = install("--json")

    assert again.json["written"] == []
    assert again.json["next"] == [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", "craftcore"]]
    assert everything(image) == before
    assert "the units are as they should be" in install().out


def test_changed_unit_is_left_alone_and_the_difference_is_shown(install, image):
    install()
    unit = image / "etc/systemd/system/craftcore.service"
    shipped_text = unit.read_text()
    unit.write_text(shipped_text.replace("WatchdogSec=30", "WatchdogSec=\x1b[31m90"))
    before = everything(image)

    refused, document = install(), install("--json")

    assert (refused.code, document.code) == (73, 73)
    assert "add --yes" in refused.err
    assert "systemctl edit craftcore.service" in refused.err
    assert "-WatchdogSec=\\x1b[31m90\n+WatchdogSec=30\n" in refused.out
    assert "+WatchdogSec=30" in document.json["error"]["diff"]
    assert everything(image) == before

    assert install("--yes").code == 0
    assert unit.read_text() == shipped_text


def test_environment_file_is_never_replaced(install, image):
    environment = image / "etc/craftcore/environment"
    environment.parent.mkdir(parents=True)
    environment.write_text("CRAFTCORE_APP=mine:app\n")

    assert install("--yes").code == 0

    assert environment.read_text() == "CRAFTCORE_APP=mine:app\n"


def test_masked_unit_is_not_overwritten(install, image):
    unit = image / "etc/systemd/system/craftcore.service"
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/dev/null")

    assert install().code == 73
    refused = install("--yes")

    assert refused.code == 73
    assert "is left as it is" in refused.err
    assert unit.is_symlink()


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a second name"])
def test_unit_path_that_is_not_a_plain_file_is_left_alone(install, image, kind):
    unit, foreign = image / "etc/systemd/system/craftcore.service", image / "theirs"
    unit.parent.mkdir(parents=True)
    foreign.write_text("theirs")
    match kind:
        case "a link":
            unit.symlink_to(foreign)
        case "a pipe":
            os.mkfifo(unit)
        case _:
            os.link(foreign, unit)

    refused = install("--yes")

    assert refused.code == 73, refused
    assert foreign.read_text() == "theirs"


def test_user_units_are_written_to_the_home_directory(cli, home):
    done = cli("systemd", "install", "--user", "--program", PROGRAM)

    assert done.code == 0
    assert set(everything(home)) == {".config/systemd/user/craftcore.service", ".config/craftcore/environment"}
    unit = home / ".config/systemd/user/craftcore.service"
    assert unit.read_text() == USER_UNIT.read_text().replace("env craftcore", f"env {PROGRAM}")
    assert (mode(unit), mode(home / ".config/craftcore")) == (0o644, 0o700)
    assert done.out.splitlines()[-1] == ("  systemctl --user daemon-reload && systemctl --user enable --now craftcore")
    assert "EnvironmentFile=-%h/.config/craftcore/environment" in unit.read_text()


def test_user_unit_uses_the_program_of_the_running_python(cli, home, tmp_path, monkeypatch):
    """The program of the running Python works from a virtual environment."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    beside = tmp_path / "bin" / "craftcore"
    beside.parent.mkdir()
    beside.touch(mode=0o755)

    assert cli("systemd", "install", "--user").code == 0

    unit = (home / ".config/systemd/user/craftcore.service").read_text()
    assert shlex.split(start_of(unit))[:2] == ["/usr/bin/env", str(beside)]
    assert os.access(shlex.split(start_of(unit))[1], os.X_OK)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is let into the home of another")
def test_root_cannot_install_user_units_for_another_user(cli, home):
    os.chown(home, 65534, 65534)

    refused = cli("systemd", "install", "--user", "--program", PROGRAM)

    assert refused.code == 77
    assert "without sudo" in refused.err
    assert everything(home) == {}


@pytest.mark.skipif(
    os.geteuid() == 0
    and not (is_reachable_by_others(Path(__file__)) and is_reachable_by_others(Path(sys.prefix) / "bin")),
    reason="we are root, and nobody cannot come to this checkout and its environment",
)
def test_systemd_install_without_write_permission_suggests_root_or_user(folder):
    folder.chmod(0o555)

    refused = as_nobody(folder, "systemd", "install", "--root", str(folder), "--program", PROGRAM)

    assert (refused.code, refused.out) == (77, "")
    assert "). It takes root (sudo), or --user" in refused.err
    assert os.listdir(folder) == []


def test_program_invisible_to_a_system_unit_is_refused(cli):
    refused = cli("systemd", "install", "--program", "/home/ada/venv/bin/craftcore")

    assert refused.code == 64
    assert "/home/ada/venv/bin/craftcore is in /home, which a system unit cannot see" in refused.err
    assert not Path("/etc/systemd/system/craftcore.service").exists()
    assert "will not find it" in cli("systemd", "print", "--program", "/root/craftcore").err


def test_program_symlink_is_resolved_before_the_visibility_check(tmp_path):
    link = tmp_path / "craftcore"
    link.symlink_to("/root/venv/bin/craftcore")

    assert "/root" in str(hidden_directory(str(link))) or "/tmp" in str(hidden_directory(str(link)))
    assert hidden_directory("/opt/craftcore/bin/craftcore") is None


@pytest.mark.parametrize(
    "program", ["craftcore", "/opt/100%/craftcore", "/a=b/craftcore", "/a\nExecStop=/bad", '/a"b', "/$x"]
)
def test_program_path_with_systemd_syntax_is_refused(cli, image, program):
    refused = cli("systemd", "install", "--root", str(image), "--program", program)

    assert refused.code == 64
    assert "cannot stand in a unit" in refused.err
    assert everything(image) == {}


@needs_systemd
@pytest.mark.parametrize("program", [PROGRAM, "/opt/my programs/bin/craftcore"])
@pytest.mark.parametrize(("scope", "flag"), [(SYSTEM, "--system"), (user_scope(Path("/h")), "--user")], ids=str)
def test_rendered_units_pass_systemd_verification(analyze, tmp_path, scope, flag, program):
    for name, text in list_units(scope, backup=False).items():
        unit = tmp_path / name
        unit.write_text(render(text, program))

        verified = analyze(flag, "verify", unit)

        assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
        assert shlex.split(start_of(unit.read_text()))[:3] == ["/usr/bin/env", program, "run"]


@pytest.mark.parametrize(("scope", "flag"), [(SYSTEM, "--system"), (user_scope(Path("/h")), "--user")], ids=str)
@needs_systemd
def test_rendered_page_unit_passes_systemd_verification(analyze, tmp_path, scope, flag):
    texts = list_units(scope, web=True)
    for name, text in texts.items():
        (tmp_path / name).write_text(render(text, PROGRAM))

    verified = analyze(flag, "verify", tmp_path / "craftcore-web.service")

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert list(texts) == ["craftcore.service", "craftcore-web.service"]


def test_page_unit_is_installed_with_an_environment_file_of_its_own(install, image):
    done = install("--web", "--json")

    assert done.json["next"][-1] == ["systemctl", "enable", "--now", "craftcore", "craftcore-web"]
    unit, environment = image / "etc/systemd/system/craftcore-web.service", image / "etc/craftcore/web-environment"
    assert {str(unit), str(environment)} <= set(done.json["written"])
    assert start_of(unit.read_text()) == f"/usr/bin/env {PROGRAM} web"
    assert f"EnvironmentFile=-/{environment.relative_to(image)}\n" in unit.read_text()
    assert (mode(unit), mode(environment)) == (0o644, 0o600)
    assert all(line.startswith("#") for line in environment.read_text().splitlines())
    environment.write_text("CRAFTCORE_CONFIG=/srv/mine.toml\n")

    again = install("--web", "--backup", "--yes")

    assert environment.read_text() == "CRAFTCORE_CONFIG=/srv/mine.toml\n"
    assert again.out.splitlines()[-1] == f"{NEXT} craftcore-web craftcore-backup.timer"
    assert "people of the page in [web]" in again.out


def test_page_unit_of_a_user_is_written_to_the_home_directory(cli, home):
    assert cli("systemd", "install", "--user", "--web", "--program", PROGRAM).code == 0

    written = everything(home)
    assert set(written) == {
        *(f".config/systemd/user/{name}" for name in ("craftcore.service", "craftcore-web.service")),
        *(f".config/craftcore/{name}" for name in ("environment", "web-environment")),
    }
    assert (
        "EnvironmentFile=-%h/.config/craftcore/web-environment" in written[".config/systemd/user/craftcore-web.service"]
    )


def test_backup_units_are_included_only_on_request(tmp_path):
    for name in ("craftcore.service", "craftcore-backup.service", "craftcore-backup.timer", "other.service"):
        (tmp_path / name).write_text("[Service]\nExecStart=/usr/bin/env craftcore db backup\n")

    units = list_units(SYSTEM, backup=True, places=(tmp_path,))

    assert list(units) == ["craftcore.service", "craftcore-backup.service", "craftcore-backup.timer"]
    assert "env /opt/x/craftcore db backup" in render(units["craftcore-backup.service"], "/opt/x/craftcore")
    assert list(list_units(SYSTEM, backup=False, places=(tmp_path,))) == ["craftcore.service"]


def test_backup_install_also_enables_the_timer(install, image):
    timers = sorted(SYSTEM_UNIT.parent.glob("craftcore-backup.timer"))

    done = install("--backup", "--json")

    if timers:
        assert done.json["next"][-1] == ["systemctl", "enable", "--now", "craftcore", "craftcore-backup.timer"]
    else:
        assert (done.code, everything(image)) == (10, {})


def test_missing_backup_units_are_reported(tmp_path):
    (tmp_path / "craftcore.service").write_text("")

    with pytest.raises(NotFound, match="ships no units of a backup"):
        list_units(SYSTEM, backup=True, places=(tmp_path,))


def test_program_must_be_named_when_craftcore_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    with pytest.raises(InvalidInput, match="--program"):
        find_program()


def test_rendered_unit_replaces_every_program_path():
    for unit in (SYSTEM_UNIT, USER_UNIT):
        assert "env craftcore" in unit.read_text()
        assert "env craftcore" not in render(unit.read_text(), PROGRAM)


def test_root_option_is_refused_for_user_units(cli, image):
    assert cli("systemd", "install", "--user", "--root", str(image)).code == 64
