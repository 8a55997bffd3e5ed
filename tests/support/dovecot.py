"""A real IMAP server: dovecot as an unprivileged user, with its files in one folder and its ports on loopback."""

from __future__ import annotations

import grp
import imaplib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, until
from tests.support.smtp_peers import a_certificate

USER = "ada"
PATHS = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"

SETTINGS = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{folder}/certificate.pem
ssl_key = <{folder}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_failure_delay = 0
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
mail_location = maildir:{folder}/mail/%u
mail_uid = {user}
mail_gid = {group}
first_valid_uid = 1
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=%u {folder}/users
}}
userdb {{
  driver = static
  args = home={folder}/home/%u
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
  }}
  mailbox "Gesendete R&D Ä" {{
    auto = create
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
"""


class Dovecot:
    """A running dovecot. A client must trust `certificate`."""

    def __init__(self, folder: Path, password: str, port: int, tls_port: int) -> None:
        self.certificate = folder / "certificate.pem"
        self.password = password
        self.port = port
        self.tls_port = tls_port

    def put(self, message: bytes, folder: str = "Sent") -> None:
        """Put a message into a folder, as a server does with a sent message."""
        with imaplib.IMAP4("127.0.0.1", self.port, PATIENCE) as imap:
            imap.authenticate("PLAIN", lambda challenge: f"\0{USER}\0{self.password}".encode())
            status, answer = imap.append(folder, "", "", message)
            assert status == "OK", answer

    def messages(self, folder: str = "Sent") -> int:
        with imaplib.IMAP4("127.0.0.1", self.port, PATIENCE) as imap:
            imap.authenticate("PLAIN", lambda challenge: f"\0{USER}\0{self.password}".encode())
            _, [count] = imap.select(folder, readonly=True)
            return int(count or 0)


@contextmanager
def a_dovecot(password: str) -> Iterator[Dovecot]:
    """Run a dovecot with one user and one password until the block ends. Skips the test when none is installed."""
    program = _program()
    with tempfile.TemporaryDirectory(
        prefix="dovecot-", ignore_cleanup_errors=True
    ) as name:  # a short path, for sockets
        folder = Path(name)
        a_certificate(folder)
        (folder / "users").write_text(f"{USER}:{{PLAIN}}{password}\n")
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        for path in (folder, *folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        for _ in range(10):  # another process may take a free port before dovecot does
            port, tls_port = _free_port(), _free_port()
            settings = SETTINGS.format(
                folder=folder,
                user=account.pw_name,
                group=grp.getgrgid(account.pw_gid).gr_name,
                port=port,
                tls_port=tls_port,
            )
            (folder / "dovecot.conf").write_text(settings)
            (folder / "log").unlink(missing_ok=True)
            command = [program, "-F", "-c", str(folder / "dovecot.conf")]
            credentials = (
                {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
            )
            with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, **credentials) as process:  # type: ignore[call-overload]
                try:
                    until(lambda: process.poll() is not None or _is_up(folder), "dovecot")
                    if process.poll() is None:
                        yield Dovecot(folder, password, port, tls_port)
                        return
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait(PATIENCE)
        raise AssertionError(f"dovecot does not start: {_log(folder)}")


def _program() -> str:
    program = shutil.which("dovecot", path=PATHS)
    if program is None:
        pytest.skip("dovecot is not installed (apt-get install dovecot-imapd), so there is no IMAP server to ask")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if not version.startswith("2.3."):
        pytest.skip(f"dovecot is {version.strip()}, and these settings are for 2.3")
    return program


def _is_up(folder: Path) -> bool:
    return "starting up" in _log(folder)


def _log(folder: Path) -> str:
    path = folder / "log"
    return path.read_text() if path.exists() else ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
