"""HTTP to platforms: only to their own hosts, and what is known of a request that failed."""

from __future__ import annotations

import pytest

from threadline.core.errors import SettingsInvalid
from threadline.core.platform_messages import Ambiguous, HttpRequest, HttpResponse, Transient
from threadline.platform_http import PlatformHttp
from threadline.testing.platforms.loopback import Asked, LoopbackServer, Told


class TestSending:
    def test_a_stand_in_is_on_this_machine(self) -> None:
        for wrong in ("http://10.0.0.1/api", "https://example.org", "http://127.0.0.1.example.org/"):
            with pytest.raises(SettingsInvalid):
                PlatformHttp([wrong])

    @pytest.mark.parametrize(
        "url", ["http://slack.com/api", "https://example.org/", "http://127.0.0.1:9/", "https://slack.com.evil.org/"]
    )
    async def test_nothing_is_sent_to_anybody_but_a_platform(self, url: str) -> None:
        answered = await PlatformHttp().send(HttpRequest("POST", url, {}))
        assert isinstance(answered, Transient)
        assert "address" in answered.reason

    async def test_whether_something_was_sent_is_told_apart(self) -> None:
        async def hang_up(asked: Asked) -> Told:
            raise ConnectionResetError

        server = LoopbackServer(hang_up)
        await server.start()
        door = PlatformHttp([server.url])
        request = HttpRequest("POST", f"{server.url}/secret-in-the-path", {"authorization": "Bearer secret"}, b"{}")
        broken = await door.send(request)
        await server.close()
        unreachable = await door.send(request)
        assert isinstance(broken, Ambiguous)
        assert isinstance(unreachable, Transient)
        assert "secret" not in broken.reason + unreachable.reason

    async def test_an_answer_is_given_whatever_its_status(self) -> None:
        async def refuse(asked: Asked) -> Told:
            return Told(418, b"short and stout", {"retry-after": "7"})

        server = LoopbackServer(refuse)
        await server.start()
        answered = await PlatformHttp([server.url]).send(HttpRequest("POST", server.url, {}, b"{}"))
        await server.close()
        assert isinstance(answered, HttpResponse)
        assert (answered.status, answered.body, answered.headers["retry-after"]) == (418, b"short and stout", "7")
