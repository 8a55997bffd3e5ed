"""The inbox page: questions and doubts, answered once, by the person who is logged in."""

from __future__ import annotations

import re

import pytest

from craftcore.triggers.model import TriggerSpec
from tests.support.web_site import TOKENS, forms


def answers_of(site, question):
    with site.services.reading() as reader:
        return reader.fetch_one("SELECT answer, answered_by, note FROM questions WHERE id = :id", id=question)


def audit_rows(site):
    with site.services.reading() as reader:
        return reader.fetch_all("SELECT action, subject, details_json FROM audit_log ORDER BY seq")


def test_inbox_lists_doubt_before_questions_and_links_to_each(site, world):
    text = site.get("/").text

    assert f'href="/q/{world.question}"' in text
    assert f'href="/activities/{world.in_doubt.replace(":", "%3A")}"' in text
    assert text.index("Did it happen?") < text.index("ask asks")


OLDER = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 55)
INSERT INTO questions (id, task_seq, kind, question, created_at)
SELECT 'older-' || n, task_seq, 'ask', 'Is it ' || n || '?', created_at
  FROM numbers, (SELECT task_seq, created_at FROM questions WHERE id = :id)
"""
SOON = """
INSERT INTO questions (id, task_seq, kind, question, created_at, expires_at)
SELECT 'soon', task_seq, 'ask', 'Is it soon?', created_at, created_at + 60 FROM questions WHERE id = :id
"""


def test_inbox_of_many_shows_the_most_urgent_and_not_the_oldest(site, world):
    with site.services.transaction() as tx:
        tx.run(OLDER, id=world.question)
        tx.run(SOON, id=world.question)
        tx.run("UPDATE questions SET seq = 1000 WHERE activity_seq IS NOT NULL")  # the newest question

    text = site.get("/").text

    places = [text.index(part) for part in ("Did it happen?", 'href="/q/soon"', f'href="/q/{world.question}"')]
    assert places == sorted(places)
    assert "These are the first 50." in text
    assert 'href="/q/older-55"' not in text


def test_inbox_entry_has_its_end_and_the_default_answer(site, world):
    """The end is the expiry of the question or the deadline of its task, whichever is earlier."""
    words = {}
    with site.services.transaction() as tx:
        now = tx.now
    for name, expires, default, deadline in [
        ("never", None, None, None),
        ("default", now + 60, '"<hold>"', now + 90),
        ("none", now + 60, "null", None),
        ("deadline", now + 60, '"hold"', now + 30),
    ]:
        with site.services.transaction() as tx:
            tx.run(
                "UPDATE questions SET expires_at = :at, default_json = :default WHERE id = :id",
                at=expires,
                default=default or "null",
                id=world.question,
            )
            tx.run("UPDATE tasks SET deadline_at = :at WHERE id = :id", at=deadline, id=world.asks)
        [words[name]] = re.findall(r'<p class="dim">([^·]*) · task ', site.get("/").text)

    assert words["never"] == "for as long as it takes"
    assert re.fullmatch(r"until <time .*</time>, then: &lt;hold&gt;", words["default"])
    assert re.fullmatch(r"until <time .*</time>, then: it goes on without an answer", words["none"])
    assert re.fullmatch(r"until <time .*</time>, then: the task fails", words["deadline"])


def test_inbox_shows_the_next_three_items_and_nothing_late(site, world):
    """The items are also shown without an open question."""
    with site.services.transaction() as tx:
        now = tx.now
        tx.run("UPDATE triggers SET fire_at = 1, not_before = NULL, due_at = 1 WHERE status = 'PENDING'")
        tx.run("UPDATE schedules SET next_at = :now - 60 WHERE id = 'nightly'")
        tx.run("UPDATE schedules SET next_at = NULL WHERE id = 'paused'")
        tx.run("UPDATE schedules SET next_at = :now + 7200 WHERE id = 'ahead'")
        first, second, third = (
            site.services.triggers.emit(tx, TriggerSpec(workflow="nap", at=now + after)).id
            for after in (3600, 10_800, 14_400)
        )

    text = site.get("/").text
    [line] = re.findall("<p>Next: (.*?)</p>", text)
    assert re.findall('href="([^"]*)"', line) == [f"/triggers/{first}", "/schedules/ahead", f"/triggers/{second}"]
    assert third not in text

    with site.services.transaction() as tx:
        tx.run(
            "UPDATE questions SET status = 'WITHDRAWN', closed_at = :now WHERE status = 'OPEN'",
        )
    text = site.get("/").text
    assert "No open questions." in text
    assert line in text


def test_damaged_trigger_hides_no_question(site, world):
    with site.services.transaction() as tx:
        broken = site.services.triggers.emit(tx, TriggerSpec(workflow="nap", at=tx.now + 3600)).id
        tx.run("UPDATE triggers SET workflow = CAST(x'ff' AS TEXT) WHERE id = :id", id=broken)

    text = site.get("/").text

    assert f'href="/q/{world.question}"' in text
    assert "<p>Next: " not in text


def test_question_is_answered_in_two_taps_by_the_person(site, world):
    page = site.get(f"/q/{world.question}")
    [form] = [form for form in forms(page.text) if form.action == f"/q/{world.question}/answer"]

    sent = site.post(form.action, {**form.hidden, "option": "0", "note": "fine"})

    assert sent.status_code == 303
    assert answers_of(site, world.question)["answered_by"] == "ada (web)"
    assert answers_of(site, world.question)["note"] == "fine"
    after = site.get(sent.headers["location"]).text
    assert "answered; task" in after
    assert "ada (web)" in after
    [row] = audit_rows(site)
    assert row["action"] == "inbox answer"
    assert '"person_name":"ada"' in row["details_json"]
    assert '"via":"web"' in row["details_json"]


def test_form_sent_twice_answers_once_with_a_notice(site, world):
    page = site.get(f"/q/{world.question}")
    [form] = [form for form in forms(page.text) if form.action == f"/q/{world.question}/answer"]

    first = site.post(form.action, {**form.hidden, "option": "0"})
    second = site.post(form.action, {**form.hidden, "option": "0"})

    assert (first.status_code, second.status_code) == (303, 303)
    assert "was done already" in site.get(second.headers["location"]).text
    assert len(audit_rows(site)) == 1


def test_second_person_is_refused_with_the_current_state(site, world):
    pages = [site.get(f"/q/{world.question}", person).text for person in ("ada", "cal")]
    shown = [next(form for form in forms(page) if form.action.endswith("/answer")) for page in pages]

    site.post(shown[0].action, {**shown[0].hidden, "option": "0"}, "ada")
    late = site.post(shown[1].action, {**shown[1].hidden, "option": "1"}, "cal")

    assert late.status_code == 409
    assert "was OPEN when you saw it, and is ANSWERED by ada (web) now; nothing was done" in late.text
    assert f'href="/q/{world.question}">as it is now</a>' in late.text
    assert answers_of(site, world.question)["answered_by"] == "ada (web)"
    assert len(audit_rows(site)) == 1


def test_inbox_of_a_person_without_permission_to_act_has_links_to_look(site, world):
    shown = site.get("/", "bob").text

    assert f'href="/q/{world.question}">look</a>' in shown
    assert ">answer</a>" not in shown


def test_empty_decision_names_the_missing_field(site, world):
    address = f"/activities/{world.in_doubt}"
    [form] = [form for form in forms(site.get(address).text) if form.action.endswith("/resolve")]

    answer = site.post(form.action, form.hidden)

    assert (answer.status_code, "Decision is empty: go back, and fill it in" in answer.text) == (400, True)


def test_activity_in_doubt_is_decided_with_a_reference(site, world):
    address = f"/activities/{world.in_doubt}"
    page = site.get(address)
    [form] = [form for form in forms(page.text) if form.action.endswith("/resolve")]

    sent = site.post(form.action, {**form.hidden, "decision": "happened", "reference": "ref-9", "note": "seen"})

    assert sent.status_code == 303
    after = site.get(address).text
    assert "ref-9" in after
    assert "ada (web)" in after
    assert [row["action"] for row in audit_rows(site)] == ["activity resolve"]


def test_resend_requires_a_confirmation_and_keeps_the_note(site, world):
    [form] = [f for f in forms(site.get(f"/activities/{world.in_doubt}").text) if f.action.endswith("/resolve")]

    asked = site.post(form.action, {**form.hidden, "decision": "resend", "note": "it is \\ not there"})

    assert asked.status_code == 200
    assert "This cannot be taken back." in asked.text
    assert "it is \\ not there</textarea>" in asked.text
    assert audit_rows(site) == []
    [again] = [f for f in forms(asked.text) if f.action.endswith("/resolve")]
    fields = {**again.hidden, "decision": "resend", "note": "it is \\ not there"}
    assert site.post(again.action, fields).status_code == 303
    assert [row["action"] for row in audit_rows(site)] == ["activity resolve"]


def test_reference_is_dropped_when_the_act_is_sent_again(site, world):
    """The person entered a reference, and then chose another decision."""
    [form] = [f for f in forms(site.get(f"/activities/{world.in_doubt}").text) if f.action.endswith("/resolve")]
    fields = {"decision": "resend", "reference": "ref-9", "note": "not there"}
    asked = site.post(form.action, {**form.hidden, **fields})
    [again] = [f for f in forms(asked.text) if f.action.endswith("/resolve")]

    assert site.post(again.action, {**again.hidden, **fields}).status_code == 303
    assert [row["action"] for row in audit_rows(site)] == ["activity resolve"]


def test_person_without_permission_decides_no_doubt(site, world):
    assert "and not decide about actions in doubt" in site.get(f"/activities/{world.in_doubt}", "cal").text

    refused = site.post(
        f"/activities/{world.in_doubt}/resolve", {"decision": "happened", "once": "x", "seen": "x"}, "cal"
    )

    assert refused.status_code == 403
    assert "cal may not decide about actions in doubt" in refused.text
    assert audit_rows(site) == []


def test_person_without_permission_sees_no_form_and_can_send_none(site, world):
    page = site.get(f"/q/{world.question}", "bob").text

    assert [form.action for form in forms(page)] == ["/logout"]
    refused = site.post(f"/q/{world.question}/answer", {"option": "0", "once": "x", "seen": "OPEN"}, "bob")
    assert refused.status_code == 403
    assert audit_rows(site) == []


def test_answer_that_is_no_option_is_refused(site, world):
    [form] = [f for f in forms(site.get(f"/q/{world.question}").text) if f.action.endswith("/answer")]

    for option in ("99", "-1", "", "x", "0" * 400):
        assert site.post(form.action, {**form.hidden, "option": option}).status_code == 400
    assert audit_rows(site) == []


def test_doubt_page_lists_undecided_activities(site, world):
    text = site.get("/doubt").text

    assert "1 undecided." in text
    assert f'href="/activities/{world.in_doubt.replace(":", "%3A")}"' in text


def test_unknown_ids_have_a_page_with_the_reason(site):
    for address in ("/q/nothing", "/activities/nothing", "/nothing", "/q/nothing/answer"):
        found = site.get(address)
        assert (found.status_code, "no " in found.text.lower()) == (404, True), address


def test_link_of_a_message_leads_to_its_page_after_the_login(site, world):
    sent_away = site.get(f"/q/{world.question}", "")
    assert sent_away.headers["location"] == f"/login?next=/q/{world.question}"

    [form] = forms(site.get(sent_away.headers["location"], "").text)
    logged_in = site.post(form.action, {**form.hidden, "name": "ada", "token": TOKENS["ada"]}, "")

    assert logged_in.headers["location"] == f"/q/{world.question}"


@pytest.mark.parametrize(
    "address", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil", "", "/logout"]
)
def test_login_leads_to_no_other_site(site, address):
    fields = {"next": address, "name": "ada", "token": TOKENS["ada"]}

    assert site.post("/login", fields, "").headers["location"] == "/"


FORM = """
{"type": "object", "required": ["street"], "properties": {
  "street": {"type": "string", "title": "<Street>", "minLength": 2}, "count": {"type": "integer", "maximum": 9},
  "express": {"type": "boolean"}, "speed": {"type": "string", "enum": ["slow", "<fast>"]}}}
