"""Errors of user code: their codes, records and retries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, ErrorCode, Fail, NoEffect, Retry, RetryPolicy, Snooze, TaskContext
from craftcore.engine.failure import FIRST, LAST, outcome_of, traceback_places, wait_asked
from craftcore.errors import CraftcoreError, InvalidInput, PayloadTooLarge, StorageBusy
from craftcore.serialization.encode import MAX_DEPTH
from craftcore.triggers.settlement import Failed, Snoozed
from tests.support.engine_harness import Lab, lab, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.log_capture import capture_logs

pytestmark = pytest.mark.anyio

HOUR = 3600.0
HOURLY = RetryPolicy(max_attempts=3, base=HOUR, cap=HOUR)


class PlainBaseException(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Fatal(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even that")


class BrokenMapping(dict[str, Any]):
    def items(self) -> Any:
        raise OSError("gone")


class BrokenRepr:
    def __repr__(self) -> str:
        raise KeyboardInterrupt


class OwnText(CraftcoreError):
    code = "A_CODE_OF_MINE"


class NoDetails(CraftcoreError):
    def __init__(self) -> None:
        self.details = None  # type: ignore[assignment]


class NoInit(Fail):
    def __init__(self) -> None: ...


class RetrySoon(Retry):
    def __init__(self) -> None:
        self.after = "soon"  # type: ignore[assignment]


class NoTime(Snooze):
    def __init__(self) -> None:
        self.until = float("nan")


class Limited(CraftcoreError):
    code = ErrorCode.RATE_LIMIT
    retry_after = 42


class BrokenRetryAfter(CraftcoreError):
    @property
    def retry_after(self) -> float:  # type: ignore[override]
        raise ValueError("no wait")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise OSError("no name")


class NamelessError(Exception, metaclass=Nameless):
    pass


class ClasslessError(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise OSError("no class")


class OwnGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise OSError("no exceptions")


class TextSubclass(str):
    def __getitem__(self, index: Any) -> str:
        raise OSError("no words")


class TextSubclassError(Exception):
    def __str__(self) -> str:
        return TextSubclass("text subclass")


class ExitsInDetails(Fail):
    def __init__(self) -> None: ...

    @property
    def details(self) -> Any:  # type: ignore[override]
        raise SystemExit


def deep_group() -> BaseException:
    group: Exception = ValueError("at the bottom")
    for _ in range(5_000):
        group = ExceptionGroup("one more", [group])
    return group


def circular() -> dict[str, Any]:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    return ring


CASES: list[tuple[str, Callable[[], BaseException], str, str, dict[str, Any]]] = [
    ("ValueError", lambda: ValueError("out"), "INTERNAL_AGENT_ERROR", "out", {"exception_type": "ValueError"}),
    ("no words", ValueError, "INTERNAL_AGENT_ERROR", "ValueError", {"exception_type": "ValueError"}),
    ("^C", KeyboardInterrupt, "INTERNAL_AGENT_ERROR", "KeyboardInterrupt", {"exception_type": "KeyboardInterrupt"}),
    ("exit", lambda: SystemExit(3), "INTERNAL_AGENT_ERROR", "3", {"exception_type": "SystemExit"}),
    ("base", lambda: PlainBaseException("?"), "INTERNAL_AGENT_ERROR", "?", {"exception_type": "PlainBaseException"}),
    ("str raises", Unprintable, "INTERNAL_AGENT_ERROR", "Unprintable", {"exception_type": "Unprintable"}),
    ("str exits", Fatal, "INTERNAL_AGENT_ERROR", "Fatal", {"exception_type": "Fatal"}),
    (
        "10 MB",
        lambda: ValueError("é" * 10_000_000),
        "INTERNAL_AGENT_ERROR",
        "é" * 1999 + "…",
        {"exception_type": "ValueError"},
    ),
    (
        "group",
        lambda: ExceptionGroup("two", [ValueError("a"), OSError("b")]),
        "INTERNAL_AGENT_ERROR",
        "a; b",
        {"exception_type": "ExceptionGroup"},
    ),
    (
        "group of base",
        lambda: BaseExceptionGroup("two", [SystemExit("a"), PlainBaseException("b")]),
        "INTERNAL_AGENT_ERROR",
        "a; b",
        {"exception_type": "BaseExceptionGroup"},
    ),
    (
        "group of one",
        lambda: ExceptionGroup("", [TimeoutError("slow")]),
        "AGENT_TIMEOUT",
        "slow",
        {"exception_type": "TimeoutError"},
    ),
    ("deep group", deep_group, "INTERNAL_AGENT_ERROR", "at the bottom", {"exception_type": "ValueError"}),
    ("group with Fail", lambda: ExceptionGroup("", [OSError(), Fail("UNAUTHORIZED", "no")]), "UNAUTHORIZED", "no", {}),
    (
        "connection",
        lambda: ConnectionResetError("reset"),
        "TRANSPORT_ERROR",
        "reset",
        {"exception_type": "ConnectionResetError"},
    ),
    (
        "details",
        lambda: Fail(
            "MINE", "no", a={1}, b=float("nan"), c=circular(), d=BrokenMapping(x=1), e=BrokenRepr(), f=[1, {"g": None}]
        ),
        "MINE",
        "no",
        {"a": "{1}", "b": "nan", "c": "{'ring': {...}}", "d": "{'x': 1}", "e": "<BrokenRepr>", "f": [1, {"g": None}]},
    ),
    ("text for a code", lambda: OwnText("said"), "A_CODE_OF_MINE", "said", {}),
    ("no details", NoDetails, "INTERNAL_AGENT_ERROR", "NoDetails", {"exception_type": "NoDetails"}),
    ("Fail without init", NoInit, "AGENT_ERROR", "NoInit", {}),
    ("Retry soon", RetrySoon, "AGENT_ERROR", "RetrySoon", {}),
    ("no time", NoTime, "INTERNAL_AGENT_ERROR", "NoTime", {"exception_type": "NoTime"}),
    ("no name", NamelessError, "INTERNAL_AGENT_ERROR", "NamelessError", {"exception_type": "NamelessError"}),
    ("no class", ClasslessError, "INTERNAL_AGENT_ERROR", "ClasslessError", {"exception_type": "ClasslessError"}),
    (
        "own group",
        lambda: OwnGroup("own", [ValueError("a")]),
        "INTERNAL_AGENT_ERROR",
        "a",
        {"exception_type": "ValueError"},
    ),
    (
        "text subclass",
        TextSubclassError,
        "INTERNAL_AGENT_ERROR",
        "TextSubclassError",
        {"exception_type": "TextSubclassError"},
    ),
    ("closed", GeneratorExit, "INTERNAL_AGENT_ERROR", "GeneratorExit", {"exception_type": "GeneratorExit"}),
    ("details exit", ExitsInDetails, "INTERNAL_AGENT_ERROR", "ExitsInDetails", {"exception_type": "ExitsInDetails"}),
    (
        "retry_after raises",
        lambda: BrokenRetryAfter("x"),
        "INTERNAL_AGENT_ERROR",
        "x",
        {"exception_type": "BrokenRetryAfter"},
    ),
]


async def test_error_of_any_kind_is_recorded_with_a_code_and_the_engine_goes_on(tmp_path):
    app = App()
    makes: list[Callable[[], BaseException]] = []

    async def raises() -> None:
        raise makes[-1]()

    def raises_plainly() -> None:
        raise makes[-1]()

    async def raises_in_a_step(ctx: TaskContext) -> None:
        await ctx.step("raises", raises)

    kinds: dict[str, Callable[..., Any]] = {"async": raises, "plain": raises_plainly, "task": raises_in_a_step}
    for kind, fails in kinds.items():
        app.declare(kind, fails, max_attempts=1)

    @app.workflow("good")
    async def good() -> None: ...

    async with lab(app, tmp_path) as harness:
        for name, make_error, code, message, details in CASES:
            makes.append(make_error)
            for kind in kinds:
                case = (name, kind)
                row = await harness.settled((await app.emit(kind)).id)
                recorded = harness.response(row["id"])["error"]
                frames = recorded["details"].pop("where", None)
                assert (recorded["code"], recorded["message"], recorded["details"]) == (code, message, details), case
                assert (frames is None) is ("exception_type" not in details), (
                    f"{case}: only an error that is not of craftcore has a type"
                )
                assert recorded["retryable"] is (row["status"] == "DEAD"), case
                assert (recorded["effect_possible"], recorded["retry_after"]) == (False, None), case
                assert (row["error_code"], row["error_message"]) == (code, message), case
            assert (await harness.settled((await app.emit("good")).id))["status"] == "DONE", name


async def test_error_places_are_recorded_and_logged_without_engine_frames(tmp_path):
    """The error is raised in a library below a step, with frames of the engine between workflow and library."""
    app = App()

    def parse() -> None:
        json.loads("no JSON")

    @app.workflow("bad", max_attempts=1)
    async def bad(ctx: TaskContext) -> None:
        await ctx.step("parse", parse)

    with capture_logs() as lines:
        async with lab(app, tmp_path) as harness:
            row = await harness.settled((await app.emit("bad")).id)
            details = harness.response(row["id"])["error"]["details"]

    author, raiser, *library = details["where"]
    module_path = Path(__file__)
    assert re.fullmatch(rf"{re.escape(str(module_path))}:\d+ in bad", author)
    assert re.fullmatch(rf"{re.escape(str(module_path))}:\d+ in parse", raiser)
    assert library[-1].endswith(" in raw_decode")
    assert not [place for place in details["where"] if "/craftcore/engine/" in place or "/anyio/" in place]
    [line] = [line for line in lines if line["event"] == "trigger.settled"]
    assert (line["workflow"], line["exception_type"], line["where"]) == ("bad", "JSONDecodeError", details["where"])


def test_deep_traceback_keeps_the_places_at_both_ends():
    def down(n: int) -> None:
        if n == 0:
            raise ValueError
        down(n - 1)

    with pytest.raises(ValueError) as deep:
        down(100)

    places = traceback_places(deep.value)
    assert len(places) == FIRST + LAST
    assert "test_deep_traceback" in places[0]
    lines = [int(re.findall(r":(\d+) in ", place)[0]) for place in places[-2:]]
    assert lines[0] > lines[1], "the innermost frame is the last"


def test_traceback_places_are_empty_if_never_raised_and_first_of_a_group():
    def inner() -> None:
        raise ValueError

    with pytest.raises(ValueError) as raised:
        inner()

    assert traceback_places(ValueError()) == []
    assert traceback_places(ExceptionGroup("both", [raised.value, KeyError()]))[-1].endswith(" in inner")


async def test_expected_failure_is_marked_as_such_and_not_logged_as_a_warning(tmp_path):
    async def sells() -> None:
        raise Fail("SOLD_OUT", "none left", expected=True, item="lamp")

    app = App()
    app.declare("sells", sells)
    with capture_logs() as logs:
        async with lab(app, tmp_path) as harness:
            row = await harness.settled((await app.emit("sells")).id)
    assert (row["status"], row["reason"], row["error_code"]) == ("FAILED", "expected", "SOLD_OUT")
    assert [one["log_level"] for one in logs if one["event"] == "trigger.settled"] == ["info"]


async def test_failure_details_are_copied_when_the_failure_is_recorded():
    things = [1]
    failed = outcome_of(Fail("MINE", "no", things=things), NEW_YEAR)

    things.append(object())  # type: ignore[arg-type]

    assert isinstance(failed, Failed)
    assert failed.details == {"things": [1]}


async def test_failure_details_deeper_than_a_result_are_recorded_as_text():
    deep: list[Any] = ["bottom"]
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]

    failed = outcome_of(Fail("MINE", "no", deep=deep, deeper=[deep]), NEW_YEAR)

    assert isinstance(failed, Failed)
    assert failed.details == {"deep": deep, "deeper": repr([deep])}


async def test_failure_details_larger_than_the_response_limit_are_not_stored(tmp_path):
    app = App()

    @app.workflow("order")
    async def order() -> None:
        raise Fail("REFUSED", "no such lamp", page="x" * 2000)

    small = replace(settings(), records=replace(settings().records, response_max_bytes=1024))
    async with lab(app, tmp_path, small) as harness:
        emitted = await app.emit("order")
        await harness.settled(emitted.id)
        error = harness.response(emitted.id)["error"]
        assert (error["code"], error["message"]) == ("REFUSED", "no such lamp")
        assert error["details"]["details_unstored"] == "too large"


async def test_invalid_retry_after_is_ignored():
    class Asks(Exception):
        def __init__(self, retry_after: object) -> None:
            self.retry_after = retry_after

    for asked in ("7", True, -1, float("nan"), float("inf"), 1e12, None):
        assert wait_asked(Asks(asked)) is None
    assert [wait_asked(error) for error in (Asks(7), ValueError(), BrokenRetryAfter("x"))] == [7.0, None, None]


async def test_snooze_until_a_past_time_is_due_in_a_second():
    assert outcome_of(Snooze(until=NEW_YEAR - 1), NEW_YEAR) == Snoozed(until=NEW_YEAR + 1)
    assert outcome_of(Snooze(until=NEW_YEAR), NEW_YEAR) == Snoozed(until=NEW_YEAR + 1)
    assert outcome_of(Snooze(until=NEW_YEAR + 0.5), NEW_YEAR) == Snoozed(until=NEW_YEAR + 0.5)


# Where errors are recorded


async def test_error_code_and_latency_are_in_the_attempt_end_and_final_response(tmp_path):
    app, clock = App(), VirtualClock()

    @app.workflow("slow", max_attempts=1)
    async def slow() -> None:
        clock.advance(seconds=1.5)
        raise ConnectionRefusedError("down")

    async with lab(app, tmp_path, clock=clock) as harness:
        row = await harness.settled((await app.emit("slow")).id)
        events = {
            event["type"]: json.loads(event["payload_json"])
            for event in harness.rows("SELECT type, payload_json FROM events ORDER BY seq")
        }
        assert list(events) == [
            "INTENT_RECEIVED",
            "AGENT_ATTEMPT_START",
            "AGENT_ATTEMPT_END",
            "ROUTER_DECISION",
            "FINAL_RESPONSE",
        ]
        end, final = events["AGENT_ATTEMPT_END"], events["FINAL_RESPONSE"]
        assert end == {"agent": "slow", "error_code": "TRANSPORT_ERROR", "latency_ms": 1500.0, "status": "error"}
        assert final == {"error_code": "TRANSPORT_ERROR", "has_error": True, "latency_ms": 1500.0, "status": "error"}
        [record] = harness.rows("SELECT status, error_code FROM executions")
        assert record == {"status": "error", "error_code": "TRANSPORT_ERROR"}
        assert row["error_code"] == "TRANSPORT_ERROR"


# Retries


async def first_failure(harness: Lab, name: str = "fails") -> dict[str, Any]:
    """Emit a trigger, wait until its first attempt has failed, and return its row."""
    emitted = await harness.app.emit(name)
    await harness.until(lambda: harness.trigger(emitted.id)["error_code"] is not None)
    return harness.trigger(emitted.id)


def failing_with(error: Callable[[], BaseException], **declared: Any) -> App:
    app = App()

    async def fails() -> None:
        raise error()

    app.declare("fails", fails, **{"retry": HOURLY} | declared)
    return app


def retry_delay(row: dict[str, Any]) -> float:
    """Return the seconds until the next attempt."""
    assert row["status"] == "PENDING", row
    return float(row["not_before"]) - NEW_YEAR


@pytest.mark.parametrize("retry_after", [None, 7.0])
async def test_error_code_decides_whether_and_when_the_trigger_is_retried(tmp_path, retry_after):
    class OwnError(CraftcoreError):
        pass

    async with lab(failing_with(lambda: OwnError("said")), tmp_path, clock=VirtualClock()) as harness:
        for code in ErrorCode:
            OwnError.code, OwnError.retry_after = code, retry_after
            row = await first_failure(harness)
            assert row["error_code"] == code
            if code in (
                *("ROUTING_ERROR", "AGENT_ERROR", "AGENT_TIMEOUT", "AGENT_UNAVAILABLE", "INTERNAL_AGENT_ERROR"),
                *("TRANSPORT_ERROR", "STORAGE_FULL", "WORKER_DIED"),
            ):
                assert HOUR / 2 <= retry_delay(row) <= HOUR, code
            elif code == "RATE_LIMIT":
                assert retry_delay(row) == 7 if retry_after else HOUR / 2 <= retry_delay(row) <= HOUR, code
            else:
                assert (row["status"], row["not_before"]) == ("FAILED", None), code


@pytest.mark.parametrize("code", ["AGENT_ERROR", "INTERNAL_AGENT_ERROR", "ROUTING_ERROR"])
async def test_retryable_error_with_a_single_attempt_policy_is_not_retried(tmp_path, code):
    class OwnError(CraftcoreError):
        pass

    OwnError.code = ErrorCode(code)

    async with lab(failing_with(lambda: OwnError("said"), retry=RetryPolicy(max_attempts=1)), tmp_path) as harness:
        row = await first_failure(harness)
        assert (row["status"], row["attempts"], row["error_code"]) == ("DEAD", 1, code)


async def test_storage_busy_in_a_workflow_is_retried(tmp_path):
    app = App()

    @app.workflow("report")
    async def report(ctx: TaskContext) -> None:
        if ctx.attempt == 1:
            raise StorageBusy("another process holds the write lock; nothing was written")

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("report")
        assert (await harness.ended(emitted.id))["status"] == "DONE"


@pytest.mark.parametrize("ask", [Retry, NoEffect])
@pytest.mark.parametrize(("after", "low", "high"), [(7, 7, 7), (20_000, 20_000, 20_000), (None, HOUR / 2, HOUR)])
async def test_rate_limit_waits_for_retry_after_or_else_the_backoff(tmp_path, ask, after, low, high):
    wait = {"after" if ask is Retry else "retry_after": after}

    async with lab(
        failing_with(lambda: ask("slow down", code="RATE_LIMIT", **wait)), tmp_path, clock=VirtualClock()
    ) as harness:
        row = await first_failure(harness)
        assert (row["error_code"], row["error_message"]) == ("RATE_LIMIT", "slow down")
        assert low <= retry_delay(row) <= high
        assert harness.response(row["id"])["error"]["retry_after"] == after


async def test_rate_limit_wait_grows_with_each_attempt_without_retry_after(tmp_path):
    app, clock = (
        failing_with(lambda: Retry(code=ErrorCode.RATE_LIMIT), retry=RetryPolicy(base=10, cap=HOUR)),
        VirtualClock(),
    )
    async with lab(app, tmp_path, clock=clock) as harness:
        row, waited = await first_failure(harness), []
        for attempt in (1, 2, 3):
            await harness.until(lambda attempt=attempt: harness.trigger(row["id"])["attempts"] == attempt)  # type: ignore[misc]
            await harness.until(lambda: harness.trigger(row["id"])["status"] == "PENDING")
            waited.append(harness.trigger(row["id"])["not_before"] - clock.now())
            clock.advance(seconds=waited[-1])
            harness.engine.ring(schedules=False)
        assert 5 <= waited[0] <= 10 <= waited[1] <= 20 <= waited[2] <= 40


async def test_retry_with_an_unknown_code_fails_and_lists_the_retryable_codes(tmp_path):
    async with lab(failing_with(lambda: Retry(code="SLOW_DOWN")), tmp_path) as harness:
        row = await first_failure(harness)
        assert (row["status"], row["error_code"]) == ("FAILED", "VALIDATION_ERROR")
        assert (
            "Retry(code='SLOW_DOWN') is not an error code. Those that are tried again: ROUTING_ERROR, "
            in row["error_message"]
        )


# Refusals before any write


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 201])
async def test_emit_with_an_invalid_workflow_name_is_refused_and_writes_no_row(tmp_path, name):
    async with lab(App(), tmp_path) as harness:
        with pytest.raises(InvalidInput) as refused:
            await harness.app.emit(name)
        assert refused.value.code is ErrorCode.VALIDATION_ERROR
        assert harness.rows("SELECT * FROM triggers") == []


@pytest.mark.parametrize("by", [-1, 0, 1])
async def test_payload_is_accepted_up_to_the_limit_and_refused_a_byte_above(tmp_path, by):
    app = App()
    taken: list[int] = []

    @app.workflow("take")
    async def take(text: str) -> None:
        taken.append(len(text))

    text = "x" * ((256 << 10) - len('{"text":""}') + by)
    async with lab(app, tmp_path) as harness:
        if by <= 0:
            await harness.settled((await app.emit("take", {"text": text})).id)
            assert taken == [len(text)]
            return
        with pytest.raises(PayloadTooLarge) as refused:
            await app.emit("take", {"text": text})
        assert (refused.value.code, refused.value.code.retryable) == (ErrorCode.PAYLOAD_TOO_LARGE, False)
        assert harness.rows("SELECT * FROM triggers") == []


# Cancellation


async def test_cancelled_task_has_the_aborted_code_in_task_trigger_and_records(tmp_path):
    app, began = App(), anyio.Event()

    @app.workflow("runs")
    async def runs(ctx: TaskContext) -> None:
        began.set()
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as harness:
        task = (await app.emit("runs")).id
        await began.wait()
        await app.cancel_task(task)
        row = await harness.ended(task)
        assert (row["status"], row["error_code"]) == ("CANCELLED", "WORKFLOW_ABORTED")
        assert harness.trigger(task)["error_code"] == "WORKFLOW_ABORTED"
        recorded = harness.response(task)["error"]
        assert (recorded["code"], recorded["retryable"], recorded["effect_possible"]) == (
            "WORKFLOW_ABORTED",
            False,
            False,
        )
        [end] = harness.rows("SELECT payload_json FROM events WHERE type = 'AGENT_ATTEMPT_END'")
        assert json.loads(end["payload_json"])["error_code"] == "WORKFLOW_ABORTED"
