"""The ASGI application of the web page: all its addresses, in one list of routes."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from craftcore.diagnostics.health import Health
from craftcore.web.actions.form import send_form, show_form
from craftcore.web.actions.table import ACTIONS
from craftcore.web.body import BodyRefused, parse_fields, read_form
from craftcore.web.live.route import LiveRoute
from craftcore.web.login import check_login, find_next, show_login
from craftcore.web.page import Page
from craftcore.web.pages import (
    activity_page,
    audit_page,
    dead_page,
    doubt_page,
    find_page,
    health_page,
    inbox_page,
    now_page,
    question_page,
    record_page,
    schedule_page,
    schedules_page,
    task_page,
    tasks_page,
    trigger_page,
    triggers_page,
)
from craftcore.web.people import LIFE_SECONDS
from craftcore.web.request_gate import Gate, list_cookies
from craftcore.web.request_rules import Headers
from craftcore.web.site import PageFunction, Site

PAGES: tuple[tuple[str, PageFunction], ...] = (
    ("/", inbox_page.show_inbox),
    ("/q/{id}", question_page.show_question),
    ("/now", now_page.show_now),
    ("/health", health_page.show_health),
    ("/find", find_page.show_find),
    ("/doubt", doubt_page.show_doubt),
    ("/activities/{id}", activity_page.show_activity),
    ("/schedules", schedules_page.show_schedules),
    ("/schedules/{id}", schedule_page.show_schedule),
    ("/dead", dead_page.show_dead),
    ("/triggers", triggers_page.show_triggers),
    ("/triggers/{id}", trigger_page.show_trigger),
    ("/audit", audit_page.show_audit),
    ("/tasks", tasks_page.show_tasks),
    ("/tasks/{id}", task_page.show_task),
    ("/records/{id}", record_page.show_record),
)
"""The pages, by address. The addresses of operator actions are in `craftcore.web.actions`."""

STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icons.svg": "image/svg+xml"}
"""The media types of the files that pages use."""


def make_app(site: Site) -> ASGIApp:
    """Return the application of a site, behind the gate that checks each request."""
    login = _Login(site)
    actions = ACTIONS.values()
    routes = [
        *(Route(path, site.endpoint(show), methods=["GET"]) for path, show in PAGES),
        *(
            Route(action.path, site.endpoint(show_form(action)), methods=["GET"])
            for action in actions
            if action.has_page
        ),
        *(Route(action.path, site.endpoint(send_form(action)), methods=["POST"]) for action in actions),
        Route("/live", LiveRoute(site).answer, methods=["GET"]),
        Route("/up", _Up(site).answer, methods=["GET"]),
        Route("/static/{name}", answer_static, methods=["GET"]),
        Route("/login", login.show, methods=["GET"]),
        Route("/login", login.check, methods=["POST"]),
        Route("/logout", login.leave, methods=["POST"]),
        Route("/{path:path}", site.refuse_address, methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={BodyRefused: site.refuse_body})
    app.router.redirect_slashes = False  # an address without its first slash is missing, and not another one
    return Gate(app, site.people, site.settings, site.door)


class _Up:
    """`/up`: 200 while a healthy daemon runs, else 503; no details, for probes."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def answer(self, request: Request) -> Response:
        return await self._site.run(self._read)

    def _read(self) -> Response:
        is_up = self._site.verdicts.read().health is not Health.DOWN
        return PlainTextResponse("up\n" if is_up else "down\n", 200 if is_up else 503)


class _Login:
    """`/login`, which sets the cookie, and `/logout`, which deletes it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._by_proxy = bool(site.settings.trusted_header)

    async def show(self, request: Request) -> Response:
        query = parse_fields(request.scope["query_string"])
        return await self._draw(show_login(self._site.people, query, by_proxy=self._by_proxy))

    async def check(self, request: Request) -> Response:
        form = await read_form(request)
        checked = check_login(self._site.people, form, by_proxy=self._by_proxy)
        if isinstance(checked, Page):
            return await self._draw(checked)
        response = RedirectResponse(find_next(form), 303)
        response.set_cookie(
            self._site.door.cookie,
            self._site.people.log_in(checked),
            max_age=int(LIFE_SECONDS),
            httponly=True,
            samesite="lax",  # with strict, a link from a message arrives logged out
            secure=request.headers.get("x-forwarded-proto") == "https",
        )
        return response

    async def leave(self, request: Request) -> Response:
        for cookie in list_cookies(Headers(request.scope["headers"]), self._site.door.cookie):
            self._site.people.log_out(cookie)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self._site.door.cookie)
        return response

    async def _draw(self, page: Page) -> Response:
        return await self._site.run(self._site.draw_plain, page)


async def answer_static(request: Request) -> Response:
    """Return one of the files that pages use."""
    name = request.path_params["name"]
    file = Path(__file__).parent / "static" / name
    if name not in STATIC or not file.exists():
        return PlainTextResponse("there is no such file\n", 404)
    return Response(file.read_bytes(), media_type=STATIC[name], headers={"cache-control": "no-cache"})
