"""The JSON contract of each command: the names at the top of its document, which may only be extended.

A list is described by the names of its rows. Each moment (`…_at`, `…_until`, `now`, `not_before`) has a copy in ISO UTC
named `…_iso`, which is omitted here.
"""

from __future__ import annotations

TRIGGER = """
    seq id source dedup_key dedup_scope session_id task_id schedule_id nominal_at workflow lane fire_at not_before
    due_at expires_at priority description status attempts starts crash_count machine_restarts max_attempts
    claimed_epoch lease_token lease_until started_at started_alone cancel_requested_at reason error_code
    error_message superseded_by created_at
    updated_at settled_at stripped_at payload
"""
TASK = """
    id workflow status reason turn session_id schedule_id parent_id trigger_id error_code error_message max_attempts
    turns_alone steps_alone created_at updated_at deadline_at ended_at
"""
QUESTION = """
    id task_id workflow kind activity_key question options default by_message status answer note answered_by created_at
    expires_at closed_at
"""
ACTIVITY = """
    key task_id turn action status reason policy provider_ref decision in_doubt may_retry calls args_hash
    result_unstored error_code error_message first_call_at last_call_at created_at updated_at settled_at
"""
RECORD = """
    execution_id trigger_id task_id turn attempt created_at ended_at workflow status latency_ms envelope_hash replayable
    replayable_reason invalidated event_count last_event routing error
"""
SCHEDULE = """
    id status reason origin expression kind timezone workflow payload catch_up catch_up_window catch_up_max
    catch_up_spacing overlap jitter expires_after start_at until_at max_runs runs next_at last_nominal_at high_water_at
    skip_to_at generation session_id priority description max_attempts created_at updated_at
"""
DECIDED = "execution_id decision trigger task"

DOCUMENTS = {
    "run": "ok exit_code",
    "init": "written",
    "check": "ok checks warnings",
    "status": """
        verdict ok health reasons now daemon epoch epoch_started_at ended_in_order died_before held schedules safe_mode
        clock tasks restart in_doubt restored_at counts failed_lately dead_lately behind idle oldest_due_at
        oldest_due_seconds database bytes wal_bytes wal_in_use_bytes disk retention_failed
    """,
    "top": """
        verdict ok reasons now database counts oldest_due_seconds bytes wal_bytes in_doubt running cut_off due_next
        inbox questions failed_lately failed dead_letters rates
    """,
    "doctor": "ok database failed warned checks",
    "hold": "held already",
    "release": "released reason doubt_ended",
    "reload": "ok at applied at_next_start refused",
    "crashtest": "crashes reached broken repeated_steps points seconds",
    "demo": "accepted done lost settled_twice left_claimed dead run_again kills seconds kept",
    "emit": "id created status due_at",
    "trigger show": f"{TRIGGER} cut_off task executions",
    "trigger why": "id status task reasons",
    "schedule add": f"{SCHEDULE} change",
    "schedule show": f"{SCHEDULE} ahead next live_trigger live_task history",
    "schedule why": "id status next_at reasons",
    "schedule pause": SCHEDULE,
    "schedule resume": SCHEDULE,
    "schedule edit": f"{SCHEDULE} change",
    "schedule run-now": "id outcome nominal_at reason trigger_id waits_for",
    "schedule skip-next": f"{SCHEDULE} skips_at then_at",
    "schedule backfill": "id fired buffered skipped occurrences",
    "schedule remove": f"{SCHEDULE} cancelled",
    "schedule trust-clock": "released held_until ahead",
    "task show": f"""
        {TASK} held reasons state result progress wait questions activities streams unread unread_mail attempts
        last_attempts children
    """,
    "task stream": "id name last is_over chunks",
    "task signal": f"{TASK} waited",
    "task cancel": TASK,
    "task stop": TASK,
    "task retry": TASK,
    "inbox answer": QUESTION,
    "session forget": "session_id removed",
    "activity show": f"{ACTIVITY} task arguments result decisions events question_id",
    "activity resolve": f"{ACTIVITY} task",
    "inspect": f"{RECORD} recommendation",
    "replay": "status payload metadata error from_replay original_execution_id original_timestamp warnings",
    "verify": "ok checked head head_written_to faults more_faults",
    "export": "header envelope routerDecision events finalResponse craftcore",
    "diff": "same a b differences",
    "execution retry": DECIDED,
    "execution skip": DECIDED,
    "db migrate": "applied",
    "db backup": "file manifest sha256 bytes taken_at database_id epoch schema rows removed",
    "db restore": "database restored_from taken_at database_id epoch migrated in_doubt kept held",
    "db check": "ok pages keys schema",
    "db stats": "pages free_pages page_size wal_bytes rows sizes oldest due",
    "db gc": "dry_run tables removed stripped pages_given_back free_pages gives_pages_back vacuumed",
    "systemd print": "units environment_file program",
    "systemd install": "written environment_file program next",
    "web": "listening link",
    "completion": "shell script",
}

LISTS = {
    "trigger list": f"{TRIGGER} cut_off task",
    "trigger cancel": TRIGGER,
    "trigger requeue": TRIGGER,
    "dead list": f"{TRIGGER} cut_off task",
    "dead requeue": TRIGGER,
    "dead discard": TRIGGER,
    "schedule list": f"{SCHEDULE} last_trigger_id last_trigger_status last_fired_at",
    "schedule preview": "nominal_at local note fire_at",
    "schedule history": """
        schedule_id generation cause nominal_at last_at count outcome reason trigger_id trigger_status trigger_reason
        task_status task_reason decided_at
    """,
    "schedule reanchor": SCHEDULE,
    "task list": f"{TASK} held wait",
    "task events": "execution_id turn seq type at payload",
    "inbox list": QUESTION,
    "session history": "number task_id turn created_at message",
    "activity list": ACTIVITY,
    "invalidate": RECORD,
    "audit": "seq at uid name action subject reason details prev_hash hash",
}
