"""The cache's files: whole or not there, safe with many at once, and nobody else's."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flightlog.core.errors import UsageError
from flightlog.session.cache import store
from flightlog.session.cache.contents import leftovers, stats, stored
from flightlog.session.cache.store import (
    FORMAT,
    About,
    CacheFolder,
    Hit,
    Miss,
    StoredResult,
    read_header,
)

KEY = "ab12" + "0" * 60
OTHER = "ab12" + "1" * 60
ABOUT = About(function="model.fit", code="c" * 64, arguments={"x": "1" * 64})


@pytest.fixture(autouse=True)
def say_again(monkeypatch):
    monkeypatch.setattr(store, "_said", set())


@pytest.fixture
def cache(tmp_path):
    return CacheFolder(tmp_path / "cache", clock=lambda: 1_779_249_120.0)


def test_what_is_put_is_found_by_its_key(cache):
    assert cache.lookup(KEY) == Miss(reason="never seen")
    assert cache.put(KEY, {"a": None}, 1.5) == StoredResult(size_bytes=20)
    assert cache.lookup(KEY) == Hit(
        value={"a": None}, cost_s=1.5, size_bytes=20, created="2026-05-20T03:52:00.000000Z"
    )
    assert cache.lookup(OTHER) == Miss(reason="never seen")


def test_an_entry_says_what_it_is_in_its_first_line(cache):
    cache.put(KEY, 1, 0.25, ABOUT)
    line, _, payload = cache.path(KEY).read_bytes().partition(b"\n")
    found = msgspec.json.decode(line)
    assert found.pop("sha256") == hashlib.sha256(payload).hexdigest()
    assert found.pop("python") == sys.version.split()[0]
    assert found == {
        "key": KEY,
        "created": "2026-05-20T03:52:00.000000Z",
        "cost_s": 0.25,
        "size": len(payload),
        "format": FORMAT,
        "about": {"function": "model.fit", "code": "c" * 64, "arguments": {"x": "1" * 64}},
        "protocol": 5,
    }
    assert cache.path(KEY) == cache.folder / "ab" / "12" / KEY


def test_the_last_one_put_stays(cache):
    cache.put(KEY, 1, 1.0)
    cache.put(KEY, 2, 2.0)
    assert cache.lookup(KEY).value == 2
    assert len(list(stored(cache))) == 1


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_nobody_else_can_write_to_what_is_made_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        cache = CacheFolder(tmp_path / "deep" / "cache")
        cache.put(KEY, 1, 1.0, ABOUT)
        cache.note_miss(KEY, Miss(reason="never seen"), ABOUT)
    finally:
        os.umask(before)
    made = [cache.folder, *cache.folder.rglob("*")]
    writable = [p for p in made if p.is_dir() and p.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)]
    assert (writable, cache.path(KEY).stat().st_mode & 0o077) == ([], 0)
    assert isinstance(cache.lookup(KEY), Hit)


def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(cache, caplog):
    cache.put(KEY, 1, 1.0)
    cache.folder.chmod(0o777)
    found = cache.lookup(KEY)
    assert found.refused
    assert found.reason == (
        f"the cache folder {cache.folder} can be written to by others (mode 0777): results are unpickled "
        "from there, "
        "which can run code; see who did, then chmod -R go-w"
    )
    assert cache.put(OTHER, 1, 1.0) == StoredResult(problem=found.reason)
    assert not cache.path(OTHER).exists()


def test_a_folder_or_entry_of_another_user_is_refused(cache):
    cache.put(KEY, 1, 1.0)
    owner = cache.folder.stat().st_uid
    if owner == 0:
        os.chown(cache.folder, 4242, -1)
        found, said = (
            cache.lookup(KEY),
            f"the cache folder {cache.folder} belongs to user 4242, not to user 0",
        )
    else:
        found = CacheFolder(cache.folder, user=owner + 1).lookup(KEY)
        said = f"the cache folder {cache.folder} belongs to user {owner}, not to user {owner + 1}"
    assert found.refused
    assert found.reason.startswith(said)


def test_an_entry_that_others_can_write_to_is_refused(cache):
    cache.put(KEY, 1, 1.0)
    cache.path(KEY).chmod(0o620)
    found = cache.lookup(KEY)
    assert found.refused
    assert found.reason.startswith(
        f"the cache entry {cache.path(KEY)} can be written to by others (mode 0620)"
    )


def test_an_entry_that_is_a_link_is_not_followed(cache, tmp_path):
    cache.put(KEY, 1, 1.0)
    cache.path(KEY).rename(tmp_path / "elsewhere")
    cache.path(KEY).symlink_to(tmp_path / "elsewhere")
    assert cache.lookup(KEY).reason == "damaged"


@pytest.mark.parametrize("kind", ["pipe", "socket", "link", "folder"])
def test_what_is_no_file_in_the_place_of_an_entry_is_damaged_and_does_not_block(
    cache, tmp_path, monkeypatch, kind
):
    cache.put(KEY, 1, 1.0)
    path = cache.path(KEY)
    path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("s")
        Path("s").rename(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    assert cache.lookup(KEY) == Miss(reason="damaged", detail=f"{path}: it is no regular file")
    assert stats(cache).damaged == (0 if kind == "folder" else 1)


def test_the_entry_of_another_key_is_no_result(cache):
    cache.put(KEY, 1, 1.0)
    cache.path(OTHER).parent.mkdir(parents=True, exist_ok=True)
    cache.path(OTHER).write_bytes(cache.path(KEY).read_bytes())
    cache.path(OTHER).chmod(0o600)
    assert cache.lookup(OTHER) == Miss(
        reason="damaged", detail=f"{cache.path(OTHER)}: it is the entry of another key"
    )


def test_every_way_of_cutting_an_entry_short_is_a_miss(cache):
    cache.put(KEY, [1, 2], 1.0, ABOUT)
    whole = cache.path(KEY).read_bytes()
    for length in range(len(whole)):
        cache.path(KEY).write_bytes(whole[:length])
        assert cache.lookup(KEY).reason == "damaged"
    cache.path(KEY).write_bytes(whole)
    assert cache.lookup(KEY).value == [1, 2]


def test_every_byte_that_changes_in_the_payload_is_noticed(cache):
    cache.put(KEY, [1, 2], 1.0)
    whole = cache.path(KEY).read_bytes()
    for place in range(whole.index(b"\n") + 1, len(whole)):
        cache.path(KEY).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.lookup(KEY).reason == "damaged"


class Gone:
    pass


def test_a_result_whose_class_is_gone_is_a_miss(cache, monkeypatch):
    cache.put(KEY, Gone(), 1.0)
    monkeypatch.delattr(sys.modules[__name__], "Gone")
    found = cache.lookup(KEY)
    assert found.reason == "damaged"
    assert "AttributeError" in found.detail


def test_an_entry_of_another_format_is_a_miss(cache):
    cache.put(KEY, 1, 1.0)
    data = cache.path(KEY).read_bytes()
    cache.path(KEY).write_bytes(data.replace(b'"format":1', b'"format":2'))
    assert cache.lookup(KEY).detail.endswith("it is of format 2, not 1")


def test_reading_notes_the_use_to_within_an_hour(tmp_path):
    now = [1_000_000.0]
    cache = CacheFolder(tmp_path / "cache", clock=lambda: now[0])
    cache.put(KEY, 1, 1.0)
    os.utime(cache.path(KEY), (now[0], now[0]))
    for moved, used in ((3000, 1_000_000.0), (601, 1_003_601.0), (10, 1_003_601.0)):
        now[0] += moved
        cache.lookup(KEY)
        assert cache.path(KEY).stat().st_mtime == used


def test_a_disk_that_refuses_is_counted_and_said_once(tmp_path, caplog):
    """The limit on the size of files stands in for a full disk: it comes in the middle of a write, too."""
    code = f"""
