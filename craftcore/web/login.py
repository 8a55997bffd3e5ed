"""`/login` and `/logout`: with a token, or by the link of the terminal, which works once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from craftcore.config.web_people import WebPerson
from craftcore.web.page import Page
from craftcore.web.people import People, TooManyTries

_PATH = re.compile(r"/(?![/\\])[!-~]{0,1000}")
NAME_MAX, TOKEN_MAX = 100, 10_000


def show_login(people: People, query: dict[str, str], *, by_proxy: bool) -> Page:
    """Return the page that asks for a name and a token, or, with a link's secret, for a tap: reading never logs in."""
    facts = {"link": query.get("link", ""), "has_tokens": people.has_tokens, "by_proxy": by_proxy, "wrong": ""}
    facts["next"] = find_next(query)
    return Page(template="login.html", title="Log in", facts=facts)


def check_login(people: People, form: dict[str, str], *, by_proxy: bool) -> WebPerson | Page:
    """Return who logs in with this form, or the page that says that it is wrong."""
    link = form.get("link", "")
    facts: dict[str, Any] = {"link": "", "has_tokens": people.has_tokens, "by_proxy": by_proxy}
    facts["next"] = find_next(form)
    if link:
        if (person := people.use_link(link)) is not None:
            return person
        facts["wrong"] = "This link was used, or is older than five minutes. Start craftcore web again for a new one."
        return Page(template="login.html", title="Log in", status=403, facts=facts)
    name, token = form.get("name", "")[:NAME_MAX], form.get("token", "")
    try:
        if len(token) <= TOKEN_MAX and (person := people.check_token(name, token)) is not None:
            return person
    except TooManyTries:
        facts["wrong"] = "Too many wrong tokens. Wait a minute, and try again."
        return Page(template="login.html", title="Log in", status=429, facts=facts)
    facts["wrong"] = "The name or the token is wrong."
    return Page(template="login.html", title="Log in", status=403, facts=facts)


def find_next(fields: Mapping[str, str]) -> str:
    """Return the page of this site that a person asked for before the login; `/` for anything else.

    An address of another site would begin with `//`, or with `/` and a backslash.
    """
    wanted = fields.get("next", "")
    is_own = _PATH.fullmatch(wanted) is not None and not wanted.startswith(("/login", "/logout", "/live"))
    return wanted if is_own else "/"
