"""The operator's view of craftcore.service on a booted machine: systemctl, the journal and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.processes import Result
from tests.systemd.machine import Machine, wait_until

UNIT = "craftcore.service"
STATE = "/var/lib/craftcore"
DATABASE = f"{STATE}/craftcore.db"
SETTINGS = "/srv/agent/probes.toml"
PROBES = Path(__file__).with_name("probes.py")
DROP_INS = f"/etc/systemd/system/{UNIT}.d"

RESET = f"""
systemctl kill --signal=KILL {UNIT} || true
systemctl stop {UNIT} craftcore-backup.service
systemctl stop craftcore-web.service || true
systemctl reset-failed
rm -rf /var/lib/private/craftcore {STATE} {DROP_INS} /srv/agent/hold
mkdir {DROP_INS}
"""


class Service:
    """The unit that `craftcore systemd install` wrote, with the app of probes.py and an empty database."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.do("bash", "-eu", stdin=RESET)
        machine.path("/srv/agent/probes.py").write_bytes(PROBES.read_bytes())
        machine.path("/srv/agent/probes").write_text(f"CRAFTCORE_APP=probes:app\nCRAFTCORE_CONFIG={SETTINGS}\n")
        self.write_settings("")
        self.write_drop_in("app", "EnvironmentFile=/srv/agent/probes")
        self._since = machine.do("journalctl", "--lines=0", "--show-cursor").split("cursor: ")[-1].strip()

    def write_settings(self, text: str) -> None:
        self.machine.path(SETTINGS).write_text(text)

    def write_drop_in(self, name: str, *lines: str) -> None:
        """Add lines to [Service], as `systemctl edit` does."""
        text = "\n".join(["[Service]", *lines, ""])
        self.machine.path(f"{DROP_INS}/{name}.conf").write_text(text)
        self.machine.do("systemctl", "daemon-reload")

    def systemctl(self, verb: str, *options: str) -> Result:
        return self.machine.run("systemctl", verb, *options, UNIT)

    def start(self) -> Service:
        started = self.systemctl("start")
        assert started.code == 0, self.journal
        return self

    def property_value(self, name: str) -> str:
        """Return a property of the unit, as `systemctl show` prints it."""
        return self.machine.do("systemctl", "show", "--value", f"--property={name}", UNIT).strip()

    @property
    def state(self) -> str:
        return self.property_value("ActiveState")

    @property
    def pid(self) -> int:
        """Return the pid of the main process, or 0 without a process."""
        return int(self.property_value("MainPID"))

    @property
    def owner(self) -> int:
        """Return the user id of the daemon."""
        return int(self.machine.do("stat", "--format=%u", f"/proc/{self.pid}"))

    @property
    def journal(self) -> str:
        """Return the log lines that the unit, and systemd about the unit, wrote in this test."""
        return self.machine.do("journalctl", f"--unit={UNIT}", f"--after-cursor={self._since}", "--output=cat")

    def wait_for_property(self, name: str, value: str) -> None:
        wait_until(
            lambda: self.property_value(name) == value,
            f"{name}={value}",
            lambda: f"{self.property_value(name)}\n{self.journal}",
        )

    def wait_for_restart(self, pid: int) -> int:
        """Wait until the daemon is ready under another pid than this one, and return the new pid."""
        wait_until(lambda: self.state == "active" and self.pid not in (0, pid), "the restart", lambda: self.journal)
        return self.pid

    def kill(self) -> int:
        """Send SIGKILL to the daemon alone, and return its former pid."""
        pid = self.pid
        self.machine.do("systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT)
        wait_until(lambda: self.pid != pid, "systemd to notice the end of the daemon")
        return pid

    def craftcore(self, *arguments: str) -> Result:
        """Run a command as root, as docs/how-to/deploy-with-systemd.md describes."""
        return self.machine.run("craftcore", *arguments, CRAFTCORE_DB=DATABASE)

    def run_json(self, *arguments: str) -> Any:
        """Run a command that must succeed, and return its output with --json."""
        return json.loads(self.machine.do("craftcore", "--json", *arguments, CRAFTCORE_DB=DATABASE))

    def emit(self, workflow: str, *options: str, **payload: Any) -> str:
        """Emit a trigger and return its id."""
        return str(self.run_json("emit", workflow, "--payload", json.dumps(payload), *options)["id"])

    def trigger(self, trigger_id: str) -> Any:
        return self.run_json("trigger", "show", trigger_id)

    def wait_for_status(self, trigger_id: str, status: str = "DONE") -> Any:
        def settled() -> Any:
            trigger = self.trigger(trigger_id)
            return trigger if trigger["status"] == status else None

        return wait_until(
            settled, f"{trigger_id} to be {status}", lambda: f"{self.trigger(trigger_id)}\n{self.journal}"
        )

    def pids_of(self, word: str) -> list[str]:
        """Return the pids, within the machine, of the programs with this word on their command line."""
        search = f"grep --files-with-matches --null-data --line-regexp '{word[:-1]}[{word[-1]}]' /proc/[0-9]*/cmdline"
        return [path.split("/")[2] for path in self.machine.run("bash", "-c", f"{search} 2>/dev/null").out.split()]

    @property
    def trace_lines(self) -> list[str]:
        """Return the lines that the workflows of probes.py wrote."""
        trace = self.machine.path(STATE) / "trace"
        return trace.read_text().splitlines() if trace.exists() else []

    def wait_for_trace(self, line: str, times: int = 1) -> None:
        wait_until(
            lambda: self.trace_lines.count(line) >= times,
            f"{line!r} × {times}",
            lambda: f"{self.trace_lines}\n{self.journal}",
        )

    def finish_runs(self) -> None:
        """Let the running `runs.on` workflows of probes.py end."""
        (self.machine.path(STATE) / "go").touch()
