"""The examples, run as a reader runs them. The tests count their effects outside of craftcore."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_calls import call_command
from tests.support.engine_harness import look
from tests.support.imap_peers import an_imap_server
from tests.support.processes import PATIENCE, environment, until
from tests.support.warm_parent import WarmProcess, start

EXAMPLES = Path(__file__).parents[1] / "examples"

KILLED = """
import runpy, sys
from craftcore.failpoints import Failpoint, arm, kill_process
point, at_pass, *sys.argv = sys.argv[1:]
arm(Failpoint(point), kill_process, at_pass=int(at_pass))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that runs an example and is killed at the nth pass of a failpoint."""


class Program:
    """A running example, with its output in a file."""

    def __init__(self, process: WarmProcess, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until the output contains `text`."""
        until(lambda: text in self.output or self.process.poll() is not None, f"{text!r} in {self.output}")
        assert text in self.output, self.output

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def wait_for_success(self) -> str:
        """Wait for exit code 0, and return the last line of the output."""
        assert self.wait() == 0, self.output
        return self.output.splitlines()[-1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def an_example(
    folder: Path, name: str, *arguments: str, killed_at: tuple[str, int] | None = None, **env: str
) -> Iterator[Program]:
    """Run `python examples/NAME ARGUMENTS` in a folder, and kill it when the block ends."""
    log = folder / f"{name}.{len(list(folder.glob(f'{name}.*')))}.log"
    kill = () if killed_at is None else ("-c", KILLED, killed_at[0], str(killed_at[1]))
    with log.open("wb") as out:
        process = start(
            [*kill, EXAMPLES / name, *arguments],
            cwd=folder,
            env=environment(no_proxy="*", **env),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
        )
    with process:
        try:
            yield Program(process, log)
        finally:
            process.kill()


def was_killed(program: Program) -> bool:
    return program.wait() == -signal.SIGKILL


class StubModel:
    """The stub of a model, in its own process."""

    def __init__(self, program: Program) -> None:
        self._program = program
        program.wait_for("/v1\n")
        self.url = program.output.splitlines()[0]

    @property
    def calls(self) -> dict[int, int]:
        """Return the number of calls by their number of messages. A repeated call has the same number of messages."""
        return dict(
            Counter(int(size) for size in re.findall(r"^call \d+, of (\d+) messages", self._program.output, re.M))
        )


@pytest.fixture
def stub(tmp_path):
    with an_example(tmp_path, "stub_model.py", "0") as program:
        yield StubModel(program)


def test_agent_asks_before_a_purchase_and_ends_with_an_answer(tmp_path, stub):
    with an_example(tmp_path, "research_agent.py", MODEL_URL=stub.url) as agent:
        agent.wait_for("costs 250 ct, and 2 of 100 are spent. Do it? (yes or no)")
        agent.type("no")
        assert agent.wait_for_success().startswith("DONE after 4 turns")
    assert "refused: too expensive" in agent.output
    assert stub.calls == {1: 1, 3: 1, 5: 1, 7: 1}


def test_agent_killed_repeatedly_pays_for_no_recorded_model_call_twice(tmp_path, stub):
    def run_agent(killed_at: tuple[str, int] | None = None) -> contextlib.AbstractContextManager[Program]:
        return an_example(tmp_path, "research_agent.py", killed_at=killed_at, MODEL_URL=stub.url)

    with run_agent(("step.committed", 3)) as agent:  # after the model call of the second turn
        assert was_killed(agent)
    assert stub.calls == {1: 1, 3: 1}
    with run_agent() as agent:
        agent.wait_for("(yes or no)")
        agent.kill()
    assert "turn 2 (CRASH)" in agent.output
    assert stub.calls == {1: 1, 3: 1, 5: 1}
    with run_agent(("step.ran", 1)) as agent:  # the purchase is made, and not on disk
        agent.wait_for("(yes or no)")
        agent.type("yes")
        assert was_killed(agent)
    bought = re.findall(r"^  buy .*", agent.output, re.M)
    with run_agent(("step.ran", 2)) as agent:  # the last answer of the model has arrived, and is not on disk
        assert was_killed(agent)
    bought += re.findall(r"^  buy .*", agent.output, re.M)
    assert len(bought) == 2, "a crash between the end of a step and its commit must repeat the step"
    assert stub.calls == {1: 1, 3: 1, 5: 1, 7: 1}

    with run_agent() as agent:
        assert agent.wait_for_success().startswith("DONE after 4 turns")

    assert "turn 4 (CRASH)" in agent.output
    assert stub.calls == {1: 1, 3: 1, 5: 1, 7: 2}, "only the unrecorded call must be repeated"
    with run_agent() as agent:
        assert agent.wait_for_success().startswith("DONE after 4 turns")
    assert sum(stub.calls.values()) == 5, "an ended task must not start again"


def test_purchase_is_approved_in_the_asking_process(tmp_path):
    with an_example(tmp_path, "approval.py", "laptop", "1200", "approve") as program:
        assert program.wait_for_success().startswith('DONE: "laptop is ordered as ')
    [question] = look(tmp_path / "approvals.db", "SELECT * FROM questions")
    assert (question["status"], question["answered_by"]) == ("ANSWERED", "approval.py")
    [reminder] = look(tmp_path / "approvals.db", "SELECT * FROM waits WHERE event = 'answered'")
    assert (reminder["resolved_by"], reminder["value_json"]) == ("signal", '"approve"')


def test_purchase_is_refused_on_the_command_line(tmp_path):
    with an_example(tmp_path, "approval.py", "laptop", "1200") as program:
        program.wait_for("To answer: inbox answer")
        [asked] = call_command(tmp_path, "--json", "inbox", "list", database="approvals.db").json
        answered = call_command(tmp_path, "inbox", "answer", asked["id"], "refuse", database="approvals.db")
        assert answered.code == 0, answered.err
        assert program.wait_for_success() == 'DONE: "laptop is not bought"'
    late = call_command(tmp_path, "inbox", "answer", asked["id"], "approve", database="approvals.db")
    assert (late.code, "too late" in late.err) == (1, True)


def test_purchase_is_approved_by_a_message_while_no_process_waits(tmp_path):
    with an_example(tmp_path, "approval.py", "laptop", "1200") as program:
        program.wait_for("To answer: inbox answer")
        program.kill()
    message = ("emit", "--source", "MESSAGE", "--session", "laptop", "--payload", '{"text": " Approve"}')
    assert call_command(tmp_path, *message, database="approvals.db").code == 0

    with an_example(tmp_path, "approval.py", "laptop", "1200") as program:
        assert program.wait_for_success().startswith('DONE: "laptop is ordered as ')

    [question] = look(tmp_path / "approvals.db", "SELECT * FROM questions")
    assert (question["answer"], question["answered_by"][:8]) == ("approve", "message ")


def read_bookings(folder: Path) -> list[str]:
    """Return the bookings and cancellations of the provider, in order."""
    return [line.split(":")[0] for line in (folder / "bookings.txt").read_text().splitlines()]


def test_trip_is_booked(tmp_path):
    with an_example(tmp_path, "saga.py", "Lisbon") as program:
        assert program.wait_for_success().startswith("DONE: ")
    assert read_bookings(tmp_path) == ["booked flight", "booked hotel", "booked car"]


def test_failed_trip_is_undone_in_reverse_order_despite_kills(tmp_path):
    kills = [
        ("step.ran", 1),  # the flight is booked, and not recorded
        ("step.committed", 2),  # the hotel is recorded, and the workflow has not continued
        ("step.ran", 1),  # the hotel is cancelled, and not recorded
        ("step.committed", 1),  # the cancellation is recorded, and the flight is still booked
    ]
    for killed_at in kills:
        with an_example(tmp_path, "saga.py", "Reykjavik", killed_at=killed_at) as program:
            assert was_killed(program), program.output

    with an_example(tmp_path, "saga.py", "Reykjavik") as program:
        assert program.wait_for_success() == "FAILED: no car is left in Reykjavik"

    assert read_bookings(tmp_path) == ["booked flight", "booked hotel", "cancelled hotel", "cancelled flight"]
    [task] = look(tmp_path / "trips.db", "SELECT * FROM tasks")
    assert (task["status"], task["error_code"], task["turn"]) == ("FAILED", "NOT_BOOKED", 2)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_order_started_several_times_is_paid_and_confirmed_once(tmp_path):
    for _ in range(2):
        with an_example(tmp_path, "order.py", "lamp", "40") as program:
            assert program.wait_for_success() == 'DONE: "lamp is paid and confirmed"'
    assert len(lines(tmp_path / "charges.txt")) == 1
    assert lines(tmp_path / "messages.txt") == ["lamp is paid: charge 1"]


def test_declined_order_is_neither_charged_nor_confirmed(tmp_path):
    with an_example(tmp_path, "order.py", "yacht", "90000") as program:
        assert program.wait_for_success() == "FAILED: 90000 € for yacht are declined"
    assert lines(tmp_path / "charges.txt") == lines(tmp_path / "messages.txt") == []


@pytest.mark.parametrize("place", ["intent.committed", "provider.answered"])
def test_interrupted_payment_is_sent_again_and_charged_once(tmp_path, place):
    """The kill comes before the call of the bank, or after the charge. The file has an intent in both cases."""
    with an_example(tmp_path, "order.py", "lamp", "40", killed_at=(place, 1)) as program:
        assert was_killed(program), program.output
    assert len(lines(tmp_path / "charges.txt")) == (place == "provider.answered")
    assert [row["status"] for row in look(tmp_path / "orders.db", "SELECT * FROM activity_log")] == ["INTENT"]

    with an_example(tmp_path, "order.py", "lamp", "40") as program:
        assert program.wait_for_success() == 'DONE: "lamp is paid and confirmed"'

    [charge] = lines(tmp_path / "charges.txt")
    paid, confirmed = look(tmp_path / "orders.db", "SELECT * FROM activity_log ORDER BY seq")
    assert charge == f"{paid['idem_key']} 40 € for lamp"
    assert (paid["status"], paid["calls"], paid["provider_ref"]) == ("DONE", 2, "charge 1")
    assert (confirmed["status"], confirmed["calls"]) == ("DONE", 1)
    assert lines(tmp_path / "messages.txt") == ["lamp is paid: charge 1"]


@pytest.mark.parametrize(("place", "answer"), [("intent.committed", "resend"), ("provider.answered", "happened")])
def test_interrupted_message_is_asked_about_and_sent_once(tmp_path, place, answer):
    """A person answers after a look into the file of sent messages."""
    with an_example(tmp_path, "order.py", "lamp", "40", killed_at=(place, 2)) as program:
        assert was_killed(program), program.output
    assert len(lines(tmp_path / "messages.txt")) == (answer == "happened")

    with an_example(tmp_path, "order.py", "lamp", "40") as program:
        program.wait_for("or resend, or 'give up'")
        assert "Did confirm happen?" in program.output
        assert len(lines(tmp_path / "messages.txt")) == (answer == "happened"), "a message was sent without an answer"
        [asked] = call_command(tmp_path, "--json", "inbox", "list", database="orders.db").json
        assert f"craftcore --db orders.db inbox answer {asked['id']} happened" in program.output
        answered = call_command(tmp_path, "inbox", "answer", asked["id"], answer, database="orders.db")
        assert answered.code == 0, answered.err
        assert program.wait_for_success() == 'DONE: "lamp is paid and confirmed"'

    assert len(lines(tmp_path / "charges.txt")) == 1
    assert lines(tmp_path / "messages.txt") == ["lamp is paid: charge 1"]


@pytest.mark.parametrize(("found", "answer"), [("* SEARCH 7", "sent"), ("* SEARCH", "missing")])
def test_folder_of_sent_messages_is_searched_for_a_message(tmp_path, found, answer):
    with an_imap_server({"UID": found + "\r\n{tag} OK done"}) as server:
        with an_example(
            tmp_path,
            "email_sent_folder.py",
            "<activity.1@example.org>",
            IMAP_HOST="127.0.0.1",
            IMAP_PORT=str(server.port),
            IMAP_SECURITY="none",
            IMAP_USERNAME="ada",
            IMAP_PASSWORD="secret",
        ) as program:
            assert program.wait_for_success() == answer
    assert [line.split()[1] for line in server.received] == ["CAPABILITY", "AUTHENTICATE", "EXAMINE", "UID", "LOGOUT"]
