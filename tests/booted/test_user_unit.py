"""The unit of a person's own: no root, no sandbox, and there while nobody is logged in."""

from __future__ import annotations

import json

from tests.booted.machine import until

ADA = "/home/ada"


def test_a_person_installs_runs_reloads_and_backs_up_their_own(machine):
    machine.do("useradd", "--create-home", "ada")
    machine.do("loginctl", "enable-linger", "ada")
    uid = machine.do("id", "--user", "ada").strip()
    until(lambda: machine.run("systemctl", "is-active", f"user@{uid}").out == "active\n", "a systemd of ada's own")

    def ada(*command):
        variables = [f"HOME={ADA}", f"XDG_RUNTIME_DIR=/run/user/{uid}"]
        return machine.do("setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups", "env", *variables, *command)

    told = json.loads(ada("craftcore", "--json", "systemd", "install", "--user", "--backup"))
    for command in told["next"]:
        ada(*command)

    assert told["next"][-1] == ["systemctl", "--user", "enable", "--now", "craftcore", "craftcore-backup.timer"]
    who = json.loads(ada("craftcore", "emit", "command.run", "--payload", '{"argv": ["id", "-un"]}', "--wait"))
    assert who["stdout"] == "ada\n"
    ada("systemctl", "--user", "reload", "craftcore")
    ada("systemctl", "--user", "start", "craftcore-backup.service")
    assert len(list(machine.path(f"{ADA}/.local/state/craftcore/backups").glob("*.manifest.json"))) == 1
    assert ada("craftcore", "doctor").endswith("all is well\n")
    ada("systemctl", "--user", "stop", "craftcore")
