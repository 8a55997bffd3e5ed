"""The result of ended work as a value: of the type that the workflow or the caller names, or the error to raise."""

from __future__ import annotations

import typing
from collections.abc import Callable
from types import UnionType
from typing import Any

from craftcore.error_codes import find_code
from craftcore.errors import InvalidInput, NotFound, PayloadTooLarge, WorkFailed
from craftcore.serialization.decode import decode, readable_type, return_hint, unwrap_awaitable
from craftcore.tasks.outcomes import Continue, Done
from craftcore.tasks.work_store import WorkResult


def result_type(fn: Callable[..., Any]) -> Any:
    """Return the annotated result of a workflow's function: what it returns, and X of a `Done[X]`, besides Continue.
    Any when it does not say, or says what JSON cannot become."""
    try:
        hint = unwrap_awaitable(return_hint(fn))
        members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        results = [_result_member(member) for member in members if Continue not in (member, typing.get_origin(member))]
        return readable_type(typing.Union[tuple(results)]) if results else Any  # noqa: UP007 - made at run time
    except Exception:  # an annotation is an expression, and may raise anything
        return Any


def _result_member(member: Any) -> Any:
    if member is Done:
        return Any
    return typing.get_args(member)[0] if typing.get_origin(member) is Done else member


def require_result(end: WorkResult, type: Any) -> Any:
    """Return the result of ended work, as `type`; None: as plain JSON values. Raises as Handle.result does."""
    if end.failure is not None:
        raise _work_failed(end)
    if end.delivered_to is not None:
        return None
    if end.result_json is None:
        raise NotFound(f"the result of {end.id} is not kept any more; it ended {end.status}", id=end.id)
    value = decode(end.result_json)
    if isinstance(value, dict) and value.keys() == {"result_unstored", "bytes", "sha256"}:
        raise PayloadTooLarge(
            f"the result of {end.id} has {value['bytes']} bytes and was not stored: records.response_max_bytes is less",
            id=end.id,
        )
    if isinstance(value, dict) and value.keys() == {"result_unstored"}:
        raise InvalidInput(f"the result of {end.id} was not stored: {value['result_unstored']}", id=end.id)
    return value if type in (None, Any) else decode(end.result_json, readable_type(type), f"the result of {end.id}")


def _work_failed(end: WorkResult) -> WorkFailed:
    assert end.failure is not None, end
    code, message = end.failure
    why = message or end.reason or code or "no error is on record"
    error = WorkFailed(
        f"{end.workflow or 'trigger'} {end.id} ended {end.status}: {why}",
        id=end.id,
        status=end.status,
        reason=end.reason,
        code=code,
    )
    if code:
        error.code = find_code(code) or code
    return error
