"""Mutants of records: the chain, replay, retention, and the flush to disk."""

from __future__ import annotations

from tests.mutants.mutant import mutant

RECORD = "executions/record.py"
VERIFY = ("tests/executions/test_verifying.py", "tests/executions/test_sealing.py", "tests/executions/test_replay.py")
RETENTION = ("tests/retention/test_triggers.py", "tests/retention/test_tasks.py", "tests/retention/test_cutoffs.py")

RECORDS = (
    mutant(
        "header-hash-unchecked",
        "a changed record is found",
        RECORD,
        "if record_hash(header_of(record)) != record.record_hash:",
        "if False:",
        *VERIFY,
    ),
    mutant(
        "events-hash-unchecked",
        "a changed event is found",
        RECORD,
        "if not stripped and events_hash(record.events) != record.events_hash:",
        "if False:",
        *VERIFY,
    ),
    mutant(
        "response-hash-unchecked",
        "a changed result is found",
        RECORD,
        "if record.response_json is not None and sha256_of(record.response_json) != record.response_hash:",
        "if False:",
        *VERIFY,
    ),
    mutant(
        "envelope-hash-unchecked",
        "a changed request is found",
        RECORD,
        "if record.envelope_json is not None and sha256_of(record.envelope_json) != record.envelope_hash:",
        "if False:",
        *VERIFY,
    ),
    mutant(
        "chain-unchecked",
        "a record that does not follow the one before is found",
        "executions/chain/verify_rules.py",
        "if record is not None and follows and record.prev_hash != self.hash:",
        "if False:",
        *VERIFY,
    ),
    mutant(
        "missing-record-unnoticed",
        "a removed record is found",
        "executions/chain/verify_rules.py",
        "        if not follows:\n",
        "        if False:\n",
        *VERIFY,
    ),
    mutant(
        "replay-of-another-request",
        "a replay with another request is refused",
        "executions/replay.py",
        "    if provided != recorded:\n",
        "    if False:\n",
        *VERIFY,
    ),
    mutant(
        "retention-of-live-triggers",
        "retention removes settled triggers only",
        "retention/trigger_store.py",
        "           AND status IN ('DONE', 'FAILED', 'DEAD')\n"
        "           AND settled_at <= CASE status WHEN 'DEAD' THEN :dead ELSE :triggers END\n",
        "           AND created_at <= CASE status WHEN 'DEAD' THEN :dead ELSE :triggers END\n",
        *RETENTION,
    ),
    mutant(
        "retention-frees-dedup-keys",
        "a dedup key of scope ever outlives its trigger's body",
        "retention/trigger_store.py",
        '    if row["is_kept"]:\n',
        "    if False:\n",
        *RETENTION,
    ),
    mutant(
        "retention-of-doubts",
        "a doubt is kept for ever",
        "retention/task_store.py",
        "(status IN ('INTENT', 'UNKNOWN') OR seq = (SELECT max(seq) FROM activity_log))",
        "seq = (SELECT max(seq) FROM activity_log)",
        *RETENTION,
    ),
    mutant(
        "full-becomes-normal",
        "a commit is flushed before it is acknowledged",
        "storage/database.py",
        'connection.pragma("synchronous", self._synchronous)',
        'connection.pragma("synchronous", "normal")',
        "tests/storage/test_database.py",
        "tests/crash/test_power_loss.py",
    ),
    mutant(
        "failed-flush-is-success",
        "a flush that fails is reported",
        "storage/commit.py",
        '        raise OutcomeUnknown(\n            f"{path}: the flush failed',
        '        if meant:\n            return\n        raise OutcomeUnknown(\n            f"{path}: the flush failed',
        "tests/storage/test_writer_faults.py",
        "tests/storage/test_full_disk.py",
    ),
    mutant(
        "replaced-file-unnoticed",
        "a write to a replaced file is not acknowledged",
        "storage/group_commit.py",
        "        require_same(self.files)\n",
        "",
        "tests/storage/test_open_files.py",
        "tests/storage/test_whole_file.py",
    ),
    mutant(
        "two-daemons",
        "a database has at most one daemon",
        "daemon/lock_file.py",
        "        fcntl.flock(descriptor, how | fcntl.LOCK_NB)\n",
        "        pass\n",
        "tests/daemon/test_lock.py",
    ),
)
