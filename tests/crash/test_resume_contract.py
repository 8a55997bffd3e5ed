"""The resume contract: a boot resumes the tasks of killed daemons, with real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore import Producer
from craftcore.config import Config
from craftcore.failpoints import Failpoint
from craftcore.services import Services
from tests.crash.child import QUIET
from tests.crash.contract_lives import BOOT, GO, TURNS, ContractLife, LaterClock, to_line
from tests.crash.crews import ROOT, logged_errors
from tests.crash.task_app import EVENT_LOG, read_events
from tests.crash.task_child import IN_STEP
from tests.support.warm_parent import WarmProcess, start

KILLED = -signal.SIGKILL


class LifeRunner:
    """A runner of lives, each on the database of the previous one."""

    def __init__(self, process: WarmProcess, folder: Path) -> None:
        self._process = process
        self._number = 0
        self.folder = folder
        self.db = folder / "agent.db"

    def run(self, ends: str = QUIET, **options: Any) -> None:
        """Run a life, and require that it ends in its way."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        self._process.stdin.write(
            to_line(ContractLife(folder=self.folder, number=self._number, ends=ends, **options)).encode()
        )
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())["ended"]
        assert ended == (0 if ends == QUIET else KILLED), logged_errors(self.folder)

    def emit(self, workflow: str, count: int = 1) -> list[str]:
        """Emit triggers that start tasks, and return their ids."""
        with Producer(self.db) as producer:
            return [producer.emit(workflow).id for _ in range(count)]

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        connection = apsw.Connection(str(self.db))
        try:
            cursor = connection.execute(sql, values)
            return [dict(zip((column[0] for column in cursor.get_description()), row, strict=True)) for row in cursor]
        except apsw.ExecutionCompleteError:
            return []
        finally:
            connection.close()

    def task(self, id: str) -> dict[str, Any]:
        [row] = self.rows("SELECT * FROM tasks WHERE id = ?", id)
        return row

    def triggers_from(self, source: str) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM triggers WHERE source = ? ORDER BY seq", source)

    def delete_trigger_of(self, id: str) -> None:
        """Delete the trigger of a task, as only a fault can."""
        assert self.rows("DELETE FROM triggers WHERE id = (SELECT trigger_id FROM tasks WHERE id = ?) RETURNING 1", id)

    def step_turns(self, id: str) -> list[int]:
        """Return the turns in which the function of the task's step began."""
        return [line[3] for line in read_events(self.folder / EVENT_LOG) if line[0] == "begin" and line[2] == id]

    def answer(self, choice: str, *, hours: float) -> None:
        """Answer the only open question, as a person does."""
        [question] = self.rows("SELECT * FROM questions WHERE status = 'OPEN'")
        core = Services(self.db, Config(), LaterClock(hours))
        with core.transaction() as tx:
            core.tasks.answer(tx, question["id"], choice, answered_by="ada")
        core.close()


@pytest.fixture(scope="module")
def warm_parent() -> Iterator[WarmProcess]:
    command = ["-m", "tests.crash.contract_lives"]
    with start(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def runner(warm_parent: WarmProcess, tmp_path: Path) -> LifeRunner:
    return LifeRunner(warm_parent, tmp_path)


def interrupt_second_turn(runner: LifeRunner) -> str:
    """Start a task, kill its process in the step of the second turn, and return the task's id."""
    [id] = runner.emit("steady")
    runner.run(IN_STEP, at_pass=2)
    row = runner.task(id)
    assert (row["status"], row["turn"]) == ("RUNNING", 2)
    return id


def test_task_of_a_reclaimed_trigger_continues_with_that_trigger(runner):
    id = interrupt_second_turn(runner)
    before = runner.task(id)

    runner.run(BOOT)
    runner.run(BOOT)

    assert runner.task(id) == before
    [trigger] = runner.rows("SELECT * FROM triggers WHERE id = ?", before["trigger_id"])
    assert (trigger["status"], trigger["reason"]) == ("PENDING", "interrupted by a crash")
    runner.run()
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert runner.step_turns(id) == [1, 2, 2, 3]
    assert runner.triggers_from("RESUME") == []


def test_task_without_a_trigger_is_resumed_once_after_several_boots(runner):
    id = interrupt_second_turn(runner)
    runner.delete_trigger_of(id)

    runner.run(BOOT)
    [resume] = runner.triggers_from("RESUME")
    assert (resume["status"], resume["dedup_key"], resume["task_id"]) == ("PENDING", f"resume:{id}", id)
    assert runner.task(id)["trigger_id"] == resume["id"]

    runner.run(BOOT)
    assert runner.triggers_from("RESUME") == [resume]

    runner.run(Failpoint.TURN_ENTERED)
    [taken] = runner.triggers_from("RESUME")
    assert (taken["id"], taken["status"], taken["starts"]) == (resume["id"], "CLAIMED", 1)

    runner.run(BOOT)
    [reclaimed] = runner.triggers_from("RESUME")
    assert (reclaimed["id"], reclaimed["status"]) == (resume["id"], "PENDING")
    assert reclaimed["reason"] == "interrupted by a crash"

    runner.run()
    [done] = runner.triggers_from("RESUME")
    assert (done["id"], done["status"], done["reason"]) == (resume["id"], "DONE", "continued")
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))


