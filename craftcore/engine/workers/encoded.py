"""The result of a call as JSON text. A worker process makes it of its results, so the daemon gets nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any, NamedTuple

from craftcore.errors import ErrorCode, InvalidInput, PayloadTooLarge
from craftcore.executions.responses import truncate_result
from craftcore.outcome_exceptions import Fail
from craftcore.results.own_work import run_in_process
from craftcore.serialization.annotations import return_type, unbind
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.plain import SCALARS
from craftcore.serialization.roundtrip import encode_as
from craftcore.serialization.untrusted import MESSAGE_LIMIT, is_awaitable, truncate_text
from craftcore.tasks.outcomes import Continue, Done


class Encoded(NamedTuple):
    """A result as text. `is_stored` False: a stub has taken its place."""

    text: str
    is_stored: bool = True


def encode_result(result: Any, type_: Any = Any) -> Encoded:
    """Return the result of a workflow, which is read as this type. One that cannot be stored does not repeat the work:
    a stub takes its place."""
    try:
        return Encoded(encode_as(result, type_, "result"))
    except InvalidInput as error:
        stub = canonicalize({"result_unstored": truncate_text(error.message, MESSAGE_LIMIT)})
        return Encoded(stub, is_stored=False)


def require_small(text: str, limit: int, what: str) -> None:
    """Raise PayloadTooLarge for what is too much to be put on record."""
    if len(text) > limit:
        raise PayloadTooLarge(
            f"{what} has {len(text):,} bytes; the limit is {limit:,} (tasks.result_max_bytes). "
            "Store it elsewhere and keep a reference"
        )


def call_step(step: str, limit: int, call: Callable[[], Any], home: str | None) -> Encoded:
    """Call the function of a step, and return its result. Raises InvalidInput or PayloadTooLarge for a result that
    cannot be on record, else what the function raises."""
    what = f"the result of {step}"
    run_in_process(home)
    text = encode_as(_require_plain(call(), step), return_type(call), what)
    require_small(text, limit, what)
    return Encoded(text)


def call_workflow(workflow: str, limit: int, call: Callable[[], Any], home: str) -> Encoded:
    """Call the function of a workflow, and return its result; a stub for one over the limit. Raises what it raises."""
    run_in_process(home)
    result = _require_plain(call(), workflow)
    if isinstance(result, Continue):
        raise Fail(ErrorCode.VALIDATION_ERROR, refuse_continue(workflow))
    made = result.result if isinstance(result, Done) else result
    encoded = encode_result(made, Any if type(made) in SCALARS else _find_result_type(call))
    kept = truncate_result(encoded.text, limit)
    return encoded if kept is encoded.text else Encoded(kept, is_stored=False)


def _find_result_type(call: Callable[[], Any]) -> Any:
    """Return the type of the result of a workflow. A worker process needs it seldom, and imports it then."""
    from craftcore.registry.workflow import find_result_type

    return find_result_type(unbind(call))


def _require_plain(result: Any, whose: str) -> Any:
    """Return the result. Raises Fail for something to await: a worker process has no event loop."""
    if not is_awaitable(result):
        return result
    if isinstance(result, CoroutineType):
        result.close()
    raise Fail(
        ErrorCode.VALIDATION_ERROR,
        f"the function of {whose} returned something to await, and a worker process has no event loop: leave out "
        'executor="process", or make it a plain function',
    )


def refuse_continue(workflow: str) -> str:
    """Return the message for a workflow without turns that returned Continue."""
    return f"{workflow} returned Continue and takes no ctx: only a workflow with ctx has turns"
