"""Only `craftcore.temporal` imports the library of Temporal: a program without it never pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = "import sys; assert not [name for name in sys.modules if name.startswith('temporalio')], 'imported'"


@pytest.mark.parametrize(
    "program",
    [
        "import craftcore",
        "from craftcore import App, Producer, AsyncProducer",
        "import craftcore.cli.main",
        "from craftcore.cli.main import main; assert main(['temporal', '--help']) == 0",
    ],
)
def test_program_without_a_cluster_imports_nothing_of_temporal(program):
    subprocess.run([sys.executable, "-c", f"{program}; {LOOK}"], check=True)


def test_import_of_temporal_is_seen():
    done = subprocess.run(
        [sys.executable, "-c", f"import craftcore.temporal.temporal_client; {LOOK}"], capture_output=True
    )
    assert b"imported" in done.stderr
