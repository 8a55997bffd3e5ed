"""Retention in single batches, with a check of the whole file after each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from craftcore.config import RetentionSettings
from craftcore.executions.chain.verify import Verification
from craftcore.retention.model import Taken
from craftcore.retention.service import STEPS, Retention, Step
from craftcore.storage.files.file_size import give_back
from craftcore.storage.integrity import check_file
from tests.support.fakes import VirtualCore

HOUR, DAY = 3600.0, 86_400.0

NEVER = RetentionSettings(max_bytes=0, triggers=0, dead=0, keys=0, bodies=0, history=0, audit=0, messages=0)


def only(**settings: float) -> RetentionSettings:
    """Return settings that keep all rows forever, except for these limits."""
    return replace(NEVER, **settings)  # type: ignore[arg-type]


def batches(core: VirtualCore, settings: RetentionSettings | None = None) -> Iterator[tuple[Step, Taken]]:
    """Run and yield the batches of one pass, each in its own transaction."""
    retention = Retention(settings or core.config.retention)
    for step in STEPS:
        after: int | None = 0
        while after is not None:
            with core.reading() as reader:
                found = retention.find(reader, step, core.clock.now(), after)
            taken = Taken()
            if found.seqs:
                taken = core.do(retention.take, step, found.seqs, core.clock.now())
                yield step, taken
            if not taken.goes_on:
                after = found.after


def sweep(core: VirtualCore, settings: RetentionSettings | None = None) -> Taken:
    """Run a whole pass, and check the file after each batch."""
    all_taken = Taken()
    for _, taken in batches(core, settings):
        assert_sound(core)
        all_taken.add(taken)
    return all_taken


def give_all_back(core: VirtualCore) -> None:
    while core.do(give_back):
        pass


def assert_sound(core: VirtualCore) -> None:
    with core.database.reading(with_checks=True) as reader:
        assert check_file(reader).is_sound, check_file(reader)
        assert list(Verification(reader, core.clock.now()).faults()) == []


def dump(core: VirtualCore) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table, in one snapshot."""
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    with core.reading() as reader:
        names = [row["name"] for row in reader.fetch_all(tables)]
        return {name: reader.fetch_all(f"SELECT * FROM {name}") for name in names}
