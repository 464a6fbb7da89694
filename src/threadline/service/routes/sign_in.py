"""Sign-in of people: at an identity provider, with a link that works once; and sign-out.

`/sign-in/{provider}` sends the browser to the provider, `/sign-in/{provider}/callback` receives it back. Both are
opened by people, so their failures are pages with one sentence and a way on, never a problem document; the reason is in
the log. A link's secret is in the fragment of its URL, which browsers never send: the page sends it in a body.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from threadline.administration.sessions import OpenedSession, Sessions
from threadline.api_types import ApiStruct
from threadline.core.errors import InvalidInput, StoreFailed
from threadline.core.oidc import NotAdmitted, read_person
from threadline.service.auth.identity_providers import IdentityProvider, ProviderUnavailable, SignInRefused
from threadline.service.auth.session_cookies import (
    SESSION_COOKIE,
    check_own_page,
    clear_cookie,
    device_of,
    session_secret,
    set_cookie,
)
from threadline.service.auth.sign_in_flows import (
    FLOW_SECONDS,
    SignInFlow,
    begin_flow,
    cookie_name_of,
    pack_flow,
    safe_path,
    unpack_flow,
)
from threadline.service.context import ServiceContext
from threadline.service.http.problems import Problem
from threadline.service.http.request_context import caller_of
from threadline.service.http.requests import RequestStruct, read_body
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation

log = logging.getLogger("threadline.service")

_MOUNT = "/sign-in"
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign-in · Threadline</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 32rem; margin: 4rem auto; padding: 0 1rem; }}
  :root {{ color-scheme: light dark; }}
</style>
<h1>{title}</h1>
<p>{detail}</p>
<p><a href="{again}">Try again</a> · <a href="{start}">Back to the start</a></p>
</html>
"""
_NOT_COMPLETE = "You are not signed in"
_EXPIRED = "This sign-in took too long, was begun in another browser, or was completed already."
_REFUSED = "The identity provider's answer could not be verified."
_UNAVAILABLE = "The identity provider does not answer at the moment. Your threads are safe; try again in a minute."
_FORBIDDEN = "Your account may not use this service. Ask its administrator for access."
_LINK_OVER = "the link is not valid: it was used, has expired or was revoked; ask for a new one"


class SignInProviderInfo(ApiStruct, frozen=True):
    """A provider to sign in with: open `path` in the browser."""

    name: str
    title: str
    path: str


class SignInOptions(ApiStruct, frozen=True):
    """How people sign in here. `isRequired` says whether anybody has to."""

    is_required: bool
    providers: list[SignInProviderInfo]


class OpenLinkBody(RequestStruct, frozen=True):
    """`link` is the part of a sign-in link after `#sign-in=`."""

    link: str


class SignedIn(ApiStruct, frozen=True):
    tenant: str
    user: str


class SignOutBody(RequestStruct, frozen=True):
    """`everywhere` ends the sessions on all devices, and links that were not used."""

    everywhere: bool = False


class SignInRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._sessions = context.sessions
        self._providers = context.providers

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/v1/sign-in", self.read_options, methods=["GET"]),
            Route("/api/v1/sign-in/link", self.open_link, methods=["POST"]),
            Route("/api/v1/sign-out", self.sign_out, methods=["POST"]),
            # For browsers, so they are no part of the API document.
            Mount(
                _MOUNT,
                routes=[
                    Route("/{provider}", self.begin, methods=["GET"]),
                    Route("/{provider}/callback", self.complete, methods=["GET"]),
                ],
            ),
        ]

    @operation(
        "readSignIn",
        "Read how people sign in",
        ResponseSpec(200, "The identity providers.", SignInOptions),
        tag="users",
    )
    async def read_options(self, request: Request) -> Response:
        infos = [
            SignInProviderInfo(name, provider.settings.title or name, f"sign-in/{name}")
            for name, provider in self._providers.items()
        ]
        return json_response(SignInOptions(self._sessions is not None, infos))

    @operation(
        "openSignInLink",
        "Sign in with a link",
        ResponseSpec(200, "The user. The response sets the session cookie.", SignedIn),
        tag="users",
        description="Links are made with `threadline users link`. Each works once. Only for the service's own page.",
        body=Body(OpenLinkBody),
        errors=(Fault(410, "link_ended"), Fault(404, "sign_in_off")),
    )
    async def open_link(self, request: Request) -> Response:
        sessions = self._require_sessions()
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            # Otherwise another page could sign its visitor in as another user. Programs send neither.
            check_own_page(request, sessions.settings.url)
        body = await read_body(request, OpenLinkBody)
        if len(body.link) > 200:
            raise InvalidInput("`link` must be the part of a sign-in link after `#sign-in=`")
        opened = await sessions.open_link(body.link, device_of(request))
        if opened is None:
            raise Problem(410, "link_ended", _LINK_OVER)
        sign_in = opened.session.sign_in
        response = json_response(SignedIn(opened.session.tenant_id, sign_in.owner_id))
        await self._enter(request, response, sessions, opened)
        return response

    @operation(
        "signOut",
        "Sign out",
        ResponseSpec(204, "The session ended, and the cookie is removed."),
        tag="users",
        body=Body(SignOutBody, required=False),
    )
    async def sign_out(self, request: Request) -> Response:
        body, caller = await read_body(request, SignOutBody), caller_of(request)
        sign_ins = self._threadline.administration(caller.scope).sign_ins
        if body.everywhere:
            await sign_ins.revoke_all(caller.scope.user_id)
        elif caller.session_id is not None:
            await sign_ins.revoke(caller.scope.user_id, caller.session_id)
        response = Response(status_code=204)
        clear_cookie(response, SESSION_COOKIE)
        return response

    async def begin(self, request: Request) -> Response:
        """Sends the browser to the provider. `next` is the path to open afterwards."""
        name, next_path = request.path_params["provider"], safe_path(request.query_params.get("next", "/"))
        provider = self._providers.get(name)
        if provider is None:
            return self._page(request, 404, "There is no such identity provider here.", None, next_path)
        flow = begin_flow(name, next_path, self._threadline.clock.now())
        try:
            url = await provider.authorization_url(flow.state, flow.nonce, flow.verifier)
        except ProviderUnavailable as exc:
            log.warning("identity provider unavailable", extra={"provider": name, "reason": str(exc)})
            return self._page(request, 503, _UNAVAILABLE, name, next_path)
        response = RedirectResponse(url, 303)
        set_cookie(response, flow.cookie_name, pack_flow(flow, provider.settings.client_secret), FLOW_SECONDS)
        return response

    async def complete(self, request: Request) -> Response:
        """Receives the browser back, with `code` and `state`."""
        name, state = request.path_params["provider"], request.query_params.get("state", "")
        provider, sessions = self._providers.get(name), self._sessions
        if provider is None or sessions is None:
            return self._page(request, 404, "There is no such identity provider here.", None, "/")
        cookie = cookie_name_of(state)
        packed = request.cookies.get(cookie, "") if cookie else ""
        flow = unpack_flow(packed, provider.settings.client_secret, name, state, self._threadline.clock.now())
        if cookie is None or flow is None:
            return self._page(request, 400, _EXPIRED, name, "/")
        response = await self._finish(request, sessions, provider, flow)
        # Whatever happened: an attempt is made once.
        clear_cookie(response, cookie)
        return response

    async def _finish(
        self, request: Request, sessions: Sessions, provider: IdentityProvider, flow: SignInFlow
    ) -> Response:
        name, settings = flow.provider, provider.settings
        try:
            code = await self._read_code(request, provider)
            claims = await provider.claims(code, flow.verifier, flow.nonce)
            person = read_person(settings, claims, self._threadline.settings.tenant)
            opened = await sessions.begin(person, name, device_of(request), settings.role)
        except _Cancelled as exc:
            return self._page(request, 400, exc.detail, name, flow.next)
        except (ProviderUnavailable, StoreFailed) as exc:
            log.warning("identity provider unavailable", extra={"provider": name, "reason": str(exc)})
            return self._page(request, 503, _UNAVAILABLE, name, flow.next)
        except SignInRefused as exc:
            log.warning("sign-in refused", extra={"provider": name, "reason": str(exc)})
            return self._page(request, 400, _REFUSED, name, flow.next)
        except NotAdmitted as exc:
            log.warning("sign-in not admitted", extra={"provider": name, "reason": str(exc)})
            return self._page(request, 403, _FORBIDDEN, name, flow.next)
        response = RedirectResponse(flow.next, 303)
        await self._enter(request, response, sessions, opened)
        return response

    async def _read_code(self, request: Request, provider: IdentityProvider) -> str:
        """SignInRefused if the response is another provider's (RFC 9207), ProviderUnavailable."""
        query = request.query_params
        metadata = await provider.metadata()
        issuer = query.get("iss")
        if (issuer is None and metadata.names_issuer) or issuer not in (None, provider.settings.issuer):
            raise SignInRefused("the response names another issuer")
        if "error" in query:
            is_cancelled = query["error"] == "access_denied"
            log.info("sign-in ended by the provider", extra={"reason": query["error"][:100]})
            raise _Cancelled("You cancelled the sign-in." if is_cancelled else _REFUSED)
        if not query.get("code"):
            raise SignInRefused("the response has no code")
        return query["code"]

    async def _enter(self, request: Request, response: Response, sessions: Sessions, opened: OpenedSession) -> None:
        """Sets the cookie, and ends the session that this browser had before."""
        former = session_secret(request)
        if former is not None and not hmac.compare_digest(former.encode(), opened.secret.encode()):
            await sessions.end(former)
        set_cookie(response, SESSION_COOKIE, opened.secret, round(sessions.settings.lifetime.total_seconds()))

    def _require_sessions(self) -> Sessions:
        if self._sessions is None:
            raise Problem(404, "sign_in_off", "nobody signs in here: set `authentication` under [service]")
        return self._sessions

    def _page(self, request: Request, status: int, detail: str, provider: str | None, next_path: str) -> Response:
        root = request.scope.get("root_path", "").removesuffix(_MOUNT)
        again = f"{root}/" if provider is None else f"{root}/sign-in/{provider}?{urlencode({'next': next_path})}"
        text = _PAGE.format(title=_NOT_COMPLETE, detail=escape(detail), again=escape(again), start=escape(f"{root}/"))
        return HTMLResponse(text, status, {"Retry-After": "30"} if status == 503 else None)


class _Cancelled(Exception):
    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
