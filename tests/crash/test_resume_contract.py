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
from tests.crash.contract_lives import BOOT, GO, TURNS, ContractLife, LaterClock, told
from tests.crash.crews import ROOT, last_words
from tests.crash.task_app import SEEN, lines_of
from tests.crash.task_child import IN_STEP
from tests.support.warm_parent import WarmProcess, start

KILLED = -signal.SIGKILL


class Nursery:
    """Has lives lived, one after the other, each on what the one before left."""

    def __init__(self, process: WarmProcess, folder: Path) -> None:
        self._process = process
        self._number = 0
        self.folder = folder
        self.db = folder / "agent.db"

    def life(self, ends: str = QUIET, **how: Any) -> None:
        """One life, which must end as it is to."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        self._process.stdin.write(
            told(ContractLife(folder=self.folder, number=self._number, ends=ends, **how)).encode()
        )
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())["ended"]
        assert ended == (0 if ends == QUIET else KILLED), last_words(self.folder)

    def start(self, workflow: str, count: int = 1) -> list[str]:
        """Tasks to be; their ids."""
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

    def of_source(self, source: str) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM triggers WHERE source = ? ORDER BY seq", source)

    def lose_its_trigger(self, id: str) -> None:
        """As no program of ours does."""
        assert self.rows("DELETE FROM triggers WHERE id = (SELECT trigger_id FROM tasks WHERE id = ?) RETURNING 1", id)

    def begun(self, id: str) -> list[int]:
        """The turns in which the function of its step began."""
        return [line[3] for line in lines_of(self.folder / SEEN) if line[0] == "begin" and line[2] == id]

    def answer(self, choice: str, *, hours: float) -> None:
        """A person answers the one open question."""
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
def nursery(warm_parent: WarmProcess, tmp_path: Path) -> Nursery:
    return Nursery(warm_parent, tmp_path)


def in_its_second_turn(nursery: Nursery) -> str:
    """A task whose process died in the step of its second turn."""
    [id] = nursery.start("steady")
    nursery.life(IN_STEP, at_pass=2)
    row = nursery.task(id)
    assert (row["status"], row["turn"]) == ("RUNNING", 2)
    return id


def test_task_of_a_reclaimed_trigger_continues_with_that_trigger(nursery):
    id = in_its_second_turn(nursery)
    before = nursery.task(id)

    nursery.life(BOOT)
    nursery.life(BOOT)

    assert nursery.task(id) == before
    [trigger] = nursery.rows("SELECT * FROM triggers WHERE id = ?", before["trigger_id"])
    assert (trigger["status"], trigger["reason"]) == ("PENDING", "interrupted by a crash")
    nursery.life()
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert nursery.begun(id) == [1, 2, 2, 3]
    assert nursery.of_source("RESUME") == []


def test_task_without_a_trigger_is_resumed_once_after_several_boots(nursery):
    id = in_its_second_turn(nursery)
    nursery.lose_its_trigger(id)

    nursery.life(BOOT)
    [resume] = nursery.of_source("RESUME")
    assert (resume["status"], resume["dedup_key"], resume["task_id"]) == ("PENDING", f"resume:{id}", id)
    assert nursery.task(id)["trigger_id"] == resume["id"]

    nursery.life(BOOT)
    assert nursery.of_source("RESUME") == [resume]

    nursery.life(Failpoint.TURN_ENTERED)
    [taken] = nursery.of_source("RESUME")
    assert (taken["id"], taken["status"], taken["starts"]) == (resume["id"], "CLAIMED", 1)

    nursery.life(BOOT)
    [reclaimed] = nursery.of_source("RESUME")
    assert (reclaimed["id"], reclaimed["status"]) == (resume["id"], "PENDING")
    assert reclaimed["reason"] == "interrupted by a crash"

    nursery.life()
    [done] = nursery.of_source("RESUME")
    assert (done["id"], done["status"], done["reason"]) == (resume["id"], "DONE", "continued")
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))


def test_finished_resume_does_not_block_another(nursery):
    id = in_its_second_turn(nursery)
    nursery.lose_its_trigger(id)
    nursery.life(IN_STEP, at_pass=2)  # the RESUME ends the second turn, and the third is interrupted
    assert nursery.task(id)["turn"] == 3
    nursery.lose_its_trigger(id)

    nursery.life(BOOT)
    nursery.life(BOOT)

    assert [row["status"] for row in nursery.of_source("RESUME")] == ["DONE", "PENDING"]
    nursery.life()
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert [row["reason"] for row in nursery.of_source("RESUME")] == ["continued", "succeeded"]
    assert nursery.begun(id) == [1, 2, 2, 3, 3]


def test_task_of_a_trigger_settled_elsewhere_is_resumed_with_its_input(nursery):
    [id] = nursery.start("steady")
    nursery.life(Failpoint.STEP_COMMITTED)
    nursery.rows(
        "UPDATE triggers SET status = 'DONE', reason = 'somebody did', claimed_epoch = NULL, lease_token = NULL, "
        "lease_until = NULL, settled_at = updated_at WHERE id = ?",
        id,
    )

    nursery.life()

    assert [row["reason"] for row in nursery.of_source("RESUME")] == ["continued"]
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert nursery.begun(id) == [1, 2, 3]


def test_waiting_task_is_left_unchanged(nursery):
    [id] = nursery.start("asks")
    nursery.life()
    everything = [
        nursery.rows(f"SELECT * FROM {table}") for table in ("tasks", "waits", "questions", "triggers", "events")
    ]
    assert nursery.task(id)["status"] == "WAITING"

    nursery.life(BOOT)
    nursery.life(BOOT, hours=30)
    nursery.life(hours=30, system=True)

    assert everything == [
        nursery.rows(f"SELECT * FROM {table}") for table in ("tasks", "waits", "questions", "triggers", "events")
    ]
    nursery.answer("yes", hours=31)
    nursery.life(hours=31)
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", '"yes"')


def test_ended_task_is_never_resumed(nursery):
    [done] = nursery.start("steady")
    [failed] = nursery.start("broken")
    [cancelled] = nursery.start("asks")
    nursery.life()
    core = Services(nursery.db, Config())
    with core.transaction() as tx:
        core.tasks.cancel(tx, cancelled)
    core.close()
    nursery.rows("DELETE FROM triggers")
    before = [nursery.task(id) for id in (done, failed, cancelled)]
    assert [row["status"] for row in before] == ["DONE", "FAILED", "CANCELLED"]

    nursery.life(BOOT, system=True)
    nursery.life(hours=30, system=True)

    assert nursery.rows("SELECT * FROM triggers") == []
    assert [nursery.task(id) for id in (done, failed, cancelled)] == before


@pytest.mark.parametrize("system", [True, False])
def test_ten_continuing_tasks_make_a_single_notice_for_a_workflow(nursery, system):
    ids = nursery.start("held", 10)
    nursery.life(IN_STEP, at_pass=10)
    assert {nursery.task(id)["status"] for id in ids} == {"RUNNING"}
    for id in ids[:3]:
        nursery.lose_its_trigger(id)

    nursery.life(BOOT, system=system)
    nursery.life(BOOT, system=system)

    notices = nursery.of_source("SYSTEM")
    assert len(notices) == system
    [fact] = nursery.rows("SELECT value FROM facts WHERE name = 'restart'")
    told = json.loads(notices[0]["payload_json"] if system else fact["value"])
    assert (told["kind"], told["resumed"], told["stale"], sorted(told["tasks"])) == ("restart", 10, 0, sorted(ids))
    assert len(nursery.of_source("RESUME")) == 3
    (nursery.folder / GO).touch()
    nursery.life(system=system)
    assert {nursery.task(id)["status"] for id in ids} == {"DONE"}
    assert len([line for line in lines_of(nursery.folder / SEEN) if line[0] == "effect"]) == system


def test_task_interrupted_too_long_ago_waits_for_a_person(nursery):
    id = in_its_second_turn(nursery)
    trigger_id = nursery.task(id)["trigger_id"]

    nursery.life(BOOT, hours=25, system=True)

    row = nursery.task(id)
    assert (row["status"], row["reason"], row["trigger_id"]) == ("WAITING", "stale: waits for an answer", None)
    [parked] = nursery.rows("SELECT * FROM triggers WHERE id = ?", trigger_id)
    assert (parked["status"], parked["reason"]) == ("DONE", f"parked: task {id} is stale")
    [question] = nursery.rows("SELECT * FROM questions")
    assert (question["kind"], question["status"], question["options_json"]) == (
        "stale",
        "OPEN",
        '["continue","cancel"]',
    )
    assert nursery.of_source("RESUME") == []
    [notice] = nursery.of_source("SYSTEM")
    assert [json.loads(notice["payload_json"])[name] for name in ("resumed", "stale", "tasks")] == [0, 1, [id]]

    nursery.life(hours=26, system=True)  # nothing more happens until somebody answers
    assert nursery.task(id) == row
    assert len(nursery.rows("SELECT * FROM questions")) == len(nursery.of_source("SYSTEM")) == 1


def test_stale_task_continues_when_a_person_resumes(nursery):
    id = in_its_second_turn(nursery)
    nursery.life(BOOT, hours=25)

    nursery.answer("continue", hours=60)
    nursery.life(hours=60)

    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))
    assert nursery.begun(id) == [1, 2, 2, 3]


def test_stale_task_is_cancelled_when_a_person_cancels(nursery):
    id = in_its_second_turn(nursery)
    nursery.life(BOOT, hours=25)

    nursery.answer("cancel", hours=25)
    nursery.life(hours=25)

    assert (nursery.task(id)["status"], nursery.task(id)["reason"]) == ("CANCELLED", "cancelled: stale")
    assert nursery.begun(id) == [1, 2]
    assert nursery.rows("SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED')") == []


def test_task_without_a_trigger_can_be_stale(nursery):
    id = in_its_second_turn(nursery)
    nursery.lose_its_trigger(id)

    nursery.life(BOOT, hours=25)

    assert nursery.task(id)["status"] == "WAITING"
    assert nursery.of_source("RESUME") == []
    nursery.answer("continue", hours=25)
    nursery.life(hours=25)
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))


def test_twenty_three_hours_are_not_too_long(nursery):
    id = in_its_second_turn(nursery)

    nursery.life(hours=23)

    assert nursery.task(id)["status"] == "DONE"
    assert nursery.rows("SELECT * FROM questions") == []


def test_killed_boot_does_not_make_a_task_younger(nursery):
    """Reclaimed by one boot, which was killed before it consumed anything; the machine was off for a day after that."""
    id = in_its_second_turn(nursery)
    nursery.life(BOOT)

    nursery.life(BOOT, hours=25)

    assert nursery.task(id)["status"] == "WAITING"
    nursery.answer("continue", hours=25)
    nursery.life(hours=25)
    assert (nursery.task(id)["status"], nursery.task(id)["result_json"]) == ("DONE", str(TURNS))


def test_unclaimed_resume_does_not_make_a_task_younger(nursery):
    id = in_its_second_turn(nursery)
    nursery.lose_its_trigger(id)
    nursery.life(BOOT)

    nursery.life(BOOT, hours=25)

    assert nursery.task(id)["status"] == "WAITING"
    [resume] = nursery.of_source("RESUME")
    assert (resume["status"], resume["reason"]) == ("DONE", f"parked: task {id} is stale")
