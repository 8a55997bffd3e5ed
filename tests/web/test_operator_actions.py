"""Operator actions of the page: one audit row with the person, the refusals of the command, and no repetition."""

from __future__ import annotations

import shutil

import pytest

from craftcore.errors import CraftcoreError, NotFound, PermissionRefused, StateRefused
from craftcore.web.actions.form import ALREADY
from craftcore.web.actions.table import ACTIONS
from craftcore.web.page import Redirect
from tests.cli.conftest import cli, clock, here  # noqa: F401 - fixtures
from tests.support.commands import BY_HAND, line
from tests.support.web_actions import ADA, BOB, CAL, make_site, send, state_now, subject_of

SINGLE = [name for name in ACTIONS if not name.endswith(" --all")]
FINDS = [name for name in ACTIONS if ACTIONS[name].find is not None]


def find_error(here, name) -> str:  # noqa: F811
    """Return the error code of the dead letter, or '' for an action without one."""
    if not name.endswith(" --all"):
        return ""
    with here.core.reading() as reader:
        return str(reader.fetch_value("SELECT error_code FROM triggers WHERE id = :id", id=here.world.dead))


def send_as_seen(site, here, name, once="once", person=ADA, error=None):  # noqa: F811
    """Load a form and send it. `error` None: the current error of the dead letter."""
    action = ACTIONS[name]
    seen = state_now(site, action, subject_of(action, here.world))
    error = find_error(here, name) if error is None else error
    return send(site, name, here.world, seen=seen, once=once, person=person, error=error)


@pytest.fixture
def site(here, database, clock):  # noqa: F811
    site = make_site(database, clock)
    yield site
    site.services.close()


@pytest.mark.parametrize("name", ACTIONS)
def test_action_is_audited_with_its_person_and_done_once(site, here, cli, name):  # noqa: F811
    error = find_error(here, name)
    done = send_as_seen(site, here, name, error=error)

    assert isinstance(done, Redirect)
    [row] = here.rows()
    assert row.action.removesuffix(" --all") == name.removesuffix(" --all")
    assert (row.details["person_name"], row.details["via"]) == ("ada", "web")
    assert row.details["request"].startswith("once:")
    assert row.hash == row.hash_now

    again = send_as_seen(site, here, name, error=error) if ACTIONS[name].find is None else None
    assert again is None or (isinstance(again, Redirect) and again.notice == ALREADY)
    assert len(here.rows()) == 1
    here.core.close()
    site.services.close()
    verified = cli("verify")
    assert verified.code == 0, verified


@pytest.mark.parametrize("name", FINDS)
def test_form_that_is_sent_twice_is_done_once(site, here, name):  # noqa: F811
    """The second form has the state before the first one, as after a double tap. It is not refused as stale."""
    seen = state_now(site, ACTIONS[name], subject_of(ACTIONS[name], here.world))
    send(site, name, here.world, seen=seen, once="once")

    again = send(site, name, here.world, seen=seen, once="once")

    assert isinstance(again, Redirect)
    assert again.notice == ALREADY
    assert len(here.rows()) == 1


@pytest.mark.parametrize("name", FINDS)
def test_stale_form_is_refused(site, here, name):  # noqa: F811
    with pytest.raises(StateRefused, match="when you saw it"):
        send(site, name, here.world, seen="RUNNING at turn 7", once="once")

    assert here.rows() == []


def test_form_that_is_sent_again_with_other_content_is_refused(site, here):  # noqa: F811
    """After the back button, a browser fills in the form with its old name."""
    send_as_seen(site, here, "task signal")

    with pytest.raises(StateRefused, match="with other content"):
        send(site, "task signal", here.world, seen=state_now(site, ACTIONS["task signal"], here.world.waits),
             once="once", event="another")  # fmt: skip

    assert len(here.rows()) == 1


def test_second_answer_is_refused_and_names_the_first_person(site, here):  # noqa: F811
    seen = state_now(site, ACTIONS["inbox answer"], here.world.question)
    send(site, "inbox answer", here.world, seen=seen, once="first")

    with pytest.raises(StateRefused, match=r"was OPEN when you saw it, and is ANSWERED by ada \(web\) now"):
        send(site, "inbox answer", here.world, seen=seen, once="second", person=CAL)


def test_occurrence_that_was_not_seen_is_not_skipped(site, here):  # noqa: F811
    """Two people have the same page open, and each wants to skip the next occurrence that it shows."""
    seen = state_now(site, ACTIONS["schedule skip-next"], "nightly")
    send(site, "schedule skip-next", here.world, seen=seen, once="first")

    with pytest.raises(StateRefused, match="when you saw it"):
        send(site, "schedule skip-next", here.world, seen=seen, once="second", person=CAL)


def test_schedule_with_another_declaration_is_not_removed(site, here, cli):  # noqa: F811
    seen = state_now(site, ACTIONS["schedule remove"], "nightly")
    here.core.close()
    assert cli("schedule", "edit", "nightly", "--payload", '{"another": 1}').code == 0

    with pytest.raises(StateRefused, match="as declared"):
        send(site, "schedule remove", here.world, seen=seen, once="once")


def test_hold_that_was_not_seen_is_not_released(site, here, cli):  # noqa: F811
    seen = state_now(site, ACTIONS["release"], "")
    here.core.close()
    assert cli("hold", "--schedule", "nightly", "--reason", "it sends twice").code == 0

    with pytest.raises(StateRefused, match=r"is .*nightly: .*it sends twice now; nothing was done"):
        send(site, "release", here.world, seen=seen, once="once")

    assert "it sends twice" in state_now(site, ACTIONS["release"], "")


@pytest.mark.parametrize("name", ACTIONS)
def test_permission_to_look_does_not_include_actions(site, here, name):  # noqa: F811
    with pytest.raises(PermissionRefused):
        send_as_seen(site, here, name, person=BOB)

    assert here.rows() == []


@pytest.mark.parametrize("name", ACTIONS)
def test_read_only_file_is_not_written(here, database, clock, name):  # noqa: F811
    site = make_site(database, clock, read_only=True)
    with pytest.raises(PermissionRefused, match="read only"):
        send_as_seen(site, here, name)
    site.services.close()

    assert here.rows() == []


@pytest.mark.parametrize("name", SINGLE)
def test_second_action_is_refused_as_by_the_command(site, here, cli, database, tmp_path, name):  # noqa: F811
    send_as_seen(site, here, name)
    site.services.close()
    here.core.close()
    for file in database.parent.glob("agent.db*"):  # with the WAL, which a reader may have open
        shutil.copy(file, tmp_path / file.name.replace("agent", "other"))
    of_all = name in ("dead requeue", "schedule reanchor")  # the default of the command is all
    subject = subject_of(ACTIONS[name], here.world)
    command = [*name.split(), subject] if of_all else line(name, BY_HAND[name], here.world)

    by_command = cli("--db", str(tmp_path / "other.db"), *command)
    try:
        by_page = send_as_seen(site, here, name, once="another")
    except CraftcoreError as error:
        by_page = error

    if isinstance(by_page, CraftcoreError):
        assert by_command.code == by_page.exit_code, (by_command, by_page)
        if not isinstance(by_page, NotFound):  # the message of the command is longer
            assert by_page.message.split(";")[0] in by_command.err
    else:
        assert isinstance(by_page, Redirect)
        assert by_command.code == 0 or by_page.notice.partition(": ")[2] in by_command.out, by_command
