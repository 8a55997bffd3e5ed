"""The worker of the page docs/how-to/run-on-temporal.md works, and drains at SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.processes import PATIENCE

PAGE = Path(__file__).parents[2] / "docs/how-to/run-on-temporal.md"


def test_worker_of_the_page_works_and_ends_at_sigterm(cluster, tmp_path):
    program, producing = [part.partition("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    (tmp_path / "shop.py").write_text(program)
    (tmp_path / "emits.py").write_text(
        producing.replace("host:7233", cluster.address).replace("agents", cluster.namespace)
    )
    command = [sys.executable, "-m", "craftcore", "temporal", "worker", "shop:app", "--address", cluster.address]
    environment = os.environ | {"PYTHONPATH": str(PAGE.parents[2])}
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        emits = subprocess.run(
            [sys.executable, "emits.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert emits.stdout == "lamp: 40\n", emits.stderr
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait(PATIENCE)
