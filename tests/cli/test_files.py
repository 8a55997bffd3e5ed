"""Paths of input files that are not regular files: the command refuses them at once with the documented exit code."""

from __future__ import annotations

import json
import os
import socket

import pytest

from craftcore.files import NoRegularFile, open_regular
from tests.support.processes import craftcore

READERS = {
    "payload": (64, ["emit", "nap", "--payload", "@FILE"]),
    "payload of a schedule": (64, ["schedule", "add", "new", "every 1h", "--workflow", "nap", "--payload", "@FILE"]),
    "payload of a signal": (64, ["task", "signal", "WAITS", "go", "@FILE"]),
    "head": (64, ["verify", "--against", "FILE"]),
    "envelope": (64, ["replay", "ENDED", "--verify-envelope", "FILE"]),
    "record": (64, ["replay", "FILE"]),
    "records": (64, ["diff", "ENDED", "FILE"]),
    "settings": (78, ["--config", "FILE", "db", "gc", "--dry-run"]),
    "settings to check": (78, ["check", "--config", "FILE"]),
    "backup without a manifest": (65, ["db", "restore", "FILE"]),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_irregular_file_is_refused_at_once(here, tmp_path, reader, kind):
    """The command runs in a separate process, because it could block on a pipe."""
    here.core.close()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, words = READERS[reader]
    file = str(pipe) if kind == "pipe" else "/dev/zero"
    names = {"FILE": file, "@FILE": f"@{file}", "WAITS": here.world.waits, "ENDED": here.world.ended}

    refused = craftcore(tmp_path, *(names.get(word, word) for word in words))

    assert refused.code == code, refused.err
    output = refused.err + refused.out
    assert file in output
    assert "it is not a regular file" in output or reader == "backup without a manifest"


@pytest.mark.parametrize("which", ["backup", "manifest"])
def test_backup_or_manifest_that_is_a_pipe_is_refused(cli, here, tmp_path, which):
    here.core.close()
    backup = str(tmp_path / "taken.db")
    assert cli("db", "backup", "-o", backup).code == 0
    victim = backup if which == "backup" else f"{backup}.manifest.json"
    os.unlink(victim)
    os.mkfifo(victim)

    refused = cli("db", "restore", backup, "--yes")

    assert refused.code == (64 if which == "backup" else 65)
    assert "it is not a regular file" in refused.err


def test_payload_may_come_from_a_symlink_or_standard_input(cli, core, tmp_path):
    (tmp_path / "payload.json").write_text('{"n": 1}')
    (tmp_path / "link").symlink_to("payload.json")

    assert cli("emit", "note", "--payload", "@link").code == 0
    assert cli("emit", "note", "--payload", "-", stdin=b'{"n": 1}').code == 0

    payloads = [json.loads(row["payload_json"]) for row in core.rows("SELECT payload_json FROM triggers")]
    assert payloads == [{"n": 1}, {"n": 1}]


def test_unopenable_path_keeps_the_operating_system_error(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name, error in {".": IsADirectoryError, "missing": FileNotFoundError, "socket": OSError}.items():
            with pytest.raises(error) as refused:
                open_regular(tmp_path / name)
            assert not isinstance(refused.value, NoRegularFile)


@pytest.mark.parametrize("writer", [("export", "ENDED", "-o"), ("verify", "--write-head")], ids=lambda words: words[0])
@pytest.mark.parametrize("kind", ["a link", "a link that leads nowhere", "a second name"])
def test_output_file_is_not_written_through_a_link(cli, here, tmp_path, writer, kind):
    foreign, place = tmp_path / "theirs", tmp_path / "place"
    if kind != "a link that leads nowhere":
        foreign.write_text("theirs")
    if kind == "a second name":
        os.link(foreign, place)
    else:
        place.symlink_to(foreign)

    refused = cli(*(here.world.ended if word == "ENDED" else word for word in writer), str(place))

    assert refused.code == 73, refused
    assert (foreign.read_text() if foreign.exists() else None) == (None if "nowhere" in kind else "theirs")
