"""The programs of docs/how-to/run-on-temporal.md, and the drain of their worker at SIGTERM."""

from __future__ import annotations

import os
import re
import signal
import tomllib

from tests.support.processes import PATIENCE
from tests.temporal.worker_processes import ROOT, run_on_cluster, start_on_cluster

TEXT = (ROOT / "docs/how-to/run-on-temporal.md").read_text()


def test_install_command_of_the_page_names_an_extra():
    [extra] = re.findall(r"^pip install 'craftcore\[(\w+)\]'$", TEXT, re.MULTILINE)
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_programs_of_the_page_work_and_its_worker_ends_at_sigterm(cluster, tmp_path):
    def adapt(text: str) -> str:
        return text.replace("host:7233", cluster.address).replace("agents", cluster.namespace)

    for program in TEXT.split("```python\n# ")[1:]:
        name, _, text = program.partition("```")[0].partition("\n")
        (tmp_path / name).write_text(adapt(text))
    exported = dict(re.findall(r"^export (\w+)=(.*)$", adapt(TEXT), re.MULTILINE))
    environment = os.environ | exported
    worker = start_on_cluster(["-m", "craftcore", "temporal", "worker", "shop:app"], cwd=tmp_path, env=environment)
    try:
        printed = [run_on_cluster([name], cwd=tmp_path, env=environment) for name in ("emits.py", "connects.py")]
        assert [one.out for one in printed] == ["lamp: 40\n", "chair: 40\n"], [one.err for one in printed]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait(PATIENCE)