import resource, logging, sys
from flightlog.session.cache.store import CacheFolder
logging.basicConfig(stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
cache = CacheFolder({str(tmp_path / "cache")!r})
for key in ({KEY!r}, {OTHER!r}):
    print(cache.put(key, b"x" * 200_000, 1.0).size_bytes, cache.lookup(key).reason)
print(cache.not_kept, cache.put({KEY!r}, b"x", 1.0).problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"the cache {tmp_path / 'cache'} takes no results: {os.strerror(errno.EFBIG)}; the program goes on "
        "and makes "
        "them again the next time\nNone never seen\nNone never seen\n2 None\n"
    )
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [KEY]


WRITER = """
import sys
from flightlog.session.cache.store import CacheFolder
cache = CacheFolder(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    number += 1
    cache.put(f"{number % 4:064x}", bytes([number % 256]) * 40_000_000, 1.0)
"""


def test_kill_9_in_the_middle_of_a_write_leaves_no_broken_entry(tmp_path):
    cache = CacheFolder(tmp_path / "cache")
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(cache.folder)], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        before = set(cache.folder.rglob("*.tmp"))
        while not set(cache.folder.rglob("*.tmp")) - before:
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for entry in stored(cache):
            assert read_header(entry.path) == entry.header
            assert isinstance(cache.lookup(entry.path.name), Hit)
    cut_short = list(cache.folder.rglob("*.tmp"))
    assert len(cut_short) >= 1
    assert sorted(leftovers(cache, now=9e9)) == sorted(cut_short)


