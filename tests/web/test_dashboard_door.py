"""The door of the dashboard lets in who may come in, and nobody else."""

from __future__ import annotations

import pytest
from asking import Answer, Inside, ask, behind, open_socket
from hypothesis import given
from hypothesis import strategies as st

from flightlog.web.access import AccessControl

TOKEN = "correct-horse-battery-staple"
PATHS = [
    "/",
    "/run/x",
    "/run/x/report",
    "/compare",
    "/metrics",
    "/health",
    "/favicon.ico",
    "/_nicegui/3/static/nicegui.js",
    "/_nicegui_ws/socket.io/",
    "/nowhere",
]


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_without_the_token_nothing_behind_the_door_is_asked(path, method):
    door, inside = behind(TOKEN)
    assert ask(door, path, method=method).status == 401
    assert inside.asked == []


def test_without_the_token_no_socket_is_opened():
    door, inside = behind(TOKEN)
    assert open_socket(door).status == 1008
    assert open_socket(door, query=f"token={TOKEN}").status == 1008
    assert inside.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer \xe9"},
        {"cookie": f"flightlog-8420={TOKEN}"},
        {"cookie": "flightlog-8420="},
        {"cookie": "=;;flightlog-8420"},
        {"cookie": f"flightlog-8421={TOKEN}"},
    ],
)
def test_a_wrong_token_is_no_token(headers):
    door, inside = behind(TOKEN)
    assert ask(door, **headers).status == 401
    assert open_socket(door, **headers).status == 1008
    assert ask(door, query="token=wrong").status == 401
    assert inside.asked == []


@given(st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=40))
def test_whatever_is_brought_instead_of_the_token_is_refused(brought):
    door, _ = behind(TOKEN)
    assert ask(door, authorization=f"Bearer {brought}", cookie=f"flightlog-8420={brought}").status == 401


def test_the_token_in_a_header_opens_pages_and_sockets():
    door, inside = behind(TOKEN)
    assert ask(door, "/metrics", authorization=f"Bearer {TOKEN}").body == b"inside"
    assert open_socket(door, authorization=f"bearer {TOKEN}").status == 101
    assert inside.asked == ["/metrics", "/_nicegui_ws/socket.io/"]


def test_the_token_in_an_address_becomes_a_cookie_and_leaves_the_address():
    door, inside = behind(TOKEN)
    led = ask(door, "/run/a b", query=f"status=failed&token={TOKEN}")
    assert (led.status, led.headers["location"]) == (303, "/run/a%20b?status=failed")
    assert led.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert TOKEN not in led.headers["set-cookie"]
    assert inside.asked == []
    assert ask(door, cookie=cookie_of(led)).body == b"inside"
    assert open_socket(door, cookie=f"other=1; {cookie_of(led)}").status == 101


def test_the_token_leaves_the_address_of_who_is_known_already():
    door, inside = behind(TOKEN)
    cookie = cookie_of(ask(door, query=f"token={TOKEN}"))
    led = ask(door, "/trends", query=f"token={TOKEN}", cookie=cookie)
    assert (led.status, led.headers["location"], inside.asked) == (303, "/trends", [])


@pytest.mark.parametrize("other", ['{"a": [1, 2]}', "x=[1]; y={}", 'broken="', "a b=c", "\xe9=\xe9"])
def test_cookies_that_other_servers_of_the_machine_gave_do_not_hide_the_own(other):
    door, _ = behind(TOKEN)
    cookie = cookie_of(ask(door, query=f"token={TOKEN}"))
    assert ask(door, cookie=f"{other}; {cookie}").body == b"inside"


