"""The table of error codes: the code, the failure model and the documents agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from craftcore.error_codes import Backoff, ErrorCode, find_code
from craftcore.errors import CraftcoreError, InvalidInput
from craftcore.outcome_exceptions import Fail, NoEffect, Retry

FAILURE_MODEL = """
    VALIDATION_ERROR      | Validation | No    | N/A
    PAYLOAD_TOO_LARGE     | Validation | No    | N/A
    ROUTING_ERROR         | Routing    | Maybe | Exponential
    CAPABILITY_NOT_FOUND  | Routing    | No    | N/A
    AGENT_ERROR           | Agent      | Maybe | Exponential
    AGENT_TIMEOUT         | Agent      | Yes   | Exponential
    AGENT_UNAVAILABLE     | Agent      | Yes   | Exponential
    INTERNAL_AGENT_ERROR  | Agent      | Maybe | Exponential
    TRANSPORT_ERROR       | Transport  | Yes   | Exponential
    PROTOCOL_ERROR        | Transport  | No    | N/A
    UNAUTHORIZED          | Security   | No    | N/A
    RATE_LIMIT            | Security   | Yes   | Use Retry-After
    EMCL_FAILURE          | Security   | No    | N/A
    WORKFLOW_ABORTED      | Internal   | No    | N/A
"""
"""The table of the failure model. Where its table of retries lacks a retryable code, the backoff is craftcore's."""

OWN_CODES = """
    LEASE_LOST            | Internal   | No    | N/A
    POISON                | Internal   | No    | N/A
    STORAGE_FULL          | Internal   | Yes   | Exponential
    SCHEDULE_INVALID      | Validation | No    | N/A
    STEP_CONFLICT         | Validation | No    | N/A
    KEY_REQUIRED          | Validation | No    | N/A
    CHILD_FAILED          | Agent      | No    | N/A
    IDEMPOTENCY_CONFLICT  | Validation | No    | N/A
    ACTIVITY_UNKNOWN      | Agent      | No    | N/A
    WORKER_DIED           | Agent      | Yes   | Exponential
    NOT_REPLAYABLE        | Validation | No    | N/A
    REPLAY_HASH_MISMATCH  | Validation | No    | N/A
"""

RETRYABLE = {True: "Yes", False: "No", "maybe": "Maybe"}
BACKOFF = {Backoff.NONE: "N/A", Backoff.EXPONENTIAL: "Exponential", Backoff.RETRY_AFTER: "Use Retry-After"}


def rows(table: str) -> list[tuple[str, ...]]:
    return [tuple(cell.strip() for cell in line.split("|")) for line in table.strip().splitlines()]


ALL_CODES = rows(FAILURE_MODEL) + rows(OWN_CODES)


def test_error_codes_are_exactly_the_documented_codes():
    assert len(rows(FAILURE_MODEL)) == 14
    assert [str(code) for code in ErrorCode] == [name for name, *_ in ALL_CODES]


@pytest.mark.parametrize(("name", "category", "retryable", "backoff"), ALL_CODES, ids=[name for name, *_ in ALL_CODES])
def test_code_has_its_category_and_retry_rule(name, category, retryable, backoff):
    code = ErrorCode(name)
    assert code == code.name == code.value == name
    assert (code.category, RETRYABLE[code.retryable], BACKOFF[code.backoff]) == (category.lower(), retryable, backoff)
    assert code.may_be_retried is (retryable != "No")


def test_text_is_parsed_as_a_code_or_none():
    assert find_code("AGENT_TIMEOUT") is ErrorCode.AGENT_TIMEOUT
    assert find_code("agent_timeout") is find_code("MY_OWN") is find_code("") is None


def subclasses(error: type[CraftcoreError]) -> list[type[CraftcoreError]]:
    return [error, *(inner for one in error.__subclasses__() for inner in subclasses(one))]


def test_own_error_has_a_code_of_the_table():
    own_errors = [error for error in subclasses(CraftcoreError) if error.__module__ == "craftcore.errors"]
    assert len(own_errors) > 20
    assert {type(error.code) for error in own_errors} == {ErrorCode}


# Codes that user code raises


@pytest.mark.parametrize("outcome", [Retry, NoEffect])
@pytest.mark.parametrize("spelling", [str, ErrorCode])
def test_retry_accepts_every_retryable_code(outcome, spelling):
    for name, _, retryable, _ in ALL_CODES:
        if retryable != "No":
            assert outcome("later", code=spelling(name)).code is ErrorCode(name)


@pytest.mark.parametrize("outcome", [Retry, NoEffect])
@pytest.mark.parametrize("code", ["rate_limit", "MY_OWN", "", None, 429, Backoff.RETRY_AFTER, "x" * 9999])
def test_retry_with_an_unknown_code_is_refused_with_the_known_codes(outcome, code):
    with pytest.raises(InvalidInput, match=rf"{outcome.__name__}\(code=.* is not an error code") as refused:
        outcome(code=code)
    assert refused.value.message.endswith(
        "ROUTING_ERROR, AGENT_ERROR, AGENT_TIMEOUT, AGENT_UNAVAILABLE, INTERNAL_AGENT_ERROR, TRANSPORT_ERROR, "
        "RATE_LIMIT, STORAGE_FULL, WORKER_DIED"
    )
    assert len(refused.value.message) < 400


@pytest.mark.parametrize("outcome", [Retry, NoEffect])
@pytest.mark.parametrize("code", [name for name, _, retryable, _ in ALL_CODES if retryable == "No"])
def test_retry_with_a_final_code_is_refused(outcome, code):
    with pytest.raises(InvalidInput, match=f"{code}.* is never tried again: raise Fail with it"):
        outcome(code=code)


def test_uninitialised_subclass_of_an_own_error_has_the_code_of_its_base():
    def broken(base: type[Exception]) -> type[Exception]:
        return type("Broken", (base,), {"__init__": lambda self: None})

    assert [broken(base)().code for base in (Retry, NoEffect, Fail)] == [  # type: ignore[attr-defined]
        "AGENT_ERROR",
        "AGENT_UNAVAILABLE",
        "AGENT_ERROR",
    ]


# The document

FAILURES = (Path(__file__).parents[1] / "docs" / "reference" / "error-codes.md").read_text(encoding="utf-8")
LINE = re.compile(r"^\| `([A-Z_]+)` \| (\w+) \| (yes|no|maybe) \| (exponential|`Retry-After`|) ?\| (\S.*) \|$", re.M)


def test_document_has_every_code_with_its_rule_and_cause():
    backoff = {Backoff.NONE: "", Backoff.EXPONENTIAL: "exponential", Backoff.RETRY_AFTER: "`Retry-After`"}
    documented = [(code, category, retried, wait) for code, category, retried, wait, _ in LINE.findall(FAILURES)]
    assert documented == [
        (str(code), code.category, RETRYABLE[code.retryable].lower(), backoff[code.backoff]) for code in ErrorCode
    ]
    assert len(re.findall(r"^\| `[A-Z_]+` \|", FAILURES, re.M)) == len(documented), "the pattern does not match a line"
