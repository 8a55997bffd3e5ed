"""Mistakes in the settings file: commands that need the setting fail, and the others warn."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import BY_HAND, NEED_MORE, READS, WORKS, line

MISTAKES = {
    "a typo": "[daemon]\nconcurency = 1\n[log]\nlevel = 'loud'\n",
    "no TOML": "[daemon",
    "no text": b"\xff\xfe",
    "missing": None,
}
FAIL = {"run": 78, "check": 78, "db gc": 78, "doctor": 1}
"""The daemon, the checks of settings, and commands that delete by settings. `doctor` reports the mistake."""

EXCLUDED = {"demo", "crashtest", "reload", *NEED_MORE}
"""Commands that read no settings in these tests, or need more than the populated database."""


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", ["status", "emit", "db backup", "doctor", "check", "db gc"])
def test_settings_mistake_of_any_kind_has_the_same_effect_on_a_command(cli, here, tmp_path, name, mistake):
    run_with_settings(cli, here, tmp_path, name, MISTAKES[mistake])


@pytest.mark.parametrize("name", [name for name in (*READS, *BY_HAND, *WORKS) if name not in EXCLUDED])
def test_settings_mistake_fails_only_commands_that_need_settings(cli, here, tmp_path, name):
    run_with_settings(cli, here, tmp_path, name, MISTAKES["a typo"])


def run_with_settings(cli, here, tmp_path, name, mistake):
    """Run a command with this settings file, and check its exit code and its warnings."""
    here.core.close()
    bad = tmp_path / "bad.toml"
    if mistake is not None:
        bad.write_bytes(mistake if isinstance(mistake, bytes) else mistake.encode())
    words = line(name, {**READS, **BY_HAND, **WORKS}[name], here.world)

    answer = cli("--json", "--config", str(bad), *words)

    assert answer.code == FAIL.get(name, 0), answer
    assert isinstance(json.loads(answer.out), dict | list), "the warning is in the document"
    warned = [text for text in answer.err.splitlines() if "Going on with the default settings" in text]
    if name in FAIL or name in ("completion", "systemd print", "systemd install", "init"):
        assert warned == []
    else:
        [warning] = warned
        assert str(bad) in warning, answer.err
        assert "craftcore check" in warning


def test_settings_warning_names_the_first_mistake_and_counts_the_others(cli, here, tmp_path):
    (tmp_path / "bad.toml").write_text("a = 1\nb = 2\nc = 3\n")
    one = cli("--config", "bad.toml", "status")
    assert one.code == 0
    assert "bad.toml: " in one.err
    assert "(and 2 more mistakes). Going on with the default settings" in one.err
    (tmp_path / "bad.toml").write_text("a = 1\n")
    assert "more mistake" not in cli("--config", "bad.toml", "status").err