def test_finished_resume_does_not_block_another(runner):
    id = interrupt_second_turn(runner)
    runner.delete_trigger_of(id)
    runner.run(IN_STEP, at_pass=2)  # the RESUME trigger finishes the second turn, and the kill interrupts the third
    assert runner.task(id)["turn"] == 3
    runner.delete_trigger_of(id)

    runner.run(BOOT)
    runner.run(BOOT)

    assert [row["status"] for row in runner.triggers_from("RESUME")] == ["DONE", "PENDING"]
    runner.run()
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert [row["reason"] for row in runner.triggers_from("RESUME")] == ["continued", "succeeded"]
    assert runner.step_turns(id) == [1, 2, 2, 3, 3]


def test_task_of_a_trigger_settled_elsewhere_is_resumed_with_its_input(runner):
    [id] = runner.emit("steady")
    runner.run(Failpoint.STEP_COMMITTED)
    runner.rows(
        "UPDATE triggers SET status = 'DONE', reason = 'settled elsewhere', claimed_epoch = NULL, lease_token = NULL, "
        "lease_until = NULL, settled_at = updated_at WHERE id = ?",
        id,
    )

    runner.run()

    assert [row["reason"] for row in runner.triggers_from("RESUME")] == ["continued"]
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert runner.step_turns(id) == [1, 2, 3]


def test_waiting_task_is_left_unchanged(runner):
    [id] = runner.emit("asks")
    runner.run()
    everything = [
        runner.rows(f"SELECT * FROM {table}") for table in ("tasks", "waits", "questions", "triggers", "events")
    ]
    assert runner.task(id)["status"] == "WAITING"

    runner.run(BOOT)
    runner.run(BOOT, hours=30)
    runner.run(hours=30, system=True)

    assert everything == [
        runner.rows(f"SELECT * FROM {table}") for table in ("tasks", "waits", "questions", "triggers", "events")
    ]
    runner.answer("yes", hours=31)
    runner.run(hours=31)
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", '"yes"')


def test_ended_task_is_never_resumed(runner):
    [done] = runner.emit("steady")
    [failed] = runner.emit("broken")
    [cancelled] = runner.emit("asks")
    runner.run()
    core = Services(runner.db, Config())
    with core.transaction() as tx:
        core.tasks.cancel(tx, cancelled)
    core.close()
    runner.rows("DELETE FROM triggers")
    before = [runner.task(id) for id in (done, failed, cancelled)]
    assert [row["status"] for row in before] == ["DONE", "FAILED", "CANCELLED"]

    runner.run(BOOT, system=True)
    runner.run(hours=30, system=True)

    assert runner.rows("SELECT * FROM triggers") == []
    assert [runner.task(id) for id in (done, failed, cancelled)] == before


