"""The door to replay for Python: gives back what was recorded, from any process, synchronously. It only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from craftcore.config import Config
from craftcore.errors import CraftcoreError, NotFound, NotReplayable
from craftcore.executions.model import Reason
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.executions.replay import ReplayEntry, ReplayResult, refusal, replay, require_envelope
from craftcore.executions.replay_cache import ReplayCache
from craftcore.outcome_exceptions import LONGEST_WAIT
from craftcore.serialization.arguments import Duration, seconds
from craftcore.services import Services
from craftcore.storage.transaction import Reader

STORE = RecordStore()


class ReplayEngine:
    """Replays the records of a database, whether or not a daemon runs on it. May be shared by threads.

        with ReplayEngine("agent.db") as replays:
            result = replays.replay("exec-….1")

    No workflow, action or router is called, and no row is changed: every replay is one read-only snapshot of its own.
    `cache`: how many results are kept. A second replay of a record gives the same object for `ttl` (seconds or
    timedelta), until the record is invalidated or its bodies are removed. With 0 every replay reads and checks the
    whole record.

    Raises NotFound for a file that is missing, and another StorageError when it cannot be read.
    """

    def __init__(self, database: str | Path | Services, *, cache: int = 0, ttl: Duration = 3600.0) -> None:
        self._core = database if isinstance(database, Services) else Services(Path(database), Config())
        lifetime = seconds("ReplayEngine: ttl", ttl, ValueError, most=LONGEST_WAIT)
        if cache < 0 or not lifetime > 0:
            raise ValueError(
                f"ReplayEngine(cache={cache!r}, ttl={ttl!r}): give 0 or more results, and more than 0 seconds"
            )
        self._cache = ReplayCache(cache, lifetime) if cache else None
        with self._core.reading():
            pass  # a missing file, or one that is not ours, is refused here

    def __enter__(self) -> ReplayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def replay(
        self, execution_id: str, envelope: Mapping[str, Any] | None = None, *, force: bool = False
    ) -> ReplayResult:
        """Return what this attempt came to. An error that was recorded is returned as such, it is not raised.

        With `envelope`, only if the record is of that one: key order and `routingMetadata` do not count. `force` gives
        what there is of a record that cannot be replayed, with `warnings`; its payload may be None.

        Raises NotFound; NotReplayable; ReplayHashMismatch; InvalidInput for an envelope that is not JSON.
        """
        with self._core.reading() as reader:
            if self._cache is None or force:
                return replay(_record(reader, execution_id), envelope, force=force)
            standing = STORE.get_state(reader, execution_id) if execution_id.isascii() else None
            now = self._core.clock.boot_time()
            kept = self._cache.get(execution_id, standing, now)
            if kept is not None:
                if envelope is not None:
                    require_envelope(execution_id, kept.envelope_hash, envelope)
                return kept.result
            record = _record(reader, execution_id)
        result = replay(record, envelope)
        assert standing is not None, execution_id
        self._cache.keep(result, record.envelope_hash, standing, now)
        return result

    def replay_all(self, execution_ids: Iterable[str], *, force: bool = False) -> list[ReplayEntry]:
        """Replay each, in this order. One that cannot be replayed has its `error`, and stops none of the others."""
        return [self._entry(execution_id, force) for execution_id in execution_ids]

    def is_replayable(self, execution_id: str) -> tuple[bool, str | None]:
        """Return whether it can be replayed, and why not: a word of Reason, None when it can. Raises NotFound."""
        try:
            with self._core.reading() as reader:
                reason = refusal(_record(reader, execution_id))
        except NotReplayable as error:
            reason = error.details["reason"]
        return reason is None, None if reason is None else str(reason)

    def close(self) -> None:
        """Forget what was kept. No file is held open between replays."""
        if self._cache is not None:
            self._cache.clear()

    def _entry(self, execution_id: str, force: bool) -> ReplayEntry:
        try:
            return ReplayEntry(execution_id=execution_id, result=self.replay(execution_id, force=force))
        except CraftcoreError as error:
            return ReplayEntry(execution_id=execution_id, error=error)


def _record(reader: Reader, execution_id: str) -> ExecutionRecord:
    """Raise NotFound, and NotReplayable for rows that a bad disk left unreadable."""
    try:
        record = STORE.get(reader, execution_id) if execution_id.isascii() else None  # every id is
    except ValueError as error:  # text that is not UTF-8, a status that is none
        reason = Reason.RECORD_CORRUPTED
        message = f"{execution_id} cannot be replayed ({reason}): its rows cannot be read: {error}"
        raise NotReplayable(message, execution_id=execution_id, reason=str(reason)) from error
    if record is None:
        raise NotFound(f"no execution has the id {execution_id!r:.200}")
    return record
