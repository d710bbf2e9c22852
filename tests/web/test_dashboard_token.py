"""The dashboard's access token: always there, private, and the same after a restart."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from builders.runs import make_run
from dashboards import dashboard, status_of

from flightlog.cli import ui as command
from flightlog.cli.main import main
from flightlog.core.errors import UsageError
from flightlog.web.access import FILE, Token, token_for
from flightlog.web.serving import ServerAddress

TOKEN = "a-token-that-is-long-enough"


def kept(folder: Path) -> Token:
    return token_for(None, environ={"XDG_STATE_HOME": str(folder)})


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):04o}"


def test_the_token_is_made_once_and_kept_where_only_the_user_can_read_it(tmp_path):
    before = os.umask(0)
    try:
        first, second = kept(tmp_path), kept(tmp_path)
    finally:
        os.umask(before)
    file = tmp_path / "flightlog" / FILE
    assert first == second == Token(value=file.read_text().strip())
    assert len(first.value or "") >= 32
    assert (mode(file), mode(file.parent)) == ("0600", "0700")
    assert os.listdir(file.parent) == [FILE]


def test_users_get_different_tokens(tmp_path):
    assert kept(tmp_path / "a").value != kept(tmp_path / "b").value


@pytest.mark.parametrize("state", ["", "not/absolute"])
def test_without_a_state_folder_the_token_is_kept_below_the_home_folder(tmp_path, state):
    found = token_for(None, environ={"HOME": str(tmp_path), "XDG_STATE_HOME": state})
    assert found.value == (tmp_path / ".local/state/flightlog" / FILE).read_text().strip()


def test_a_token_of_the_users_own_in_the_file_is_used(tmp_path):
    kept(tmp_path)
    (tmp_path / "flightlog" / FILE).write_text(TOKEN)
    assert kept(tmp_path) == Token(value=TOKEN)


def readable_by_others(file: Path) -> None:
    file.chmod(0o644)


def a_link(file: Path) -> None:
    elsewhere = file.with_name("elsewhere")
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def no_token(file: Path) -> None:
    file.write_bytes(b"\xff\x00&token=1 and much more\n" * 1000)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (readable_by_others, "could be read by others (mode 0644)"),
        (a_link, "was a link"),
        (a_fifo, "was not a regular file"),
        (empty, "contained no token"),
        (no_token, "contained no token"),
    ],
)
def test_a_token_that_others_may_know_is_replaced_and_that_is_said(tmp_path, spoil, reason):
    first = kept(tmp_path)
    file = tmp_path / "flightlog" / FILE
    spoil(file)
    second, third = kept(tmp_path), kept(tmp_path)
    assert second.value not in {first.value, None, ""}
    assert second.note == f"a new token was made, old links no longer work: {file} {reason}"
    assert third == Token(value=second.value)
    assert mode(file) == "0600"


def test_a_folder_that_others_can_read_is_closed_to_them(tmp_path):
    (tmp_path / "flightlog").mkdir(mode=0o755)
    kept(tmp_path)
    assert mode(tmp_path / "flightlog") == "0700"


def test_where_no_token_can_be_kept_there_is_one_all_the_same_and_that_is_said(tmp_path):
    (tmp_path / "flightlog").write_text("a file where the folder should be")
    first, second = kept(tmp_path), kept(tmp_path)
    assert first.value != second.value
    assert first.note == "the token could not be stored (File exists): the next start has another one"


def test_a_token_that_is_given_is_the_token_here_and_elsewhere():
    assert [token_for(TOKEN, loopback=here).value for here in (True, False)] == [TOKEN, TOKEN]


@pytest.mark.parametrize(
    "token",
    ["", "short", "with a blank in it, and long", "ümlaut-and-long-enough-too", "a&b=c-and-long-enough"],
)
def test_a_token_that_could_be_guessed_or_cannot_stand_in_an_address_is_refused(token):
    with pytest.raises(UsageError, match="--token"):
        token_for(token)


def test_the_token_can_be_switched_off_on_this_machine_only():
    assert token_for(None, none=True).value is None
    with pytest.raises(UsageError, match="--no-token works on this machine only"):
        token_for(None, none=True, loopback=False)
    with pytest.raises(UsageError, match="contradict each other"):
        token_for(TOKEN, none=True)


def test_a_bad_combination_is_one_line_and_no_traceback(capsys):
    assert main(["ui", "--no-token", "--host", "0.0.0.0"]) == 2
    assert capsys.readouterr().err == (
        "flightlog: --no-token works on this machine only (127.0.0.1): with another --host, every machine "
        "on the network "
        "could read the runs\n"
    )


def test_on_this_machine_every_request_needs_the_token_in_the_printed_link(tmp_path):
    make_run(tmp_path)
    with dashboard(tmp_path) as (_, link):
        bare, _, query = link.partition("?")
        paths = ("", "trends", "metrics", "health", "runs.json", "_nicegui/none.js")
        assert {status_of(f"{bare}{path}") for path in paths} == {401}
        assert status_of(bare, Authorization=f"Bearer {parse_qs(query)['token'][0]}") == 200
    assert kept(Path(f"{tmp_path}-state")) == Token(value=parse_qs(query)["token"][0])


def test_a_browser_is_started_with_a_private_page_and_without_the_token(tmp_path, monkeypatch, capsys):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command._browse(ServerAddress(host="127.0.0.1", port=8420, token=TOKEN))
    page = tmp_path / "flightlog" / "open-dashboard.html"
    assert opened == [page.as_uri()]
    assert f"url=http://127.0.0.1:8420/?token={TOKEN}" in page.read_text()
    assert mode(page) == "0600"
    assert capsys.readouterr().err == f"flightlog: {command._OPENED}\n"
