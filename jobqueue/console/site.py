"""The web site: its routes, the headers of every response, and its server, which runs until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import structlog
from aiohttp import web
from jobqueue_client.access import Access, Token

from jobqueue.cli.client import Client, Refusal, Unreachable
from jobqueue.console.actions import ACTIONS
from jobqueue.console.guard import Guard, Proxies, is_for_loopback
from jobqueue.console.options import Options, is_loopback
from jobqueue.console.pages import (
    access,
    dead,
    find,
    forecast,
    guide,
    instances,
    job,
    jobs,
    lateness,
    operations,
    overview,
    settings,
    topic,
    topics,
)
from jobqueue.console.questions import Away, Questions
from jobqueue.console.rendering import Assets, Links, Templates
from jobqueue.console.sessions import Attempts, Session, Sessions, SignOn, acting, digest
from jobqueue.console.visit import BadQuery, Notes, Person, Place, Visit
from jobqueue.loops import stop_on_signals

log = structlog.get_logger()

Page = Callable[[Visit], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGES: dict[str, Page] = {
    "": overview.show,
    "topics": topics.show,
    "topic": topic.show,
    "jobs": jobs.show,
    "job": job.show,
    "body": job.download,
    "dead": dead.show,
    "dead.jsonl": dead.export,
    "forecast": forecast.show,
    "lateness": lateness.show,
    "schedules": topics.show_schedules,
    "workers": instances.show_workers,
    "instances": instances.show,
    "settings": settings.show,
    "tokens": access.show_tokens,
    "operations": operations.show,
    "operation": operations.one,
    "actions": access.show_actions,
    "find": find.show,
    "help": guide.show,
}
"""Every page for people who may look, by its path."""
SIGN_IN, SIGN_OUT = "sign-in", "sign-out"

_MOST_BYTES = 4 << 20  # of a form: a body of 1 MiB, percent-encoded
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types htmx"
)
_FEATURES = (
    *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation"),
    *("gyroscope", "magnetometer", "microphone", "midi", "payment", "picture-in-picture", "publickey-credentials-get"),
    *("screen-wake-lock", "usb", "xr-spatial-tracking"),
)
_HEADERS = {
    "Server": "jobqueue",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in _FEATURES),
}
_STRICTLY = f"max-age={365 * 86_400}"
"""For a year, browsers use only HTTPS for the host name of a console that has a certificate."""
_STATUS = {
    "BAD_FIELD": 400,
    "UNKNOWN_FIELD": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESERVED": 409,
    "NOT_RESERVED": 409,
    "STALE_LEASE": 409,
    "TOO_LATE": 409,
    "WRONG_STATE": 409,
    "TOO_LARGE": 413,
    "TOPIC_FULL": 429,
    "TOO_FAST": 429,
}
"""The HTTP status of the service's error codes; 503 for any other code."""
_VISIT = web.RequestKey("visit", Visit)


class _Failure(NamedTuple):
    """Why a request failed: the HTTP status, a sentence, and the field at fault or None."""

    status: int
    why: str
    field: str | None = None


