"""The named targets of `http.request`: `[http.target.NAME]` of the configuration.

Only a target has secrets, as references; they go to its own scheme, host and port and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal
from urllib.parse import urlsplit

from craftcore.config.references import is_loopback, secret_reference
from craftcore.serialization.arguments import to_seconds

ANSWER_MARGIN_SECONDS = 5.0
"""A call is ended by its own timeout; so much later the ledger ends it."""

CREDENTIAL_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "apikey", "x-auth-token", "x-token"}
)
FRAMING_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect"}
)
"""Made for each request: who is asked, and where it ends."""

REPRESENTATION_HEADERS = frozenset(
    {"accept-encoding", "accept-charset", "range", "if-range", "a-im", "want-content-digest", "want-repr-digest"}
)
"""Headers that choose a part of an answer, or a form in which an echoed secret cannot be recognised."""

REROUTING_HEADERS = frozenset(
    {
        *("forwarded", "via", "x-forwarded", "x-host", "x-original-host", "x-http-host-override", "x-proxy-url"),
        *("x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-original-method"),
        *("x-envoy-original-path", "x-middleware-subrequest"),
        *("x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip"),
    }
)
REROUTING_PREFIXES = ("x-forwarded-", "proxy-")
"""By them a proxy or framework takes a request for one of another address, path or sender."""


def comparable_name(header: str) -> str:
    """Return the name as servers compare it: in lower case, and to many an underscore is a hyphen."""
    return header.lower().replace("_", "-")


_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[ -~]{0,4000}")
_SECRETIVE = re.compile(r"(?i)(env|credential|bearer|basic)[: ]")
_WINDOW_MAX_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretHeader:
    """A header's value that is not in the configuration: `prefix` and the resolved reference."""

    secret: str
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """One provider. `allow_private` None: as `[http]` says. `dedup_window` in seconds, None: for ever."""

    base_url: str
    headers: Mapping[str, str | SecretHeader] = field(default_factory=dict)
    provider_dedupes: bool = False
    dedup_window: float | None = None
    key_header: str = "Idempotency-Key"
    allow_private: bool | None = None
    allow_plain_http: bool = False
    on_unknown: Literal["ask", "assume_done"] | None = None


def http_targets(where: str, given: object, mistakes: list[str]) -> dict[str, HttpTarget]:
    """Return the targets of a file that have no mistake. A mistake is one line, without the values of headers."""
    if not isinstance(given, dict) or not all(isinstance(table, dict) for table in given.values()):
        mistakes.append(f"{where} must be written as [{where}.NAME], once for each")
        return {}
    targets = {}
    for name, table in given.items():
        if not _NAME.fullmatch(name):
            mistakes.append(
                f"{where}: {name!r:.80} is not a valid name; allowed: 1 to 100 characters out of A-Z a-z 0-9 . _ -"
            )
        elif found := [f"{where}.{name}{mistake}" for mistake in _mistakes(table)]:
            mistakes.extend(found)
        else:
            headers = {header: _value(value) for header, value in table.get("headers", {}).items()}
            window = to_seconds(table.get("dedup_window"))
            targets[name] = HttpTarget(**{**table, "headers": headers, "dedup_window": window})
    return targets


def window_mistakes(where: str, targets: Mapping[str, HttpTarget], timeout: float) -> Iterator[str]:
    """Yield a line for each window that is too short: the provider would forget a key while a call may still run."""
    longest = timeout + ANSWER_MARGIN_SECONDS
    for name, target in targets.items():
        if target.dedup_window is not None and target.dedup_window <= longest:
            allowed = f"more than the {longest:g} seconds that a call may take: http.timeout and some more"
            yield f"{where}.{name}.dedup_window is {target.dedup_window:g}; allowed: {allowed}"


def _value(given: Any) -> str | SecretHeader:
    return given if isinstance(given, str) else SecretHeader(**given)


