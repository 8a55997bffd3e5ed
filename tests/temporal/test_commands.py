"""The commands on a cluster: help pages, the address of the cluster, and error messages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from craftcore.cli import main
from craftcore.cli.base import Command
from craftcore.cli.root import root
from craftcore.cli.temporal.cluster_group import temporal
from craftcore.temporal.cluster_lacks import COMMANDS as LACKED
from tests.support.commands import commands

REFERENCE = Path(__file__).parents[2] / "docs/reference/cli.md"
UNREACHABLE = "127.0.0.1:1"


COMMANDS = {name: command for name, command in commands(temporal, "temporal") if isinstance(command, Command)}

SHARED = {
    name: command for name, command in commands() if isinstance(command, Command) and command.on_cluster is not None
}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_page_of_a_command_has_every_section(capsys, name):
    code, page, _ = run(capsys, *name.split(), "--help")
    assert code == 0
    assert max(map(len, page.splitlines())) <= 80
    for part in ("Options:", "Global options:", "Exit codes, beyond 0 and 64:", "See also:", "Examples:"):
        assert f"\n{part}\n" in page
    for param in COMMANDS[name].params:
        assert not isinstance(param, click.Option) or (param.help or "").endswith(".")
    assert re.search(rf"^\| `craftcore {name}[ `]", REFERENCE.read_text(), re.M)


@pytest.mark.parametrize("name", COMMANDS)
def test_related_command_of_a_page_exists(name):
    for related in COMMANDS[name].see:
        words = related.split()
        if words[0] == "craftcore":
            command: click.Command | None = root
            for word in words[1:]:
                assert isinstance(command, click.Group)
                command = command.get_command(click.Context(command), word)
            assert command is not None, related


@pytest.mark.parametrize("name", SHARED)
def test_form_on_a_cluster_lacks_parameters_and_codes_of_its_command(name):
    command = SHARED[name]
    assert command.on_cluster is not None
    assert set(command.on_cluster.without) <= {*(param.name for param in command.params), *command.exits}
    assert f"temporal {name}" in COMMANDS


def test_unreachable_cluster_is_an_error_of_a_line(capsys):
    code, out, err = run(capsys, "temporal", "setup", "--address", UNREACHABLE)
    assert (code, out) == (75, "")
    assert err.startswith(f"craftcore: no cluster answers at {UNREACHABLE} (Connection refused): ")
    assert len(err.splitlines()) == 1


def test_environment_counts_before_the_settings_and_a_flag_before_the_environment(capsys, monkeypatch, tmp_path):
    settings = tmp_path / "craftcore.toml"
    settings.write_text('[temporal]\naddress = "127.0.0.1:3"\n')
    setup = ["--config", str(settings), "temporal", "setup"]
    assert "127.0.0.1:3" in run(capsys, *setup)[2]
    monkeypatch.setenv("CRAFTCORE_TEMPORAL_ADDRESS", "127.0.0.1:2")
    assert "127.0.0.1:2" in run(capsys, *setup)[2]
    assert UNREACHABLE in run(capsys, *setup, "--address", UNREACHABLE)[2]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (["--address", "nowhere"], "temporal.address is 'nowhere'"),
        (["--address", "host:0"], "temporal.address is 'host:0'"),
        (["--address", "host:65536"], "temporal.address is 'host:65536'"),
        (["--address", "[:::]:1"], "temporal.address is '[:::]:1', which the library refuses (invalid target URL"),
        (["--tls-cert", "cert.pem"], "temporal.tls_key is not set"),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], "no.pem cannot be read"),
        (["--api-key", "my-secret"], "temporal.api_key is not shown"),
        (["--api-key", "env:CRAFTCORE_NO_SUCH_KEY"], "CRAFTCORE_NO_SUCH_KEY"),
        (["--data-converter", "nowhere:codec"], "temporal.data_converter nowhere:codec cannot be imported"),
        (["--data-converter", "json:dumps"], "give a DataConverter"),
    ],
    ids=str,
)
def test_option_that_cannot_be_used_is_refused(capsys, option, expected):
    code, _, err = run(capsys, "temporal", "setup", "--address", UNREACHABLE, *option)
    assert code == 78
    assert expected in err
    assert "my-secret" not in err


@pytest.mark.parametrize("words", [["setup"], ["task", "list"]], ids=" ".join)
def test_command_without_the_library_names_the_extra(capsys, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "temporalio", None)
    code, _, err = run(capsys, "temporal", *words)
    assert (code, err) == (78, "craftcore: craftcore temporal needs temporalio: pip install 'craftcore[temporal]'\n")


def test_setup_registers_once(capsys, cluster):
    where = ["--address", cluster.address, "--json"]
    assert run(capsys, "temporal", "setup", *where)[0] == 0
    code, out, _ = run(capsys, "temporal", "setup", *where)
    assert (code, out.split()) == (0, ["{", '"registered":', "[]", "}"])


def test_unknown_namespace_is_named(capsys, cluster):
    code, _, err = run(capsys, "temporal", "setup", "--address", cluster.address, "--namespace", "nowhere")
    assert code == 10
    assert "namespace nowhere" in err
    assert len(err.splitlines()) == 1


def test_replay_of_a_file_needs_no_cluster(capsys):
    code, _, err = run(capsys, "temporal", "replay", "./record.json", "--address", UNREACHABLE)
    assert code == 64
    assert "./record.json cannot be read" in err


@pytest.mark.parametrize("name", LACKED)
def test_command_that_a_cluster_lacks_is_refused_with_advice(capsys, name):
    code, _, err = run(capsys, "temporal", *name.split(), "01a1fdfa")
    assert code == 64
    assert err.startswith(f"craftcore: {LACKED[name]} (see craftcore temporal")


@pytest.mark.parametrize("words", [["setup"], ["task", "retry", "01a1fdfa"]], ids=" ".join)
def test_writing_command_is_refused_where_only_reading_is_allowed(capsys, words):
    assert run(capsys, "--read-only", "temporal", *words, "--address", UNREACHABLE)[0] == 77
