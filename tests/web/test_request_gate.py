"""The request gate over the socket: host, origin, method, cookie, login, and the headers of every answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from craftcore.web.request_gate import HEADERS
from tests.support.populated_database import World
from tests.support.raw_http import Answer, connected, exchange, receive_all, request
from tests.support.web_site import SAME_ORIGIN, TOKENS, ServedSite, serving

PASSED = 303
"""The status of a redirect to the login, which shows that the gate admitted the request."""


@pytest.fixture(scope="module")
def page(made: tuple[World, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    """Serve one page for all tests, because none of them changes a row."""
    path = tmp_path_factory.mktemp("gate") / "agent.db"
    shutil.copy(made[1], path)
    with serving(path) as site:
        yield site


def cookie_of(site: ServedSite, person: str) -> str:
    """Log a person in, and return the cookie header."""
    [(name, value)] = site.client(person).cookies.items()
    return f"Cookie: {name}={value}"


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:9999", "localhost.", "localhost.:80", "127.0.0.1", "127.0.0.1:1", "127.8.9.1:65535"),
        *("[::1]", "[::1]:8722", "page.example", "PAGE.example:443", "page.example."),
    ],
)
def test_host_of_this_machine_or_of_the_settings_is_let_in(page, host):
    assert request(page.socket, host=host).status == PASSED


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "page.example.evil",
            "xpage.example",
            "example",
        ),
        *("10.0.0.1", "0.0.0.0", "192.168.1.1:8722", "[::]", "[fe80::1]", "[::ffff:10.0.0.1]", "[::1%25lo]", "::1"),
        *("0177.0.0.1", "2130706433", "127.1", "0x7f.0.0.1", "localhost:80:80", "localhost:999999", "localhost:"),
        *("", "user@localhost", "localhost/", "localhost, evil.example", "localhost evil", "l\xf6calhost", "."),
    ],
)
def test_foreign_host_is_refused_before_anything_is_read(page, host):
    answer = request(page.socket, "/up", host=host)

    assert answer.status == 421
    assert "Host must be" in answer.body


def test_host_is_named_once(page):
    """HTTP/1.1 requires a host, and RFC 9112 a 400 for several; an older client without a host is also refused."""
    assert request(page.socket, host=None).status == 400
    assert request(page.socket, "/", "Host: localhost").status == 400
    assert request(page.socket, "/", "Host: evil.example").status == 400
    assert request(page.socket, host=None, version="1.0").status == 421
    assert request(page.socket, host="evil.example", version="1.0").status == 421
    assert request(page.socket, host="localhost", version="1.0").status == PASSED


def test_address_in_the_request_line_is_no_other_host(page):
    """A request line in the form for proxies contains a host; no page has such an address."""
    answer = request(page.socket, "http://evil.example/", cookie_of(page, "ada"))

    assert answer.status == 404
    assert request(page.socket, "http://evil.example/", host="evil.example").status == 421


def send_form(site: ServedSite, *lines: str, host: str = "localhost") -> int:
    """Send a form about a missing question, and return the status: 404 if the gate admits it."""
    body = urlencode({"once": "x", "seen": "OPEN", "option": "0"}).encode()
    cookie = cookie_of(site, "ada")
    return request(site.socket, "/q/nothing/answer", cookie, *lines, method="POST", host=host, body=body).status


@pytest.mark.parametrize(
    ("lines", "host"),
    [
        (["Sec-Fetch-Site: same-origin"], "localhost"),
        (["Sec-Fetch-Site: same-origin", "Origin: http://localhost"], "localhost"),
        (["Sec-Fetch-Site: same-origin"], "page.example"),
        (["Origin: http://localhost"], "localhost"),
        (["Origin: http://localhost:8722"], "localhost:8722"),
        (["Origin: http://LOCALHOST:8722"], "localhost:8722"),
        (["Origin: https://page.example"], "page.example"),
        (["Origin: http://[::1]:8722"], "[::1]:8722"),
    ],
)
def test_form_from_the_page_itself_is_let_in(page, lines, host):
    assert send_form(page, *lines, host=host) == 404


@pytest.mark.parametrize(
    "lines",
    [
        [],
        *(
            [f"Sec-Fetch-Site: {site}"]
            for site in ("cross-site", "same-site", "none", "", "SAME-ORIGIN", "same-origin, x")
        ),
        ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: same-origin"],
        ["Sec-Fetch-Site: cross-site", "Origin: http://localhost"],
        *(
            [f"Origin: {origin}"]
            for origin in ("null", "", "localhost", "//localhost", "http://localhost:1", "file://")
        ),
        *(
            [f"Origin: {origin}"]
            for origin in ("http://localhost/", "http://x@localhost", "ftp://localhost", "http://[")
        ),
        *(
            [f"Origin: {origin}"]
            for origin in ("http://evil.example", "http://localhost.evil.example", "https://page.example")
        ),
        ["Origin: http://localhost", "Origin: http://localhost"],
        ["Referer: http://localhost/"],
    ],
)
def test_form_from_elsewhere_is_refused(page, lines):
    assert send_form(page, *lines) == 403


def test_form_from_another_host_of_the_settings_is_refused(page):
    assert send_form(page, "Origin: http://localhost", host="page.example") == 403


@pytest.mark.parametrize(
    "method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "post", "X"]
)
def test_method_beside_get_head_and_post_is_refused(page, method):
    assert request(page.socket, "/", cookie_of(page, "ada"), "Sec-Fetch-Site: same-origin", method=method).status == 405


@pytest.mark.parametrize("target", ["tasks", "*", "tasks/", "x@y", "?q=1"])
def test_address_without_a_slash_at_its_begin_leads_nowhere(page, target):
    answer = request(page.socket, target, cookie_of(page, "ada"))

    assert answer.status in (400, 404)
    assert answer.values("location") == []


def test_head_has_the_headers_of_a_page_and_no_body(page):
    answer = request(page.socket, "/", cookie_of(page, "ada"), method="HEAD")

    assert (answer.status, answer.body) == (200, "")


def test_pages_are_not_shown_without_a_login(page):
    cookie = cookie_of(page, "ada")
    name, value = cookie.removeprefix("Cookie: ").split("=")
    assert request(page.socket, "/", cookie).status == 200

    for wrong in (
        *(f"{name}=", f"{name}={value[:-1]}", f"{name}={value}x", f"{name}={value.swapcase()}", f"x{name}={value}"),
        *(f"{name}x={value}", f"{name.upper()}={value}", f"{name}: {value}", value, ";", "=", f"{name}=\xff\xfe"),
    ):
        assert request(page.socket, "/", f"Cookie: {wrong}").status == PASSED, wrong
    assert request(page.socket, "/").headers.count(("location", "/login?next=/")) == 1


def test_login_leads_to_the_page_that_was_asked_for(page):
    """The redirect keeps the filter. An address of another site is replaced by the inbox."""
    same, site = "Sec-Fetch-Site: same-origin", page.socket
    for path, reached in (("/tasks?status=DONE&session=a%20b", None), ("/q/%C3%A9", None), ("//evil.example/", "/")):
        [login] = request(site, path).values("location")
        [wanted] = parse_qs(urlsplit(login).query)["next"]
        body = urlencode({"name": "ada", "token": TOKENS["ada"], "next": wanted}).encode()

        assert request(site, "/login", same, method="POST", body=body).values("location") == [reached or path]


def test_request_with_two_lengths_is_refused_and_its_connection_closed(page):
    lines = "Sec-Fetch-Site: same-origin\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    head = f"POST /login HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n0\r\n\r\n"

    with connected(page.socket) as connection:
        connection.sendall(f"{head}GET /up HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = receive_all(connection).decode()

    assert received.startswith("HTTP/1.1 400 ")
    assert received.count("HTTP/1.1 ") == 1, received


def test_cookies_of_other_programs_of_this_machine_are_ignored(page):
    """Cookies are shared between ports, so a malformed cookie of another program arrives as well."""
    cookie = cookie_of(page, "ada").removeprefix("Cookie: ")

    for line in (
        f'a={{"b": [1]}}; {cookie}',
        f"=; ;; {cookie};",
        f'{cookie}; c="',
        f"é=1; {cookie}",
        f"a=b=c;{cookie}",
    ):
        assert request(page.socket, "/", f"Cookie: {line}").status == 200, line
    assert request(page.socket, "/", 'Cookie: a="', f"Cookie: {cookie}").status == 200
    name = cookie.partition("=")[0]
    assert request(page.socket, "/", f"Cookie: {name}=of-another-program; {cookie}").status == 200


def test_login_sets_a_cookie_without_access_for_scripts_and_other_sites(page):
    body = urlencode({"name": "ada", "token": TOKENS["ada"]}).encode()
    same = "Sec-Fetch-Site: same-origin"
    plain = request(page.socket, "/login", same, method="POST", body=body)
    behind = request(page.socket, "/login", same, "X-Forwarded-Proto: https", method="POST", body=body)

    for answer, is_secure in ((plain, False), (behind, True)):
        [cookie] = answer.values("set-cookie")
        given = [part.strip().lower() for part in cookie.split(";")[1:]]
        assert {"httponly", "samesite=lax", "path=/", "max-age=604800"} <= set(given)
        assert ("secure" in given) is is_secure
        assert not any(part.startswith("domain") for part in given)


def test_logged_out_cookie_is_refused(page):
    body = urlencode({"name": "cal", "token": TOKENS["cal"]}).encode()
    same = "Sec-Fetch-Site: same-origin"
    [cookie] = request(page.socket, "/login", same, method="POST", body=body).values("set-cookie")
    line = f"Cookie: {cookie.split(';')[0]}"
    assert request(page.socket, "/", line).status == 200

    assert request(page.socket, "/logout", line, same, method="POST").status == 303

    assert request(page.socket, "/", line).status == PASSED


def test_login_from_another_site_is_refused(page):
    body = urlencode({"name": "ada", "token": TOKENS["ada"]}).encode()

    answer = request(page.socket, "/login", "Sec-Fetch-Site: cross-site", method="POST", body=body)

    assert (answer.status, answer.values("set-cookie")) == (403, [])


def test_form_without_a_login_is_refused_and_not_sent_to_the_login(page):
    answer = request(page.socket, "/q/nothing/answer", "Sec-Fetch-Site: same-origin", method="POST")

    assert (answer.status, answer.values("location")) == (403, [])


EXPECTED = {
    "page": 200,
    "missing": 404,
    "missing to all": 303,
    "login": 200,
    "redirect": 303,
    "up": 503,
    "file": 200,
    "no file": 404,
    "host": 421,
    "method": 405,
    "origin": 403,
    "refused": 404,
    "type": 415,
    "large": 413,
    "query": 400,
    "login query": 400,
    "head": 431,
    "no request": 400,
}


def collect_answers(site: ServedSite) -> dict[str, Answer]:
    """Return an answer of each kind."""
    cookie, same = cookie_of(site, "ada"), "Sec-Fetch-Site: same-origin"
    form = partial(request, site.socket, method="POST", body=b"once=x")
    answers = {
        "page": request(site.socket, "/", cookie),
        "missing": request(site.socket, "/nothing", cookie),
        "missing to all": request(site.socket, "/nothing"),
        "login": request(site.socket, "/login"),
        "redirect": request(site.socket, "/"),
        "up": request(site.socket, "/up"),
        "file": request(site.socket, "/static/page.css"),
        "no file": request(site.socket, "/static/nothing"),
        "host": request(site.socket, host="evil.example"),
        "method": request(site.socket, method="PUT"),
        "origin": form("/logout"),
        "refused": form("/q/x/answer", cookie, same),
        "type": form("/q/x/answer", cookie, same, "Content-Type: text/plain"),
        "large": request(site.socket, "/q/x/answer", cookie, same, method="POST", body=b"x" * (65 << 10)),
        "query": request(site.socket, "/?a=%ff", cookie),
        "login query": request(site.socket, "/login?a=%00"),
        "head": request(site.socket, "/", "X: " + "x" * 9_000),
        "no request": exchange(site.socket, b"\x16\x03\x01 hello\r\n\r\n"),
    }
    return answers


def test_answers_have_the_headers_that_protect_their_reader(page):
    answers = collect_answers(page)

    statuses = {name: answer.status for name, answer in answers.items()}
    assert statuses == EXPECTED
    for name, answer in answers.items():
        for header, value in HEADERS.items():
            expected = ["no-cache"] if (name, header) == ("file", b"cache-control") else [value.decode()]
            assert answer.values(header.decode()) == expected, (name, header)
        assert answer.values("server") == [], name


def test_style_and_script_come_from_the_page_alone():
    policy = HEADERS[b"content-security-policy"].decode()

    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def test_sixth_wrong_token_of_a_minute_is_not_compared(site):
    """The right token is not compared either, so further guesses give no information."""
    client = site.client()
    tries = [client.post("/login", data={"name": "bob", "token": f"no {n}"}, headers=SAME_ORIGIN) for n in range(6)]
    right = client.post("/login", data={"name": "bob", "token": TOKENS["bob"]}, headers=SAME_ORIGIN)
    other = client.post("/login", data={"name": "ada", "token": TOKENS["ada"]}, headers=SAME_ORIGIN)

    assert [answer.status_code for answer in tries] == [403] * 5 + [429]
    assert (right.status_code, other.status_code) == (429, 303)
    assert not any(token in answer.text for answer in tries for token in TOKENS.values())


def test_socket_is_accessible_only_to_its_owner(page):
    assert page.socket.stat().st_mode & 0o777 == 0o600
