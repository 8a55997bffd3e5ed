"""The experiments of the evidence page, in its order."""

from __future__ import annotations

from tests.evidence import campaigns, cluster, disk_faults, emits, mutation, power_cuts, years
from tests.evidence.model import Experiment

KILLS = "SIGKILLs"
ACTIONS = (
    "every effect at the provider against the ledger: none twice without a decision, none missing that is DONE, and "
    "every doubt asked about; the invariants"
)
CLASSES = {
    "resend": "actions, the provider drops a second call",
    "reconcile": "actions, the provider can be asked",
    "ask": "actions, a person is asked",
    "assume_done": "actions, taken as done",
}

EXPERIMENTS = (
    *(
        Experiment(
            name=f"actions-{policy.replace('_', '-')}",
            title=title,
            unit=KILLS,
            checked=ACTIONS,
            quick=150,
            full=10_000,
            run=campaigns.campaign("tests.crash.act_campaign", campaigns.actions, "--only", policy),
        )
        for policy, title in CLASSES.items()
    ),
    Experiment(
        name="tasks",
        title="tasks",
        unit=KILLS,
        checked="what user code wrote down against the rows: steps, turns, waits, answers, messages; the invariants",
        quick=150,
        full=10_000,
        run=campaigns.campaign("tests.crash.task_campaign", campaigns.tasks),
    ),
    Experiment(
        name="triggers",
        title="triggers",
        unit=KILLS,
        checked="every accepted trigger is there and settled in one commit; records; lanes; the invariants",
        quick=1_000,
        full=10_000,
        run=campaigns.campaign("tests.crash.campaign", campaigns.triggers),
    ),
    Experiment(
        name="emits",
        title="right after `emit`",
        unit=KILLS,
        checked="every trigger whose id a caller has received is in the file; the file is intact",
        quick=60,
        full=1_000,
        run=emits.kills_after_emit,
    ),
    Experiment(
        name="schedules",
        title="schedules",
        unit=KILLS,
        checked="every occurrence by arithmetic: accounted for once, fired once; the invariants",
        quick=300,
        full=10_000,
        run=campaigns.campaign("tests.crash.schedule_campaign", campaigns.schedules),
    ),
    Experiment(
        name="foreign",
        title="other SQLite programs on the file",
        unit=KILLS,
        checked="as for triggers, and every row that the other programs have committed",
        quick=100,
        full=2_000,
        run=campaigns.campaign("tests.crash.foreign_campaign", campaigns.foreign),
    ),
    Experiment(
        name="notifications",
        title="notifications",
        unit=KILLS,
        checked="one notification for each question and failure; the invariants",
        quick=20,
        full=500,
        run=campaigns.notifications,
    ),
    Experiment(
        name="cluster",
        title="five apps on a cluster",
        unit=KILLS,
        checked="each effect at its provider against the results of the tasks; every task ends",
        quick=15,
        full=5_000,
        run=cluster.worker_kills,
    ),
    Experiment(
        name="power-cuts",
        title="power loss over recorded writes",
        unit="disk states",
        checked="pages, accepted triggers, settled triggers with their records; the invariants",
        quick=2_500,
        full=25_000,
        run=power_cuts.power_cuts,
    ),
    Experiment(
        name="full-disk",
        title="a disk that is full",
        unit="places in the writes",
        checked="accepted tasks end, one effect for each; the invariants",
        quick=60,
        full=1_000,
        run=disk_faults.full_disks,
    ),
    Experiment(
        name="failed-flush",
        title="a flush that fails",
        unit="flushes",
        checked="accepted tasks end or a person is asked, at most one effect for each; the invariants",
        quick=1_000_000,
        full=1_000_000,
        run=disk_faults.failed_flushes,
    ),
    Experiment(
        name="years",
        title="simulated years",
        unit="years",
        checked="each month the account of a hundred schedules against all moments, computed by brute force",
        quick=2,
        full=20,
        run=years.simulated_years,
    ),
    Experiment(
        name="mutants",
        title="broken variants of craftcore",
        unit="mutants",
        checked="a test notices each",
        quick=4,
        full=1_000,
        run=mutation.mutants,
    ),
)