def test_dashboards_behind_tunnels_have_cookies_by_the_ports_that_the_browser_knows():
    door, _ = behind(TOKEN)
    names = [
        cookie_of(ask(door, query=f"token={TOKEN}", host=host)).partition("=")[0]
        for host in ("localhost:9001", "localhost:9002", "localhost", "localhost:x")
    ]
    assert names == ["flightlog-9001", "flightlog-9002", "flightlog-8420", "flightlog-8420"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_site_with_the_token_leads_on_by_a_page_of_our_own(site):
    door, inside = behind(TOKEN)
    led = ask(door, "/run/x", query=f"token={TOKEN}", sec_fetch_site=site, sec_fetch_mode="navigate")
    assert (led.status, led.headers["refresh"], inside.asked) == (200, "0;url=/run/x", [])
    assert ask(door, cookie=cookie_of(led)).body == b"inside"


def test_the_cookie_of_another_token_is_refused():
    old, _ = behind("an-older-token-that-was-changed")
    led = ask(old, query="token=an-older-token-that-was-changed")
    door, _ = behind(TOKEN)
    assert ask(door, cookie=cookie_of(led)).status == 401


def test_a_path_that_looks_like_a_host_leads_to_this_one():
    door, _ = behind(TOKEN)
    assert ask(door, "//evil.example/x", query=f"token={TOKEN}").headers["location"] == "/evil.example/x"
    assert ask(door, "/\\evil.example", query=f"token={TOKEN}").headers["location"] == "/evil.example"


def test_a_form_of_another_method_cannot_bring_the_token_in_its_address():
    door, _ = behind(TOKEN)
    assert ask(door, query=f"token={TOKEN}", method="POST").status == 401


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8420", "localhost:8420", "LOCALHOST", "[::1]:8420", "127.0.0.2", "localhost."]
)
def test_without_a_token_the_machine_is_answered_under_its_own_names(host):
    door, _ = behind()
    assert ask(door, host=host).body == b"inside"
    assert open_socket(door, host=host).status == 101


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8420",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.5",
        "",
        "[",
        "10.0.0.1:x",
        "evil.example@127.0.0.1",
        "127.0.0.1, evil.example",
        "0.0.0.0:8420",
        "127.1",
    ],
)
def test_without_a_token_a_name_that_somebody_made_point_here_is_refused(host):
    door, inside = behind()
    assert ask(door, host=host).status == 403
    assert open_socket(door, host=host).status == 1008
    assert inside.asked == []


def test_with_a_token_any_name_of_the_machine_will_do():
    door, _ = behind(TOKEN, host="0.0.0.0")
    assert ask(door, host="node-7.cluster:8420", authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:9999",
        "null",
        "http://[",
        "file://",
        "http://127.0.0.1.evil.example:8420",
    ],
)
@pytest.mark.parametrize("token", [None, TOKEN])
def test_what_a_page_of_another_origin_asks_is_refused(origin, token):
    door, inside = behind(token)
    brought = {"authorization": f"Bearer {TOKEN}"} if token else {}
    assert ask(door, method="POST", origin=origin, **brought).status == 403
    assert ask(door, origin=origin, **brought).status == 403
    assert open_socket(door, origin=origin, **brought).status == 1008
    assert inside.asked == []


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("runs.example", "https://runs.example"),
        ("runs.example:80", "http://runs.example"),
    ],
)
def test_what_its_own_pages_ask_is_answered(host, origin):
    door, _ = behind(TOKEN)
    assert open_socket(door, host=host, origin=origin, authorization=f"Bearer {TOKEN}").status == 101


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_an_image_or_a_script_of_another_page_is_refused_and_a_link_is_followed(site):
    door, inside = behind()
    assert ask(door, "/compare", sec_fetch_site=site, sec_fetch_mode="no-cors").status == 403
    assert inside.asked == []
    assert ask(door, "/compare", sec_fetch_site=site, sec_fetch_mode="navigate").status == 200
    assert ask(door, "/compare", sec_fetch_site="same-origin", sec_fetch_mode="no-cors").status == 200


def test_no_answer_is_kept_by_a_browser_unless_it_says_for_how_long():
    door, _ = behind(TOKEN)
    known = {"authorization": f"Bearer {TOKEN}"}
    kept = AccessControl(Inside(cache_control="public, max-age=60"), token=TOKEN)
    answers = [ask(door), ask(door, query=f"token={TOKEN}"), ask(door, **known), ask(kept, **known)]
    assert [answer.headers["cache-control"] for answer in answers] == ["no-store"] * 3 + [
        "public, max-age=60"
    ]


def test_every_answer_says_what_a_browser_may_do_and_is_shared_with_nobody():
    door, _ = behind(TOKEN)
    for answer in (ask(door), ask(door, query=f"token={TOKEN}"), ask(door, authorization=f"Bearer {TOKEN}")):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "script-src-attr 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_a_refusal_says_in_plain_words_what_to_do_and_nothing_of_the_request():
    door, _ = behind(TOKEN)
    answer = ask(door, "/<script>", query="token=<script>")
    assert b"flightlog ui" in answer.body
    assert b"<script" not in answer.body
    assert answer.headers["www-authenticate"] == 'Bearer realm="flightlog"'
