"""The operator's view of craftcore.service on a booted machine: systemctl, the journal and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.processes import Result
from tests.systemd.machine import Machine, until

UNIT = "craftcore.service"
STATE = "/var/lib/craftcore"
DATABASE = f"{STATE}/craftcore.db"
SETTINGS = "/srv/agent/probes.toml"
PROBES = Path(__file__).with_name("probes.py")
DROP_INS = f"/etc/systemd/system/{UNIT}.d"

ANEW = f"""
systemctl kill --signal=KILL {UNIT} || true
systemctl stop {UNIT} craftcore-backup.service
systemctl stop craftcore-web.service || true
systemctl reset-failed
rm -rf /var/lib/private/craftcore {STATE} {DROP_INS} /srv/agent/hold
mkdir {DROP_INS}
"""


class Service:
    """The unit that `craftcore systemd install` wrote, with the app of probes.py and nothing in its database."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.do("bash", "-eu", stdin=ANEW)
        machine.path("/srv/agent/probes.py").write_bytes(PROBES.read_bytes())
        machine.path("/srv/agent/probes").write_text(f"CRAFTCORE_APP=probes:app\nCRAFTCORE_CONFIG={SETTINGS}\n")
        self.settings("")
        self.drop_in("app", "EnvironmentFile=/srv/agent/probes")
        self._since = machine.do("journalctl", "--lines=0", "--show-cursor").split("cursor: ")[-1].strip()

    def settings(self, text: str) -> None:
        """What its settings file says from now on."""
        self.machine.path(SETTINGS).write_text(text)

    def drop_in(self, name: str, *lines: str) -> None:
        """What `systemctl edit` would add to [Service]."""
        text = "\n".join(["[Service]", *lines, ""])
        self.machine.path(f"{DROP_INS}/{name}.conf").write_text(text)
        self.machine.do("systemctl", "daemon-reload")

    def systemctl(self, verb: str, *options: str) -> Result:
        return self.machine.run("systemctl", verb, *options, UNIT)

    def start(self) -> Service:
        started = self.systemctl("start")
        assert started.code == 0, self.journal
        return self

    def shown(self, name: str) -> str:
        """One property, as `systemctl show` has it."""
        return self.machine.do("systemctl", "show", "--value", f"--property={name}", UNIT).strip()

    @property
    def state(self) -> str:
        return self.shown("ActiveState")

    @property
    def pid(self) -> int:
        """Of the main process; 0: there is none."""
        return int(self.shown("MainPID"))

    @property
    def owner(self) -> int:
        """The user id of the daemon."""
        return int(self.machine.do("stat", "--format=%u", f"/proc/{self.pid}"))

    @property
    def journal(self) -> str:
        """What the unit, and systemd about it, said in this test."""
        return self.machine.do("journalctl", f"--unit={UNIT}", f"--after-cursor={self._since}", "--output=cat")

    def until(self, name: str, value: str) -> None:
        """Wait until a property has this value."""
        until(lambda: self.shown(name) == value, f"{name}={value}", lambda: f"{self.shown(name)}\n{self.journal}")

    def restarted_after(self, pid: int) -> int:
        """Wait until another main process than that one is ready; its pid."""
        until(lambda: self.state == "active" and self.pid not in (0, pid), "the restart", lambda: self.journal)
        return self.pid

    def kill(self) -> int:
        """SIGKILL, to the daemon alone; the pid that it had."""
        pid = self.pid
        self.machine.do("systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT)
        until(lambda: self.pid != pid, "systemd to see it die")
        return pid

    def craftcore(self, *arguments: str) -> Result:
        """A command of root's, as docs/how-to/deploy-with-systemd.md has it."""
        return self.machine.run("craftcore", *arguments, CRAFTCORE_DB=DATABASE)

    def told(self, *arguments: str) -> Any:
        """What a command that succeeds answers with --json."""
        return json.loads(self.machine.do("craftcore", "--json", *arguments, CRAFTCORE_DB=DATABASE))

    def emit(self, workflow: str, *options: str, **payload: Any) -> str:
        """Its id."""
        return str(self.told("emit", workflow, "--payload", json.dumps(payload), *options)["id"])

    def trigger(self, trigger_id: str) -> Any:
        return self.told("trigger", "show", trigger_id)

    def until_settled(self, trigger_id: str, status: str = "DONE") -> Any:
        def settled() -> Any:
            trigger = self.trigger(trigger_id)
            return trigger if trigger["status"] == status else None

        return until(settled, f"{trigger_id} to be {status}", lambda: f"{self.trigger(trigger_id)}\n{self.journal}")

    def programs(self, word: str) -> list[str]:
        """The pids, within the machine, of the programs that have this word on their command line."""
        looked = f"grep --files-with-matches --null-data --line-regexp '{word[:-1]}[{word[-1]}]' /proc/[0-9]*/cmdline"
        return [path.split("/")[2] for path in self.machine.run("bash", "-c", f"{looked} 2>/dev/null").out.split()]

    @property
    def traced(self) -> list[str]:
        """What the workflows of probes.py wrote."""
        trace = self.machine.path(STATE) / "trace"
        return trace.read_text().splitlines() if trace.exists() else []

    def until_traced(self, line: str, times: int = 1) -> None:
        until(lambda: self.traced.count(line) >= times, f"{line!r} × {times}", lambda: f"{self.traced}\n{self.journal}")

    def go(self) -> None:
        """Let what runs on in probes.py come to its end."""
        (self.machine.path(STATE) / "go").touch()
