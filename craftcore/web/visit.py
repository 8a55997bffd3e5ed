"""One request of a person who is logged in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from craftcore.config.web_people import WebPerson
from craftcore.config.web_settings import WebSettings
from craftcore.services import Services
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question
from craftcore.web.hour_rates import HourRates
from craftcore.web.timeline_store import TimelineStore
from craftcore.web.verdict import READ_SECONDS, VerdictReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The argument of a page function. `path`: the parts of the address that the route names; `query` and `form`: texts
    by name, the last of several. `now` in epoch seconds. `verdicts`, `rates` and `timelines` keep what they read for
    all visits."""

    services: Services
    verdicts: VerdictReader
    settings: WebSettings
    person: WebPerson
    address: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    now: float
    rates: HourRates
    timelines: TimelineStore

    @property
    def database(self) -> Path:
        return self.services.database.path

    @property
    def may_act(self) -> bool:
        return self.person.may == "act"

    def may_answer(self, question: Question) -> bool:
        """Return whether the person may answer a question. One about an action in doubt needs `in_doubt`, too."""
        is_in_doubt = question.activity_key is not None
        return self.person.may_answer(question.addressee) and (self.person.in_doubt or not is_in_doubt)

    @property
    def shows_payloads(self) -> bool:
        """True when payloads are in the HTML at all: a person who only looks sees them only where all are shown."""
        if self.settings.payloads == "hidden":
            return False
        return self.may_act or self.settings.payloads == "shown"

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open a snapshot. A statement that runs too long is interrupted with a StorageError."""
        with self.services.reading(within=READ_SECONDS) as reader:
            yield reader
