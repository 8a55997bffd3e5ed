"""The users of the page: people with tokens, users whom a proxy names, and one link of the terminal.

Tokens are compared in constant time, and wrong ones are counted. Cookies are random; the server keeps their hashes.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest

from craftcore.config.web_people import WebPerson, find_length_mistake, is_person_name
from craftcore.config.web_settings import WebSettings
from craftcore.errors import ConfigInvalid
from craftcore.outcome_exceptions import NoEffect

IDLE_SECONDS, LIFE_SECONDS = 12 * 3600.0, 7 * 86_400.0
LOGINS_MAX = 1_000
"""Logins that are kept; the one that was not used for longest goes."""
LINK_SECONDS = 300.0
WRONG_BY_NAME, WRONG_IN_ALL, WRONG_SECONDS = 5, 30, 60.0


@dataclass(slots=True)
class Login:
    """One logged-in browser. Moments are of a monotonic clock."""

    person: WebPerson
    began: float
    used: float


class TooManyTries(Exception):
    """Too many tokens were wrong within the last minute: none is compared."""


class People:
    """The people of the settings, and the browsers in which they are logged in.

    `find_secret` resolves a reference, and raises NoEffect. `clock` is monotonic, in seconds.
    """

    def __init__(
        self, settings: WebSettings, find_secret: Callable[[str], str], clock: Callable[[], float], *, read_only: bool
    ) -> None:
        self._find_secret = find_secret
        self._clock = clock
        self._read_only = read_only
        self._people = {person.name: self._apply_read_only(person) for person in settings.person}
        self._unknown = settings.unknown_users
        self._logins: OrderedDict[bytes, Login] = OrderedDict()
        self._link: tuple[bytes, float, WebPerson] | None = None
        self._wrong: dict[str, deque[float]] = {}

    def require_tokens(self) -> None:
        """Raise ConfigInvalid for tokens that cannot be found, or that are too short; one line each."""
        mistakes = []
        for person in self._people.values():
            if person.token:
                try:
                    token = self._find_secret(person.token)
                except NoEffect as error:
                    mistakes.append(f"web.person {person.name}: {error}")
                    continue
                if (mistake := find_length_mistake("token", token)) is not None:
                    mistakes.append(f"web.person {person.name}: {mistake}")
        if mistakes:
            raise ConfigInvalid("\n".join(mistakes))

    @property
    def has_tokens(self) -> bool:
        return any(person.token for person in self._people.values())

    def make_link(self, name: str) -> str:
        """Return the secret of a link that logs in the user of the terminal, once, within five minutes."""
        secret = secrets.token_urlsafe(24)
        person = self._apply_read_only(WebPerson(name=name, may="act"))
        self._link = (_hash(secret), self._clock() + LINK_SECONDS, person)
        return secret

    def use_link(self, secret: str) -> WebPerson | None:
        """Return the person of the link, once; None when it was used, is too old, or is another."""
        link = self._link
        if link is None or self._clock() > link[1] or not compare_digest(link[0], _hash(secret)):
            return None
        self._link = None
        return link[2]

    def check_token(self, name: str, token: str) -> WebPerson | None:
        """Return the person with this name and token; None: one of them is wrong. Raises TooManyTries."""
        self._require_few_wrong(name)
        person = self._people.get(name)
        wanted = secrets.token_urlsafe(24)  # an unknown name takes as long as a wrong token
        if person is not None and person.token:
            try:
                wanted = self._find_secret(person.token)
            except NoEffect:
                person = None
        if compare_digest(_hash(wanted), _hash(token)) and person is not None:
            return person
        for key in (name, ""):
            self._wrong.setdefault(key, deque(maxlen=WRONG_IN_ALL)).append(self._clock())
        return None

    def find_proxy_user(self, name: str) -> WebPerson | None:
        """Return the person whom a proxy names; None: this user is refused."""
        if (person := self._people.get(name)) is not None:
            return person
        if self._unknown == "look" and is_person_name(name):
            return WebPerson(name=name, may="look", in_doubt=False)
        return None

    def log_in(self, person: WebPerson) -> str:
        """Return the cookie of a new login."""
        cookie, now = secrets.token_urlsafe(32), self._clock()
        self._logins[_hash(cookie)] = Login(person, now, now)
        while len(self._logins) > LOGINS_MAX:
            self._logins.popitem(last=False)
        return cookie

    def find_login(self, cookie: str) -> WebPerson | None:
        """Return the person of a cookie; None when it is unknown, was idle for 12 hours, or is 7 days old."""
        if (login := self._find_valid(key := _hash(cookie))) is None:
            self._logins.pop(key, None)
            return None
        login.used = self._clock()
        self._logins.move_to_end(key)
        return login.person

    def make_login_check(self, cookie: str) -> Callable[[], bool]:
        """Return a function that says whether a login is still there. Unlike `find_login`, it does not count as its
        use."""
        key = _hash(cookie)
        return lambda: self._find_valid(key) is not None

    def _find_valid(self, key: bytes) -> Login | None:
        login, now = self._logins.get(key), self._clock()
        is_valid = login is not None and now - login.used <= IDLE_SECONDS and now - login.began <= LIFE_SECONDS
        return login if is_valid else None

    def log_out(self, cookie: str) -> None:
        """Forget a login."""
        self._logins.pop(_hash(cookie), None)

    def _apply_read_only(self, person: WebPerson) -> WebPerson:
        return replace(person, may="look") if self._read_only else person

    def _require_few_wrong(self, name: str) -> None:
        since = self._clock() - WRONG_SECONDS
        for key in [key for key, moments in self._wrong.items() if not moments or moments[-1] < since]:
            del self._wrong[key]
        wrong = _count_since(self._wrong, name, since), _count_since(self._wrong, "", since)
        if wrong[0] >= WRONG_BY_NAME or wrong[1] >= WRONG_IN_ALL:
            raise TooManyTries


def _count_since(wrong: Mapping[str, deque[float]], key: str, since: float) -> int:
    return sum(1 for moment in wrong.get(key, ()) if moment >= since)


def _hash(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