HAMMER = """
import sys
from flightlog.session.cache.store import CacheFolder, Hit, Miss
from flightlog.session.cache.store import About
cache, me = CacheFolder(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
bad = hits = 0
for number in range(150):
    key = f"{number % 10:064x}"
    about = About(function="f", code="c" * 64, arguments={"x": key})
    found = cache.lookup(key, about)
    if isinstance(found, Hit):
        hits += 1
        bad += found.value != [key] * 1000
    else:
        bad += found.reason not in ("never seen", "arguments changed")
        cache.note_miss(key, found, about)
        cache.put(key, [key] * 1000, 1.0, about)
    if number % 7 == me % 7:
        bad += cache.put(key, [key] * 1000, 1.0, about).problem is not None
print(bad, hits > 0)
"""


def test_eight_processes_share_a_cache_without_locks_and_read_nothing_broken(tmp_path):
    cache = CacheFolder(tmp_path / "cache")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(cache.folder), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.communicate() for child in children] == [("0 True\n", "")] * 8
    assert sorted(entry.path.name for entry in stored(cache)) == [f"{number:064x}" for number in range(10)]
    assert list(cache.folder.rglob("*.tmp")) == []


def test_the_index_explains_misses_and_a_broken_one_only_explains_less(cache):
    other_code = msgspec.structs.replace(ABOUT, code="d" * 64)
    other_call = msgspec.structs.replace(ABOUT, arguments={"x": "2" * 64})
    other_function = msgspec.structs.replace(ABOUT, function="model.predict")
    cache.put(KEY, 1, 1.0, ABOUT)
    asked = (other_code, other_call, other_function)
    assert [cache.lookup(OTHER, about).reason for about in asked] == [
        "code changed",
        "arguments changed",
        "never seen",
    ]
    for file in (cache.folder / "functions").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    assert [cache.lookup(OTHER, about).reason for about in asked] == [
        "never seen",
        "arguments changed",
        "never seen",
    ]


def test_names_of_functions_are_safe_as_names_of_files(cache):
    odd = ["", "../../etc/passwd", "a/b", "x" * 500, "mod.<lambda>", "naïve.f", "\ud800"]
    folders = {cache.index.function_folder(name) for name in odd}
    assert len(folders) == len(odd)
    assert all(folder.parent == cache.folder / "functions" and len(folder.name) < 100 for folder in folders)


def test_the_default_folder_can_be_chosen_for_a_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CacheFolder().folder == tmp_path / ".flightlog" / "cache"
    store.use_folder("elsewhere")
    try:
        assert CacheFolder().folder == tmp_path / "elsewhere"
    finally:
        store.use_folder(None)
    assert CacheFolder().folder == tmp_path / ".flightlog" / "cache"


def test_a_folder_that_is_refused_fails_loudly_for_people(cache):
    from flightlog.session.cache.contents import check

    with pytest.raises(UsageError, match="there is no cache in"):
        check(cache)
    cache.put(KEY, 1, 1.0)
    check(cache)
    Path(cache.folder).chmod(0o722)
    with pytest.raises(UsageError, match="can be written to by others"):
        check(cache)