"""


def test_question_with_a_form_is_answered_field_by_field(site, world):
    with site.services.transaction() as tx:
        tx.run("UPDATE questions SET form_json = :form, options_json = NULL, addressee = 'finance'", form=FORM)
    assert "finance" in site.get("/").text
    page = site.get(f"/q/{world.question}")
    [form] = [form for form in forms(page.text) if form.action == f"/q/{world.question}/answer"]
    assert "&lt;Street&gt;" in page.text
    for wrong, why in (
        ({"field0": "x"}, "street must have at least 2 characters"),
        ({"field0": "Main", "field1": "ten"}, "count must be a whole number"),
        ({"field1": "1"}, "street is missing"),
        ({"field0": "Main", "field3": "2"}, "speed is not one of its choices"),
    ):
        refused = site.post(form.action, {**form.hidden, **wrong})
        assert (refused.status_code, why in refused.text) == (400, True), refused.text
    assert answers_of(site, world.question)["answer"] is None

    fields = {"field0": "Main", "field1": "3", "field2": "0", "field3": "1"}
    assert site.post(form.action, {**form.hidden, **fields}).status_code == 303

    assert answers_of(site, world.question)["answer"] == '{"count":3,"express":true,"speed":"<fast>","street":"Main"}'


@pytest.mark.parametrize(
    ("addressee", "is_allowed"), [(None, True), ("finance", True), ("dan", True), ("sales", False)]
)
def test_person_with_role_answer_is_refused_for_other_groups(site, world, addressee, is_allowed):
    with site.services.transaction() as tx:
        tx.run("UPDATE questions SET addressee = :to WHERE id = :id", to=addressee, id=world.question)
    [form] = [form for form in forms(site.get(f"/q/{world.question}").text) if form.action.endswith("/answer")]
    shown = site.get(f"/q/{world.question}", "dan").text
    assert (form.action in {one.action for one in forms(shown)}) is is_allowed
    assert ("sales</span> is asked" in shown) is not is_allowed

    sent = site.post(form.action, {**form.hidden, "option": "0"}, "dan")

    assert (sent.status_code == 303) is is_allowed
    assert is_allowed or "the question is for sales, and not for dan: nothing was done" in sent.text
    assert (answers_of(site, world.question)["answered_by"] == "dan (web)") is is_allowed


def test_person_with_role_answer_is_refused_for_other_actions(site, world):
    [cancel] = [form for form in forms(site.get(f"/tasks/{world.asks}/cancel").text) if form.action.endswith("/cancel")]
    assert "dan, may answer" in site.get("/", "dan").text.replace("</span>", "")

    sent = site.post(cancel.action, {**cancel.hidden, "confirmed": "1"}, "dan")

    assert sent.status_code == 403
    assert "dan may look here, and not act" in sent.text
    assert audit_rows(site) == []
