"""`/audit`: the operators' log: who did what, to what, why, and by which channel."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.audit.listing_store import AuditFilter, AuditListStore
from craftcore.audit.model import AuditRow
from craftcore.diagnostics.audit_subjects import list_parts, parse_user
from craftcore.diagnostics.text.audit_text import actor_text, details_of, details_text, other_details
from craftcore.storage.row_spans import NO_BOUND, find_span
from craftcore.web.links import list_links, read_filter, read_number
from craftcore.web.mask import mask
from craftcore.web.page import Page
from craftcore.web.visit import Visit

SHOWN = 50
COMMAND_LINE = "command line"
FILTERS = ("subject", "action", "by")


class AuditLine(NamedTuple):
    """A row of the log in words. `payload`: what was changed in a payload; None: nothing was."""

    row: AuditRow
    actor: str
    channel: str
    details: str
    payload: object


def show_audit(visit: Visit) -> Page:
    """Return the page of the log. Raises FilterInvalid for a number that no user has."""
    given = {name: read_filter(visit, name) for name in FILTERS}
    subject, by, before = given["subject"], given["by"], read_number(visit, "before")
    uid, name = (None, None) if by is None else parse_user(by)
    with visit.reading() as reader:
        is_search = subject is None and any(given.values())
        span = find_span(reader, "audit_log", "at", before) if is_search else None
        those = AuditFilter(
            subject=subject,
            parts=[] if subject is None else list_parts(reader, subject),
            action=given["action"],
            uid=uid,
            name=name,
            after=0 if span is None else span.after,
            before=NO_BOUND if before is None else before,
        )
        found = AuditListStore().list_newest(reader, SHOWN + 1, those)
    shown = found[:SHOWN]
    facts = {
        "rows": [_describe(row, visit) for row in shown],
        "given": given,
        **list_links(visit, span, before, shown[-1].seq if len(found) > SHOWN else None),
    }
    return Page(template="audit.html", title="Audit", facts=facts)


def _describe(row: AuditRow, visit: Visit) -> AuditLine:
    details = mask(other_details(row), visit.settings.mask)
    payload = details.pop("payload", None)
    channel = details_of(row).get("via", COMMAND_LINE)
    return AuditLine(row, actor_text(row), str(channel), details_text(details), payload)
