"""The imports of the library of Temporal: only `craftcore.temporal` imports it."""

from __future__ import annotations

import subprocess
import sys

PROGRAMS = (
    "import craftcore",
    "from craftcore import App, Producer, AsyncProducer",
    "import craftcore.cli.main",
    "from craftcore.cli.main import main; assert main(['temporal', '--help']) == 0",
)
"""The programs run in one interpreter, each after the one before."""

CHECK = "import sys; assert not [name for name in sys.modules if name.startswith('temporalio')]"


def run(*programs: str) -> subprocess.CompletedProcess[str]:
    """Run programs in one new interpreter, and check the imports after each."""
    text = "\n".join(f"{program}; {CHECK}, {program!r}" for program in programs)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


def test_program_without_a_cluster_imports_nothing_of_temporal():
    done = run(*PROGRAMS)
    assert done.returncode == 0, done.stderr


def test_import_of_temporal_is_seen():
    program = "import craftcore.temporal.temporal_client"
    done = run(PROGRAMS[0], program)
    assert done.stderr.splitlines()[-1] == f"AssertionError: {program}"