def _failure(error: Exception) -> _Failure:
    """The failure that people see for an error. An unexpected error is logged."""
    if isinstance(error, web.HTTPException):
        return _Failure(error.status, error.reason)
    if isinstance(error, BadQuery):
        return _Failure(HTTPStatus.BAD_REQUEST, str(error), error.name)
    if isinstance(error, Refusal):  # in the words of the service, and with its status
        fields = error.answer.fields
        status = _STATUS.get(str(fields.get("code")), HTTPStatus.SERVICE_UNAVAILABLE)
        return _Failure(status, str(fields.get("error")), fields.get("field"))
    if isinstance(error, Away | Unreachable):
        return _Failure(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    log.error("console.failed", exc_info=error)
    return _Failure(HTTPStatus.INTERNAL_SERVER_ERROR, "the console has failed; its log says why")


class Site:
    """The console. A server runs `application`, whose clean-up ends all sessions."""

    def __init__(self, options: Options, templates: Templates | None = None) -> None:
        """`templates`: replacements for the console's own templates, for tests."""
        links = Links(options.base_path)
        self._assets = Assets(links)
        self._questions = Questions()
        self._place = Place(
            options, links, templates or Templates(options, links, self._assets), self._questions, Notes()
        )
        self._guard = Guard(options.names)
        self._sessions = Sessions(self._questions.forget)
        self._attempts = Attempts()
        self._proxies = Proxies(options)
        self._sign_on = SignOn(options, self._questions)
        self._nobody = Client(options.url, Access(Token(is_taken=True), options.tls))
        self.application = self._application()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._answer], client_max_size=_MOST_BYTES)
        router, to = application.router, self._place.links.to
        for name, page in PAGES.items():
            router.add_get(to(name), self._for_person(name, page))
        if not self._place.options.read_only:
            for name, action in ACTIONS.items():
                router.add_post(to(name), self._for_person(name, action))
        router.add_get(to(SIGN_IN), self._sign_in_page)
        router.add_post(to(SIGN_IN), self._sign_in)
        router.add_post(to(SIGN_OUT), self._sign_out)
        router.add_get(to(f"static/{self._assets.hash}/") + "{name:.+}", self._asset)
        application.on_response_prepare.append(self._add_headers)
        application.on_startup.append(self._start)
        application.on_cleanup.append(self._close)
        return application

    async def _start(self, application: web.Application) -> None:
        await self._nobody.__aenter__()
        await self._sign_on.open()

    async def _close(self, application: web.Application) -> None:
        await self._questions.close()
        await self._sessions.close()
        await self._sign_on.close()
        await self._nobody.__aexit__(None, None, None)

    # What every request passes through.

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests for another host and POSTs from other sites; turn errors into pages that show them."""
        if not self._guard.knows(request.headers):
            return self._refused(request, "host", HTTPStatus.MISDIRECTED_REQUEST)
        if request.method not in ("GET", "HEAD") and not self._guard.is_from_here(request.headers):
            return self._refused(request, "origin", HTTPStatus.FORBIDDEN)
        try:
            return await handler(request)
        except Exception as error:
            if isinstance(error, web.HTTPException) and error.status < HTTPStatus.BAD_REQUEST:
                raise
            failure = _failure(error)
        if failure.status == HTTPStatus.UNAUTHORIZED:  # the token is no longer valid
            await self._sessions.end(request.cookies.get(self._cookie(request)))
            return self._to_sign_in(request)
        return self._failed(request, failure)

    def _refused(self, request: web.Request, reason: str, status: HTTPStatus) -> web.Response:
        address = self._proxies.address_of(request)
        log.warning("console.refused", reason=reason, path=request.path[:200], address=address)
        return web.Response(status=status, text=f"{status.phrase}\n")

    def _failed(self, request: web.Request, failure: _Failure) -> web.Response:
        """A page that says what went wrong; if a page refreshes itself, the failure replaces its content."""
        visit: Visit | None = request.get(_VISIT)
        if visit is None:
            return web.Response(status=failure.status, text=f"{failure.why}\n")
        back = self._place.links.own(str((visit.form or {}).get("back", "")))
        title = "Not shown" if visit.form is None else "Not done"
        shown: dict[str, Any] = {
            "why": failure.why,
            "field": failure.field,
            "back": back,
            "is_action": visit.form is not None,
        }
        return visit.page("failed", title, status=failure.status, refresh=False, **shown)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        visit = request.get(_VISIT)
        response.headers.update(_HEADERS)
        if self._place.options.certificate:
            response.headers["Strict-Transport-Security"] = _STRICTLY
        policy = _POLICY.format(nonce=visit.nonce) if visit else "default-src 'none'; frame-ancestors 'none'"
        response.headers.setdefault("Content-Security-Policy", policy)
        response.headers.setdefault("Cache-Control", "no-store")

    # Who makes the request.

    def _for_person(self, name: str, page: Page) -> Handler:
        """A page for people who have signed in, or for everybody if the service is open."""

        async def handle(request: web.Request) -> web.StreamResponse:
            visit = self._stranger(name, request)
            person = await self._person(request)
            if person is None:
                return self._to_sign_in(request)
            visit.person = person
            if request.method == "POST":
                visit.form = await request.post()
                if not person.may_act:
                    raise web.HTTPForbidden(reason="an open service is changed from its own machine only")
            return await page(visit)

        return handle

    async def _person(self, request: web.Request) -> Person | None:
        user = self._proxies.user_of(request)
        if user:
            return await self._sign_on.person(user, self._proxies.address_of(request))
        session = await self._session(request)
        options = self._place.options
        if session:
            return Person(session.client, session.key, session.bearer, not options.read_only, is_open=False)
        if not await self._is_open():
            return None
        is_here = is_loopback(options.host) and is_for_loopback(request.headers)
        return Person(self._nobody, "", {}, is_here and not options.read_only, is_open=True)

    async def _session(self, request: web.Request) -> Session | None:
        secret = request.cookies.get(self._cookie(request))
        return await self._sessions.find(secret, is_use="HX-Request" not in request.headers)

    async def _is_open(self) -> bool:
        """Whether the service needs no tokens. Raises Away."""
        try:
            seen = await self._questions.ask(self._nobody, "", 1.0, "whoami", {})
        except Refusal:
            return False
        return bool(seen.fields.get("open"))

    # Signing in and out.

    def _cookie(self, request: web.Request) -> str:
        """The name of the cookie. Browsers accept a cookie whose name begins with `__Host-` over TLS only; a browser on
        this machine uses plain HTTP for a loopback name."""
        is_plain = self._place.options.certificate is None and is_for_loopback(request.headers)
        return "jobqueue" if is_plain else "__Host-jobqueue"

    def _to_sign_in(self, request: web.Request) -> web.StreamResponse:
        if "HX-Request" in request.headers:  # the browser reloads the whole page, which leads here again
            return web.Response(status=HTTPStatus.OK, headers={"HX-Refresh": "true"})
        back = request.path_qs if request.method == "GET" else ""
        raise web.HTTPSeeOther(self._place.links.to(SIGN_IN, back=back[:2000]))

    async def _sign_in_page(self, request: web.Request) -> web.StreamResponse:
        visit = self._stranger(SIGN_IN, request)
        back = self._place.links.own(visit.text("back", 2000))
        return visit.page("sign_in", "Sign in", refresh=False, why="", back=back)

    def _stranger(self, name: str, request: web.Request) -> Visit:
        """A visit by a person who has not been identified yet."""
        visit = Visit(self._place, name, request, Person(self._nobody, "", {}, may_act=False, is_open=False))
        request[_VISIT] = visit
        return visit

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        """Have the service check a token; a valid token begins a session, which has its own secret."""
        visit, form, address = self._stranger(SIGN_IN, request), await request.post(), self._proxies.address_of(request)
        back, token = self._place.links.own(str(form.get("back", ""))), str(form.get("token", "")).strip()
        if not self._attempts.begin(address):
            return _not_signed_in(visit, back, HTTPStatus.TOO_MANY_REQUESTS, _TOO_MANY, address)
        client = self._client_of(token)
        bearer = await self._bearer(client, address) if client else None
        if client is None or bearer is None:
            return _not_signed_in(visit, back, HTTPStatus.UNAUTHORIZED, _WRONG_TOKEN, address)
        if bearer.get("open"):
            await client.__aexit__(None, None, None)
            raise web.HTTPSeeOther(back)
        name = self._cookie(request)
        await self._sessions.end(request.cookies.get(name))
        client = acting(client, bearer, str(bearer["name"]))
        secret = await self._sessions.begin(client, bearer, digest(token))
        log.info("session.begun", token=bearer.get("id"), address=address)
        answer = web.HTTPSeeOther(back)
        answer.set_cookie(name, secret, path="/", secure=name.startswith("__"), httponly=True, samesite="Strict")
        raise answer

    def _client_of(self, token: str) -> Client | None:
        """A client that sends a token, or None for text that cannot be a token."""
        try:
            return Client(self._place.options.url, Access(Token(token), self._place.options.tls))
        except ValueError:
            return None

    async def _bearer(self, client: Client, address: str) -> dict[str, Any] | None:
        """What the service says about a client's token, or None if the token is not valid. Raises Refusal or
        Unreachable if the token could not be checked, which does not count as a wrong token. The client is closed in
        both cases, but not for a valid token."""
        await client.__aenter__()
        try:
            bearer = (await client.ask("whoami")).fields
        except (Refusal, Unreachable) as error:
            await client.__aexit__(None, None, None)
            if isinstance(error, Refusal) and error.answer.fields.get("code") == "UNAUTHORIZED":
                return None
            self._attempts.succeed(address)
            raise
        self._attempts.succeed(address)
        return bearer

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        name = self._cookie(request)
        await self._sessions.end(request.cookies.get(name))
        answer = web.HTTPSeeOther(self._place.links.to(SIGN_IN))
        answer.del_cookie(name, path="/", secure=name.startswith("__"), httponly=True, samesite="Strict")
        raise answer

    # Files.

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        file = self._assets.files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound()
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return web.Response(body=file.content, content_type=file.kind, charset="utf-8", headers=headers)


_TOO_MANY = "Five wrong tokens within a minute: wait until the minute is over."
_WRONG_TOKEN = "The service does not know this token, or it has ended."  # noqa: S105 - a sentence


def _not_signed_in(visit: Visit, back: str, status: HTTPStatus, why: str, address: str) -> web.Response:
    log.warning("session.refused", status=int(status), address=address)
    return visit.page("sign_in", "Sign in", status=status, refresh=False, why=why, back=back)


_GRACE_S = 2.0
_NICE = 10  # pages give way to the service, if it is on this machine: a page may wait, jobs may not


async def serve(options: Options, listens: Callable[[], None] = lambda: None, *, shares_port: bool = False) -> None:
    """Run the console until a signal ends it. `listens`: called once the console listens; `shares_port`: True if
    another process holds the port for it. Raises OSError if the address is in use or is not this machine's."""
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(_NICE)
    stop = asyncio.Event()
    stop_on_signals(stop.set)
    runner = web.AppRunner(
        Site(options).application,
        access_log=None,
        auto_decompress=False,  # no form needs it
        shutdown_timeout=_GRACE_S,
    )
    await runner.setup()
    certificate = options.certificate
    looking = asyncio.create_task(certificate.run()) if certificate else None
    try:
        context = certificate.context if certificate else None
        await web.TCPSite(
            runner, options.host, options.port, ssl_context=context, reuse_port=shares_port or None
        ).start()
        host, port = runner.addresses[0][:2]
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        url = f"{'https' if certificate else 'http'}://{place}{options.base_path}/"
        log.info("console.started", url=url, service=options.url)
        listens()
        await stop.wait()
    finally:
        if looking:
            looking.cancel()
        await runner.cleanup()
    log.info("console.stopped")
