"""The templates: autoescape, printable text, and the filters of all pages.

Every value that a template prints passes `make_printable`: control and bidirectional characters become escapes, so that
nothing from the database acts on its reader. Undefined names are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from craftcore.diagnostics.text.printable import Verbatim
from craftcore.log_format import escape_control
from craftcore.operations.seen import Subject, state_text
from craftcore.serialization.display import shorten
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.storage.damaged_rows import Damaged, map_rows, try_read
from craftcore.web.mask import TEXT_MAX, masked_text
from craftcore.web.remedies import format_remedies
from craftcore.web.visit import Visit

LINE_MAX = 80
"""Characters of a payload that are shown while it is folded."""

SHORT = 8
"""Characters of an id in a table; the link has all of them."""

SIGNS = {"waiting": "○", "work": "▶", "done": "●", "person": "◆", "failed": "✕", "unknown": "⚡"}
"""The sign of each meaning."""

ActionForm = Callable[[Visit, str, str, Subject | None], Mapping[str, Any] | None]


def make_environment(make_form: ActionForm, make_request: Callable[[], str]) -> Environment:
    """Return the environment of the templates.

    `make_form(visit, name, id, subject)`: the facts of an operator's form. `make_request()`: a random name for one.
    """
    env = Environment(
        loader=PackageLoader("craftcore.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=make_printable,
        auto_reload=False,
    )
    env.filters |= {
        "moment": moment_element,
        "relative": relative_text,
        "span": format_span,
        "utc_hour": lambda at: f"{clock_time(at)[11:16]}Z",
        "short": shorten_id,
        "part": partial(quote, safe=""),
        "payload": pass_context(payload_element),
        "remedies": format_remedies,
        "seen": state_text,
        "sent": escape,  # what this person sent is sent again, unchanged
    }
    env.globals["new_request"] = make_request
    env.globals |= {"sign_element": sign_element, "damaged": damage_element}
    env.globals |= {"draw_rows": draw_rows, "draw_part": draw_part}
    env.globals["action"] = pass_context(_ActionElement(make_form))
    return env


def make_printable(value: Any) -> Any:
    """Return a printed value: None as nothing, text with what does not print escaped; line breaks stay."""
    kind = type(value)
    if kind is str:  # by far the most of a page
        return value if value.isprintable() and "\\" not in value else _escape_lines(value)
    if value is None:
        return ""
    if kind is Markup or not isinstance(value, str) or isinstance(value, Verbatim) or hasattr(value, "__html__"):
        return value
    return _escape_lines(value)


def sign_element(meaning: str, word: str = "") -> Markup:
    """Return a meaning as its sign and a word, in its colour. `word` empty: the name of the meaning."""
    label = escape(make_printable(word or meaning))
    return Markup(f'<span class="sign {meaning}"><span aria-hidden="true">{SIGNS[meaning]}</span> {label}</span>')


def draw_rows(rows: Iterable[Any], columns: int, *, caller: Callable[[Any], Markup]) -> Markup:
    """Draw each row of a list by a call block. A damaged row hides no other: its place says what is wrong with it.
    `columns`: those of the table; 0: the rows are in none."""
    place = Markup('<tr><td colspan="{}">{}</td></tr>' if columns else "{1}")
    drawn = map_rows(rows, caller)
    return Markup("\n").join(
        place.format(columns, damage_element(one)) if isinstance(one, Damaged) else one for one in drawn
    )


def draw_part(found: object, name: str, *, caller: Callable[[], Markup]) -> Markup:
    """Draw a part of a page by a call block. `found`: what it shows; Damaged: it cannot be read."""
    drawn = found if isinstance(found, Damaged) else try_read(name, caller)
    return damage_element(drawn) if isinstance(drawn, Damaged) else drawn


def damage_element(row: Damaged) -> Markup:
    """Return what is wrong with a damaged row."""
    words = Markup('<p class="failed text">{} is damaged: {}</p>')
    return words.format(make_printable(row.id or "a row"), make_printable(row.wrong))


def moment_element(at: float | None) -> Markup | str:
    """Return a `<time>`, which the script shows in the reader's zone. A moment that no calendar has is its number."""
    if at is None:
        return ""
    try:
        iso = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at!r}"
    text = f"{iso[:10]} {iso[11:19]}Z" if at >= 0 else clock_time(at)
    return Markup(f'<time datetime="{iso}">{text}</time>')


def shorten_id(id: str) -> str:
    """Return the beginning of an id: the part of a key or a record after its prefix."""
    return id if len(id) <= SHORT + 4 else f"{id[:SHORT]}…"


def payload_element(context: Context, value: Any) -> Markup | str:
    """Return a payload as the settings show it to this person: folded, open, or not at all. It is always masked."""
    visit: Visit = context["visit"]
    if value is None:
        return ""
    if not visit.shows_payloads:
        return "(not shown)"
    words = visit.settings.mask
    text, line = masked_text(value, words, indent=1), masked_text(value, words)
    return _draw(
        context.environment,
        "payload.html",
        {
            "line": " ".join(line[: 2 * LINE_MAX].split())[:LINE_MAX],
            "is_whole": len(line) <= LINE_MAX and "\n" not in line,
            "text": shorten(text, TEXT_MAX),
            "is_open": visit.settings.payloads == "shown",
        },
    )


def _draw(environment: Environment, template: str, facts: Mapping[str, Any]) -> Markup:
    """Return what the macro `draw` of a template makes of these facts. A page has up to a hundred: a template of its
    own for each would take twice as long."""
    macro: Callable[..., Markup] = environment.get_template(template).module.draw  # type: ignore[attr-defined]
    return macro(**facts)


def _escape_lines(text: str) -> str:
    return "\n".join(map(escape_control, text.split("\n")))


class _ActionElement:
    """The form of an operator action in a template: nothing where the person may not use it."""

    def __init__(self, make_form: ActionForm) -> None:
        self._make_form = make_form

    def __call__(self, context: Context, name: str, id: str, subject: Subject | None = None) -> Markup | str:
        form = self._make_form(context["visit"], name, id, subject)
        return "" if form is None else _draw(context.environment, "action.html", form)
