"""Which requests are refused before anything is read: by their host, their origin, and their proxy. Pure.

Head     at most 8 KB, and one length of the body
Host     a name of this machine, or one of `web.hosts`: against DNS rebinding
Origin   a POST comes from this page: https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
Proxy    the header that names a user counts only from a proxy that is known
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import urlsplit

from craftcore.config.references import is_loopback

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
PROXY_HEADER = "x-craftcore-proxy"
METHODS = ("GET", "HEAD", "POST")
HEAD_MAX_BYTES = 8 << 10


class Refusal(NamedTuple):
    """The status of a refused request, and why."""

    status: int
    why: str


class Headers:
    """The headers of a request, by their names in lower case; a name may come more than once."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    @property
    def size(self) -> int:
        """The bytes of all headers, with what is between them."""
        return sum(len(name) + len(value) + 4 for name, value in self._raw)

    def list_values(self, name: str) -> list[str]:
        """Return each value of a header, as Latin-1 text."""
        wanted = name.lower().encode("ascii")
        return [value.decode("latin-1").strip() for key, value in self._raw if key.lower() == wanted]

    def find_value(self, name: str) -> str | None:
        """Return the value of a header; None when it is missing, or there are several."""
        values = self.list_values(name)
        return values[0] if len(values) == 1 else None


def judge_head(path: bytes, query: bytes, headers: Headers) -> Refusal | None:
    """Refuse a head that is too large, or that says in two ways where its body ends: a proxy may read the other one.

    The server itself refuses only a large head that does not arrive at once.
    """
    if len(path) + len(query) + headers.size > HEAD_MAX_BYTES:
        return Refusal(431, f"the head of a request has at most {HEAD_MAX_BYTES:,} bytes")
    if headers.list_values("transfer-encoding") and headers.list_values("content-length"):
        return Refusal(400, "a request has a Content-Length or a Transfer-Encoding, not both")
    return None


def judge_host(headers: Headers, hosts: Collection[str]) -> Refusal | None:
    """Refuse a host that is neither this machine nor a name of the settings."""
    found = _HOST.fullmatch(headers.find_value("host") or "")
    name = "" if found is None else (found[1] or found[2]).lower().rstrip(".")
    if name and (is_loopback(name) or name in {host.lower() for host in hosts}):
        return None
    return Refusal(421, "Host must be localhost, an address of this machine, or one of web.hosts")


def judge_method(method: str, headers: Headers) -> Refusal | None:
    """Refuse other methods than GET, HEAD and POST, and a POST that does not come from a page of this server."""
    if method not in METHODS:
        return Refusal(405, "there are GET, HEAD and POST")
    if method != "POST":
        return None
    if sites := headers.list_values("sec-fetch-site"):
        return None if sites == ["same-origin"] else Refusal(403, "the request comes from another site")
    origin, host = headers.find_value("origin"), headers.find_value("host")
    if origin is not None and host is not None and _find_host(origin) == host.lower():
        return None
    return Refusal(403, "the request does not show that it comes from this page")


def judge_proxy(
    headers: Headers, *, trusted_header: str, trusted_secret: str | None, on_port: bool
) -> str | Refusal | None:
    """Return the user whom the proxy names; None: no user is named.

    `trusted_secret` None: none is set. Refuse the header of a sender that is not known as the proxy.
    """
    if not trusted_header or not (users := headers.list_values(trusted_header)):
        return None
    if trusted_secret is None and on_port:
        return Refusal(403, "web.trusted_secret is not set, so no sender is known as the proxy")
    if trusted_secret is not None:
        secret = headers.find_value(PROXY_HEADER) or ""
        if not compare_digest(secret.encode("latin-1"), trusted_secret.encode()):
            return Refusal(403, f"the request names a user, and its {PROXY_HEADER} is not that of the proxy")
    if len(users) > 1 or not users[0]:
        return Refusal(403, "the proxy must name one user")
    return users[0]


def _find_host(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") and parts.path == "" else None
