"""The list of all mutants."""

from __future__ import annotations

from tests.mutants.activities import ACTIVITIES
from tests.mutants.records import RECORDS
from tests.mutants.schedules import SCHEDULES
from tests.mutants.tasks import TASKS
from tests.mutants.triggers import TRIGGERS

MUTANTS = (*TRIGGERS, *ACTIVITIES, *TASKS, *SCHEDULES, *RECORDS)
