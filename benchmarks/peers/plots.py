"""The results as a file of JSON, and plots of them. matplotlib is in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.environments import NotInstalled, last_line
from benchmarks.peers.process import ROOT
from benchmarks.peers.promises import Samples

REQUIREMENTS = ("matplotlib==3.11.2",)
SECONDS_MAX = 60


def write_plots(samples: Samples, output: Path, install: Callable[[tuple[str, ...]], str]) -> str:
    """Write the results and the plots into a folder. Return a sentence about them; without matplotlib, its reason."""
    output.mkdir(parents=True, exist_ok=True)
    results = output / "results.json"
    results.write_text(json.dumps(nested(samples), indent=1) + "\n")
    try:
        python = install(REQUIREMENTS)
    except NotInstalled as error:
        return f"The results are in {results}. There are no plots: matplotlib was not installed: {error}"
    ended = subprocess.run(
        [python, "-m", "benchmarks.peers.programs.figures", str(results.resolve()), str(output.resolve())],
        cwd=output,
        env={"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "MPLCONFIGDIR": str(Path(python).parents[1])},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    if ended.returncode != 0:
        return f"The results are in {results}. There are no plots: {last_line(ended.stderr)}"
    return f"The results and the plots are in {output}: {', '.join(ended.stdout.split())}"


def nested(samples: Samples) -> dict[str, dict[str, list[float]]]:
    """Return the samples by system, then by work."""
    found: dict[str, dict[str, list[float]]] = {}
    for (system, work), values in samples.items():
        found.setdefault(system, {})[work] = values
    return found
