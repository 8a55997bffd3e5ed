"""`craftcore demo`: a killed daemon loses nothing, and the verdict reports a broken promise."""

from __future__ import annotations

import signal

import pytest

from craftcore.cli.demo.demo_verdict import judge, lines_of
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import PATIENCE, a_python, processes_in, run_python, until
from tests.support.trigger_steps import emit, run_one, start_one

COMMAND = ["-m", "craftcore", "demo"]


@pytest.mark.parametrize(("triggers", "kills"), [(40, 1), pytest.param(120, 2, marks=pytest.mark.acceptance)])
def test_demo_kills_a_daemon_and_loses_nothing(tmp_path, triggers, kills):
    command = [*COMMAND, "--triggers", str(triggers), "--kills", str(kills)]
    played = run_python(command, tmp_path, TMPDIR=str(tmp_path))

    assert (played.code, played.err) == (0, "")
    story = played.out
    assert story.count("kill -9") == kills
    counts = dict(line.split()[:2] for line in story.splitlines() if line.startswith(("accepted", "lost", "kills")))
    assert counts == {"accepted": str(triggers), "lost": "0", "kills": str(kills)}
    assert story.endswith("Every accepted trigger was done and settled exactly once.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_nothing_behind(tmp_path, number):
    command = [*COMMAND, "--triggers", "20000"]  # a long emission before the first kill
    with a_python(command, tmp_path, TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"a daemon runs" in process.stdout.readline()
        [folder] = tmp_path.iterdir()
        assert processes_in(folder)

        process.send_signal(number)

        assert (process.wait(PATIENCE), process.stderr.read()) == (130, b"")
    assert list(tmp_path.iterdir()) == []
    until(lambda: not processes_in(folder))


def test_demo_verdict_reports_a_broken_promise(database, tmp_path):
    """The four triggers are done, DONE in the table without a trace in the file, still claimed, and missing."""
    ledger = tmp_path / "ledger"
    core = VirtualCore(database, VirtualClock())
    accepted = [emit(core, payload={"number": number}).id for number in range(1)]
    run_one(core, Succeeded())
    accepted.append(emit(core, payload={"number": 1}).id)
    run_one(core, Succeeded())
    accepted.append(emit(core, payload={"number": 2}).id)
    start_one(core)
    accepted.append("nowhere")
    ledger.write_text("begin 0\nbegin 0\nend 0\nbegin 2\n")

    with core.reading() as reader:
        verdict = judge(reader, accepted, ledger, kills=1, seconds=1.0)
    core.close()

    assert (verdict.kept, verdict.accepted, verdict.done, verdict.lost) == (False, 4, 1, 3)
    assert (verdict.left_claimed, verdict.run_again) == (1, 1)
    assert "BROKEN" in verdict.sentence()


def test_demo_verdict_counts_a_trigger_settled_twice(database, tmp_path):
    core = VirtualCore(database, VirtualClock())
    insert = (
        "INSERT INTO executions (id, trigger_id, attempt, epoch, created_at, ended_at, status, envelope_json, "
        "envelope_hash) VALUES (:id, 't', 1, 1, 0, 0, 'success', '{}', '')"
    )
    with core.transaction() as tx:
        for name in ("exec-t.1", "exec-t.2"):
            tx.run(insert, id=name)

    with core.reading() as reader:
        verdict = judge(reader, [], tmp_path / "none", kills=0, seconds=0.0)
    core.close()

    assert (verdict.settled_twice, verdict.kept) == (1, False)
    assert lines_of(tmp_path / "none") == []
