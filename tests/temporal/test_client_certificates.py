"""The files of a client certificate: an unusable file is refused by name, before a connection is made."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from craftcore.cli import main

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")

UNREACHABLE = "127.0.0.1:1"
KEY = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"]

Setup = Callable[[str, str], tuple[int, str]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a key, its certificate, another key, a key with a password, and a broken certificate."""
    folder = tmp_path_factory.mktemp("pem")
    key = str(folder / "key")
    for made in (
        [*KEY, key],
        [*KEY, str(folder / "other")],
        ["req", "-x509", "-key", key, "-out", str(folder / "cert"), "-days", "2", "-subj", "/CN=client"],
        ["pkcs8", "-topk8", "-passout", "pass:word", "-in", key, "-out", str(folder / "locked")],
    ):
        subprocess.run(["openssl", *made], check=True, capture_output=True)
    (folder / "broken").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    return folder


@pytest.fixture
def setup(files: Path, capsys: pytest.CaptureFixture[str]) -> Setup:
    """Return a function that runs a command with a certificate and a key, and returns its exit code and message."""

    def call(cert: str, key: str) -> tuple[int, str]:
        named = ["--tls-cert", str(files / cert), "--tls-key", str(files / key)]
        code = main.main(["temporal", "setup", "--address", UNREACHABLE, *named])
        return code, capsys.readouterr().err.replace(f"{files}/", "")

    return call


@pytest.mark.parametrize(
    ("cert", "key", "expected"),
    [
        ("cert", "cert", "temporal.tls_key: cert holds no private key that can be read without a password"),
        ("cert", "locked", "temporal.tls_key: locked holds no private key that can be read without a password"),
        ("cert", "other", "temporal.tls_key: other is not the key of the certificate cert"),
        ("key", "key", "temporal.tls_cert: key holds no certificate"),
        ("broken", "key", "temporal.tls_cert: broken holds a certificate that cannot be read"),
        ("cert", "absent", "temporal.tls_cert or tls_key: absent cannot be read: No such file or directory"),
    ],
)
def test_file_that_cannot_be_used_is_refused(setup: Setup, cert, key, expected) -> None:
    assert setup(cert, key) == (78, f"craftcore: {expected}\n")


def test_files_that_fit_lead_to_the_cluster(setup: Setup) -> None:
    code, message = setup("cert", "key")
    assert code == 75
    assert message.startswith(f"craftcore: no cluster answers at {UNREACHABLE} (Connection refused): ")