@pytest.mark.parametrize("system", [True, False])
def test_ten_continuing_tasks_make_a_single_notice_for_a_workflow(runner, system):
    ids = runner.emit("held", 10)
    runner.run(IN_STEP, at_pass=10)
    assert {runner.task(id)["status"] for id in ids} == {"RUNNING"}
    for id in ids[:3]:
        runner.delete_trigger_of(id)

    runner.run(BOOT, system=system)
    runner.run(BOOT, system=system)

    notices = runner.triggers_from("SYSTEM")
    assert len(notices) == system
    [fact] = runner.rows("SELECT value FROM facts WHERE name = 'restart'")
    notice = json.loads(notices[0]["payload_json"] if system else fact["value"])
    assert (notice["kind"], notice["resumed"], notice["stale"], sorted(notice["tasks"])) == (
        "restart",
        10,
        0,
        sorted(ids),
    )
    assert len(runner.triggers_from("RESUME")) == 3
    (runner.folder / GO).touch()
    runner.run(system=system)
    assert {runner.task(id)["status"] for id in ids} == {"DONE"}
    assert len([line for line in read_events(runner.folder / EVENT_LOG) if line[0] == "effect"]) == system


def test_task_interrupted_too_long_ago_waits_for_a_person(runner):
    id = interrupt_second_turn(runner)
    trigger_id = runner.task(id)["trigger_id"]

    runner.run(BOOT, hours=25, system=True)

    row = runner.task(id)
    assert (row["status"], row["reason"], row["trigger_id"]) == ("WAITING", "stale: waits for an answer", None)
    [parked] = runner.rows("SELECT * FROM triggers WHERE id = ?", trigger_id)
    assert (parked["status"], parked["reason"]) == ("DONE", f"parked: task {id} is stale")
    [question] = runner.rows("SELECT * FROM questions")
    assert (question["kind"], question["status"], question["options_json"]) == (
        "stale",
        "OPEN",
        '["continue","cancel"]',
    )
    assert runner.triggers_from("RESUME") == []
    [notice] = runner.triggers_from("SYSTEM")
    assert [json.loads(notice["payload_json"])[name] for name in ("resumed", "stale", "tasks")] == [0, 1, [id]]

    runner.run(hours=26, system=True)  # nothing changes until a person answers
    assert runner.task(id) == row
    assert len(runner.rows("SELECT * FROM questions")) == len(runner.triggers_from("SYSTEM")) == 1


def test_stale_task_continues_when_a_person_resumes(runner):
    id = interrupt_second_turn(runner)
    runner.run(BOOT, hours=25)

    runner.answer("continue", hours=60)
    runner.run(hours=60)

    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert runner.step_turns(id) == [1, 2, 2, 3]


def test_stale_task_is_cancelled_when_a_person_cancels(runner):
    id = interrupt_second_turn(runner)
    runner.run(BOOT, hours=25)

    runner.answer("cancel", hours=25)
    runner.run(hours=25)

    assert (runner.task(id)["status"], runner.task(id)["reason"]) == ("CANCELLED", "cancelled: stale")
    assert runner.step_turns(id) == [1, 2]
    assert runner.rows("SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED')") == []


def test_task_without_a_trigger_can_be_stale(runner):
    id = interrupt_second_turn(runner)
    runner.delete_trigger_of(id)

    runner.run(BOOT, hours=25)

    assert runner.task(id)["status"] == "WAITING"
    assert runner.triggers_from("RESUME") == []
    runner.answer("continue", hours=25)
    runner.run(hours=25)
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))


def test_twenty_three_hours_are_not_too_long(runner):
    id = interrupt_second_turn(runner)

    runner.run(hours=23)

    assert runner.task(id)["status"] == "DONE"
    assert runner.rows("SELECT * FROM questions") == []


def test_killed_boot_does_not_make_a_task_younger(runner):
    """A boot reclaims the task and is killed before it consumes anything. Then the machine is off for a day."""
    id = interrupt_second_turn(runner)
    runner.run(BOOT)

    runner.run(BOOT, hours=25)

    assert runner.task(id)["status"] == "WAITING"
    runner.answer("continue", hours=25)
    runner.run(hours=25)
    assert (runner.task(id)["status"], runner.task(id)["result_json"]) == ("DONE", str(TURNS))


def test_unclaimed_resume_does_not_make_a_task_younger(runner):
    id = interrupt_second_turn(runner)
    runner.delete_trigger_of(id)
    runner.run(BOOT)

    runner.run(BOOT, hours=25)

    assert runner.task(id)["status"] == "WAITING"
    [resume] = runner.triggers_from("RESUME")
    assert (resume["status"], resume["reason"]) == ("DONE", f"parked: task {id} is stale")