def _mistakes(table: dict[str, Any]) -> Iterator[str]:
    known = list(HttpTarget.__dataclass_fields__)
    for name in (name for name in table if name not in known):
        near = get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"allowed: {', '.join(known)}"
        yield f".{name if name.isidentifier() else repr(name)[:60]} is unknown; {hint}"
    for name in ("provider_dedupes", "allow_private", "allow_plain_http"):
        if name in table and not isinstance(table[name], bool):
            yield f".{name} is {table[name]!r:.60}; allowed: true or false"
    if table.get("on_unknown", "ask") not in ("ask", "assume_done"):
        hint = "; for a provider that drops a second call, set provider_dedupes = true"
        yield f'.on_unknown is {table["on_unknown"]!r:.60}; allowed: "ask" or "assume_done"{hint}'
    yield from _window_mistakes(table)
    headers = table.get("headers", {})
    yield from _headers_mistakes(headers)
    yield from _key_header_mistakes(table.get("key_header", "Idempotency-Key"), headers)
    yield from _address_mistakes(table)


def _window_mistakes(table: dict[str, Any]) -> Iterator[str]:
    window = to_seconds(table.get("dedup_window"))
    if window is None:
        return
    if type(window) not in (int, float) or not 0 < window <= _WINDOW_MAX_SECONDS:
        given = f"{table['dedup_window']!r:.60}"
        yield f'.dedup_window is {given}; allowed: seconds or text like "1d", more than 0 and at most a year'
    elif table.get("provider_dedupes") is not True:
        yield ".dedup_window is how long a provider remembers a key; say provider_dedupes = true if this one does"


def _headers_mistakes(headers: object) -> Iterator[str]:
    if not isinstance(headers, dict):
        yield '.headers must be a table, like { Accept = "application/json" }'
        return
    if len({name.lower() for name in headers}) < len(headers):
        yield ".headers names one twice, in upper and lower case"
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or name.lower() in FRAMING_HEADERS:
            yield f".headers: {name!r:.60} is not a header that can be given"
        elif mistake := _value_mistake(name, value):
            yield f".headers.{name} {mistake}"


def _value_mistake(name: str, value: object) -> str | None:
    """Return what is wrong with it, in words that do not tell it."""
    advice = 'like { secret = "env:NAME", prefix = "Bearer " } or { secret = "credential:NAME" }'
    match value:
        case str() if name.lower() in CREDENTIAL_HEADERS or _SECRETIVE.match(value):
            return f"must not stand here in plain text: give a reference, {advice}"
        case str() if _HEADER_VALUE.fullmatch(value):
            return None
        case {"secret": str(secret), **rest} if secret_reference(secret) and rest.keys() <= {"prefix"}:
            prefix = rest.get("prefix", "")
            return (
                None if isinstance(prefix, str) and _HEADER_VALUE.fullmatch(prefix) else "has a prefix that is not text"
            )
    return f"must be a text without line breaks, or a reference to a secret, {advice}"


def _key_header_mistakes(name: object, headers: object) -> Iterator[str]:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        yield f".key_header is {name!r:.60}; allowed: the name of a header"
    elif name.lower() in FRAMING_HEADERS | CREDENTIAL_HEADERS:
        yield f".key_header is {name!r:.60}, which means something else"
    elif isinstance(headers, dict) and name.lower() in {header.lower() for header in headers}:
        yield f".headers.{name} is where the key travels, which is another for each call; see key_header"


def _address_mistakes(table: dict[str, Any]) -> Iterator[str]:
    """Yield the mistakes in base_url. The address is not shown: text in a wrong place may be a password."""
    base_url = table.get("base_url")
    try:
        url = urlsplit(base_url if isinstance(base_url, str) else "")
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or url.scheme not in ("http", "https") or port == 0 or not str(base_url).isprintable():
        yield ".base_url must be like https://api.example.com/v1"
        return
    if "@" in url.netloc or "?" in str(base_url) or "#" in str(base_url):
        yield ".base_url must have no user, no ? and no #; a secret goes into headers"
    if any(segment in ("..", ".") for segment in url.path.split("/")):
        yield ".base_url must have no . or .. in its path"
    headers = table.get("headers", {})
    secrets = isinstance(headers, dict) and not all(isinstance(value, str) for value in headers.values())
    if secrets and url.scheme == "http" and not is_loopback(host) and table.get("allow_plain_http") is not True:
        yield ": its secret would travel in clear text; use https, or allow_plain_http = true in a network you trust"
