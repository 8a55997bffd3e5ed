"""How what settings and arguments name is spelt: a secret, a server, a mail address.

The loader and the users of a reference apply the same rules. None and False are for what is spelt otherwise.
"""

from __future__ import annotations

import os
import re
import socket
from ipaddress import ip_address
from typing import NamedTuple

_REFERENCE = re.compile(r"(env):([A-Za-z_][A-Za-z0-9_]{0,99})|(credential):([!-.0-9;-~]{1,200})")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL_PART = re.compile(rf"(?=.{{1,64}}\Z){_ATOM}(?:\.{_ATOM})*")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_NAMED = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^"<>@,;:\\]*?)) *<([^<>]*)>')
_PORT_OF = re.compile(r"(?:\[([^\]]*:[^\]]*)\]|([^:\[\]]+)):([0-9]{1,5})")
_OF_SEVERAL_LINES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

REFERENCE_SAID = (
    '"env:NAME", a variable of the environment, or "credential:NAME", a file in $CREDENTIALS_DIRECTORY; '
    "never the secret itself"
)
ADDRESS_SAID = "an address like ada@example.org or Ada Lovelace <ada@example.org>"
PORT_SAID = 'a port of this machine: "127.0.0.1:PORT", "[::1]:PORT"; nothing others can reach'
ENDPOINT_SAID = f'"unix:PATH", or {PORT_SAID}'
ADDRESS_MAX = 254
NAME_MAX = 200


class SecretReference(NamedTuple):
    """Where a secret is: `env` and the name of a variable, or `credential` and the name of a file."""

    scheme: str
    name: str


def secret_reference(text: object) -> SecretReference | None:
    """Return what a reference refers to. None for any other text: do not show it, because it may be the secret."""
    found = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[4] in (".", ".."):
        return None
    return SecretReference(found[1] or found[3], found[2] or found[4])


class Mailbox(NamedTuple):
    """A mail address, and the name of whose it is, which may be empty."""

    name: str
    local_part: str
    domain: str

    @property
    def address(self) -> str:
        return f"{self.local_part}@{self.domain}"


def mailbox(text: object) -> Mailbox | None:
    """Return one address, with or without a name. An address that needs quotes or non-ASCII letters is refused: few
    servers accept it, and many garble it."""
    if not isinstance(text, str) or len(text) > 4 * NAME_MAX or not is_one_line(text):
        return None
    text = text.strip()
    named = _NAMED.fullmatch(text)
    if named is None:
        name, address = "", text
    else:
        name, address = re.sub(r"\\(.)", r"\1", named[1] or "") or (named[2] or "").strip(), named[3]
    local_part, _, domain = address.rpartition("@")
    if len(name) > NAME_MAX or len(address) > ADDRESS_MAX:
        return None
    return (
        Mailbox(name, local_part, domain) if _LOCAL_PART.fullmatch(local_part) and _DOMAIN.fullmatch(domain) else None
    )


class Endpoint(NamedTuple):
    """Where something listens on this very machine: at a socket file, or when `path` is empty on a port."""

    path: str
    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        if self.path:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def authority(self) -> str:
        """The host and port, as a URL has them."""
        return f"{add_brackets(self.host)}:{self.port}"

    def path_beside(self, file: str | os.PathLike[str]) -> str:
        """Return the path of the socket file, '' for a port. A relative one begins in the real folder of `file`."""
        return os.path.join(os.path.dirname(os.path.realpath(file)), self.path) if self.path else ""


def add_brackets(host: str) -> str:
    """Return a host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def endpoint(text: object) -> Endpoint | None:
    """Return `unix:PATH`, `127.0.0.1:PORT`, `[::1]:PORT` or `localhost:PORT`; None for what others could reach."""
    if not isinstance(text, str) or not is_one_line(text):
        return None
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        return None if path.rpartition("/")[2] in ("", ".", "..") else Endpoint(path, "", 0)
    found = _PORT_OF.fullmatch(text)
    if found is None or not is_port(found[3]) or not is_loopback(host := found[1] or found[2]):
        return None
    return Endpoint("", "127.0.0.1" if host.lower() == "localhost" else host, int(found[3]))


def is_port(digits: str) -> bool:
    """Return whether digits are the number of a port that a server can have."""
    return 0 < int(digits) < 65_536


def is_one_line(text: str) -> bool:
    """Return whether a text fits into a header: without line breaks, control characters and halves of characters."""
    return not _OF_SEVERAL_LINES.search(text)


def is_host(text: str) -> bool:
    """Return whether this is the name of a machine, or its address without a port."""
    return bool(_DOMAIN.fullmatch(text)) or _is_ip_address(text)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its address or as localhost."""
    return ip_address(host).is_loopback if _is_ip_address(host) else host.lower() == "localhost"


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # a zone names an interface of this machine, and is no address of another
