"""The output of `command.run` in `trigger show` and `inspect`: text with its line breaks."""

from __future__ import annotations

import pytest

from craftcore.cli.program_output import split_output
from craftcore.serialization.encode import encode
from craftcore.triggers.settlement import Failed, Succeeded
from tests.support.attempts import begin, end

RAN = {"exit_code": 0, "stdout": "one\n\ttwo \x1b[2J\n", "stderr": "", "seconds": 0.1}
AS_TEXT = "  stdout\n  | one\n  |         two \\x1b[2J\n"


def test_output_of_a_program_is_shown_as_text_in_trigger_show_and_inspect(cli, core):
    begun = begin(core, workflow="command.run")
    end(core, begun, Succeeded(result_json=encode(RAN, "result")))

    shown = cli("trigger", "show", begun.claim.id).out
    assert AS_TEXT in shown
    assert "stderr" not in shown
    assert cli("inspect", begun.id, "--output").out == AS_TEXT
    assert cli("--json", "inspect", begun.id, "--output").json == {"stdout": RAN["stdout"]}


def test_output_of_a_failed_program_is_in_the_details_of_its_error(cli, core):
    begun = begin(core, workflow="command.run")
    end(core, begun, Failed(code="E", message="exited with 1", retryable=False, details={**RAN, "stderr": "why"}))

    assert cli("inspect", begun.id, "--output").out == f"{AS_TEXT}  stderr\n  | why\n"


def test_record_without_a_program_has_no_output(cli, core):
    begun = begin(core)
    end(core, begun, Succeeded(result_json='{"stdout":"mine"}'))

    assert cli("inspect", begun.id, "--output").out == "no output of a program is recorded\n"
    assert "response" in cli("trigger", "show", begun.claim.id).out


@pytest.mark.parametrize("value", [None, 1, "text", [], {}, {"exit_code": 0, "stdout": 1, "stderr": ""}])
def test_result_of_another_workflow_is_not_split(value):
    assert split_output(value) == (value, {})
