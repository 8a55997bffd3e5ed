"""The settings of `[web]`: where the page listens, who may log in, and what it shows of payloads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import quote

from craftcore.config.loader import Each, People, Spelt
from craftcore.config.references import ENDPOINT_SAID, REFERENCE_SAID, add_brackets, endpoint, is_host, secret_reference

MASKED = ("password", "secret", "token", "authorization", "cookie", "api_key", "private")

_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_WORD = re.compile(r"(?=\S*[^\W_])\S{1,100}")  # without a letter or digit, it would be in every key

WebListen = Annotated[str, Spelt(endpoint, ENDPOINT_SAID)]
Hosts = Annotated[tuple[str, ...], Each(is_host, "a list of names of hosts, without ports")]
MaskWords = Annotated[tuple[str, ...], Each(_WORD.fullmatch, "a list of words")]
HeaderName = Annotated[str, Spelt(_HEADER.fullmatch, "the name of a header")]
SecretName = Annotated[str, Spelt(secret_reference, REFERENCE_SAID, hidden=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The page of `craftcore web`.

    listen          empty: `unix:web.sock` when systemd starts it, else 127.0.0.1:8722
    hosts           names by which a proxy is asked for the page; the first is used in links
    payloads        folded, shown, or hidden (not in the HTML at all)
    mask            words; the value of a key that contains one is not shown
    trusted_header  the header in which a proxy names the user; empty: none
    trusted_secret  a reference to the secret by which a proxy on a port is recognized
    unknown_users   what a user of the proxy may who is not listed
    """

    listen: WebListen = ""
    hosts: Hosts = ()
    payloads: Literal["folded", "shown", "hidden"] = "folded"
    mask: MaskWords = MASKED
    trusted_header: HeaderName = ""
    trusted_secret: SecretName = ""
    unknown_users: Literal["refuse", "look"] = "refuse"
    person: People = ()

    @property
    def has_proxy_users(self) -> bool:
        """True when there are users whom a proxy could let in."""
        return bool(self.trusted_header) and (bool(self.person) or self.unknown_users == "look")

    def link_question(self, id: str) -> str | None:
        """Return the address of the page of a question; None: no host is named."""
        return f"https://{add_brackets(self.hosts[0])}/q/{quote(id, safe='')}" if self.hosts else None


def relation_mistakes(settings: WebSettings, listen: str = "") -> Iterator[str]:
    """Yield a line for each setting that contradicts another. `listen`: where it listens, when that is known."""
    address = listen or settings.listen
    listens_on_port = address and not address.startswith("unix:")
    if settings.trusted_header and listens_on_port and not settings.trusted_secret:
        yield (
            "web.trusted_secret is not set; on a port web.trusted_header needs it, for any program of this machine "
            'could send that header. Or listen at "unix:web.sock"'
        )
    if settings.trusted_secret and not settings.trusted_header:
        yield "web.trusted_header is not set; web.trusted_secret is of no use without it"
    if settings.unknown_users == "look" and not settings.trusted_header:
        yield 'web.trusted_header is not set; web.unknown_users = "look" is of no use without it'
    if not settings.trusted_header:
        for person in settings.person:
            if not person.token:
                yield f"web.person {person.name} has no token, and web.trusted_header is not set: nothing lets them in"
