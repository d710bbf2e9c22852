"""`flightlog cache`: what it prints, what it removes, and what it refuses."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

import flightlog
from flightlog.cli.main import main
from flightlog.core.units import format_bytes
from flightlog.session.cache.contents import stored
from flightlog.session.cache.decorator import cacheable
from flightlog.session.cache.store import About, CacheFolder, Hit, Miss

Captured = pytest.CaptureFixture[str]
NOW = 1_779_249_120.0
DAY = 86_400.0


def key(number: int) -> str:
    return f"{number:02x}" * 32


def keep(
    cache: CacheFolder, number: int, function: str = "model.fit", *, unused_s: float = 0.0, size: int = 100
) -> None:
    """A result of a function, last used so long ago."""
    code = "c" * 64 if number % 2 else "d" * 64
    about = About(function=function, code=code, arguments={"x": key(number), "y": "0" * 64})
    assert cache.put(key(number), b"x" * size, float(number), about).size_bytes
    used = time.time() - unused_s
    os.utime(cache.path(key(number)), (used, used))


def size_of(cache: CacheFolder, *numbers: int) -> str:
    return format_bytes(sum(cache.path(key(number)).stat().st_size for number in numbers))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheFolder:
    monkeypatch.chdir(tmp_path)
    return CacheFolder(clock=lambda: NOW)


def test_no_cache_is_a_clear_error(cache: CacheFolder, capsys: Captured) -> None:
    for args in (["stats"], ["explain", "fit"], ["prune", "--max-bytes", "0"]):
        assert main(["cache", *args]) == 2
        assert capsys.readouterr() == ("", f"flightlog: there is no cache in {cache.folder}\n")


def test_the_folder_is_that_of_the_option_then_the_environment_then_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)

    def asked(*options: str) -> str:
        main(["cache", "stats", *options])
        return capsys.readouterr().err.removeprefix("flightlog: ").strip()

    none = "there is no cache in"
    assert asked() == f"{none} {tmp_path}/.flightlog/cache"
    (tmp_path / "flightlog.yaml").write_text(
        "version: 1\nproject: {name: p, local_cache: '${PLACE:-kept}'}\n"
    )
    assert asked() == f"{none} {tmp_path}/kept"
    monkeypatch.setenv("FLIGHTLOG_CACHE_DIR", "mine")
    assert asked() == f"{none} {tmp_path}/mine"
    assert asked("--cache-dir", "here") == f"{none} {tmp_path}/here"


def test_a_manifest_that_cannot_be_read_is_said_and_the_default_looked_at(
    cache: CacheFolder, capsys: Captured
) -> None:
    keep(cache, 1)
    Path("flightlog.yaml").write_text("version: 1\nproject: {nam: p}\n")
    assert main(["cache", "stats", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert msgspec.json.decode(out)["entries"] == 1
    assert err.startswith("flightlog: flightlog.yaml:2: ")
    assert err.endswith("; looking at .flightlog/cache\n")


def test_a_folder_that_others_can_write_to_fails_loudly(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    cache.folder.chmod(0o770)
    for args in (["stats"], ["explain", "fit"], ["prune", "--max-bytes", "0"]):
        assert main(["cache", *args]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert f"the cache folder {cache.folder} can be written to by others (mode 0770)" in err
    assert cache.path(key(1)).exists()


def test_results_are_counted_by_function(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    keep(cache, 2)
    keep(cache, 3, "model.predict", size=9000)
    cache.path(key(4)).parent.mkdir(parents=True)
    cache.path(key(4)).write_bytes(b"nonsense")
    assert main(["cache", "stats"]) == 0
    fits, predictions = size_of(cache, 1, 2), size_of(cache, 3)
    assert capsys.readouterr().out == (
        f"Cache: {cache.folder}\n"
        f"  Results:       3, {size_of(cache, 1, 2, 3, 4)}\n"
        "  Compute time:  6.0s for all results\n"
        "  Damage:        1 damaged file, 0 unfinished files: flightlog cache prune removes them\n"
        "\n"
        "  Function       Results     Size  Compute time  Versions\n"
        f"  model.predict        1  {predictions}          3.0s         1\n"
        f"  model.fit            2  {fits}          3.0s         2\n"
    )


def test_hits_are_those_the_runs_recorded(cache: CacheFolder, capsys: Captured) -> None:
    @cacheable
    def work(x: int) -> int:
        return x

    with flightlog.record("demo", sample_interval_s=None):
        for x in (1, 2, 1, 1):
            work(x)
    assert main(["cache", "stats", "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    [function] = found.pop("functions")
    assert function.pop("cost_s") == found.pop("cost_s") > 0
    assert function.pop("bytes") == found.pop("bytes") > 0
    assert found == {"folder": str(cache.folder), "entries": 2, "damaged": 0, "leftovers": 0, "hits": 2}
    assert function == {
        "function": "test_cache_command.test_hits_are_those_the_runs_recorded.<locals>.work",
        "entries": 2,
        "codes": 1,
        "hits": 2,
    }


def test_what_is_old_or_too_much_is_pruned_the_longest_unused_first(
    cache: CacheFolder, capsys: Captured
) -> None:
    for number, unused_d in ((1, 40), (2, 3), (3, 2), (4, 1)):
        keep(cache, number, unused_s=unused_d * DAY, size=1000)
    size = cache.path(key(1)).stat().st_size
    limits = ["--older-than", "30d", "--max-bytes", str(2 * size + 10)]
    expected = "".join(f"{key(number)[:12]}  {size_of(cache, number)}  model.fit\n" for number in (1, 2))
    rest = f"2 results, {size_of(cache, 1, 2)}; 2 results, {size_of(cache, 3, 4)} left.\n"
    assert main(["cache", "prune", *limits, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{expected}Would remove {rest}"
    assert cache.path(key(1)).exists()
    assert main(["cache", "prune", *limits]) == 0
    assert capsys.readouterr().out == f"{expected}Removed {rest}"
    assert [cache.path(key(number)).exists() for number in (1, 2, 3, 4)] == [False, False, True, True]


def test_pruning_one_function_leaves_the_others(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    keep(cache, 2, "model.predict")
    assert main(["cache", "prune", "--max-bytes", "0", "--function", "fit"]) == 0
    assert isinstance(cache.lookup(key(1)), Miss)
    assert isinstance(cache.lookup(key(2)), Hit)


def test_pruning_forgets_what_misses_were_explained_with(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    [entry] = stored(cache)
    header = entry.header
    later = msgspec.structs.replace(header.about, arguments={"x": "f" * 64})
    assert cache.lookup(key(9), later).reason == "arguments changed"
    assert main(["cache", "prune", "--max-bytes", "0"]) == 0
    assert cache.lookup(key(9), later).reason == "never seen"
    assert [path for path in cache.folder.rglob("*") if path.is_file()] == []


def test_damaged_and_unfinished_files_are_pruned_in_any_case(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    cache.path(key(2)).parent.mkdir(parents=True)
    cache.path(key(2)).write_bytes(b"nonsense")
    unfinished = cache.path(key(2)).with_name(".ab.1-2.tmp")
    unfinished.write_bytes(b"half")
    os.utime(unfinished, (NOW - DAY, NOW - DAY))
    assert main(["cache", "prune", "--older-than", "30d"]) == 0
    assert [path.name for path in cache.folder.glob("??/??/*")] == [key(1)]


@pytest.mark.parametrize("args", [[], ["--older-than", "30"], ["--max-bytes", "much"]])
def test_pruning_without_a_limit_or_with_a_bad_one_removes_nothing(
    cache: CacheFolder, args: list[str], capsys: Captured
) -> None:
    keep(cache, 1)
    assert main(["cache", "prune", *args]) == 2
    assert capsys.readouterr().err.startswith("flightlog: ")
    assert cache.path(key(1)).exists()


def test_a_function_is_explained_with_why_its_last_result_was_missing(
    cache: CacheFolder, capsys: Captured
) -> None:
    keep(cache, 1)
    asked = About(function="model.fit", code="c" * 64, arguments={"x": "f" * 64, "y": "0" * 64})
    cache.note_miss(key(9), cache.lookup(key(9), asked), asked)
    for name in ("fit", "model.fit"):
        assert main(["cache", "explain", name]) == 0
        assert capsys.readouterr().out == (
            "model.fit\n"
            "  Cached:      1 result, made with 1 version of its code\n"
            "  Last miss:   arguments changed (x), 2026-05-20 03:52:00 UTC\n"
            "    its key:   090909090909\n"
            "    its code:  cccccccccccc\n"
            "\n"
            "  Key           Made                      Size  Took  Code          Arguments\n"
            "  010101010101  2026-05-20 03:52:00 UTC  115 B  1.0s  cccccccccccc  x=010101 y=000000\n"
        )


def test_a_key_is_explained_too_and_as_json(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    keep(cache, 2)
    assert main(["cache", "explain", key(2)[:8], "--format", "json"]) == 0
    [found] = msgspec.json.decode(capsys.readouterr().out)
    assert (found["function"], [entry["key"] for entry in found["entries"]]) == ("model.fit", [key(2)])
    assert (found["last_miss"], found["changed"]) == (None, [])


def test_a_name_that_nothing_goes_by_is_misuse_with_a_hint(cache: CacheFolder, capsys: Captured) -> None:
    keep(cache, 1)
    assert main(["cache", "explain", "fitt"]) == 2
    assert capsys.readouterr().err == (
        f"flightlog: the cache in {cache.folder} knows no function and no key 'fitt'; did you mean 'fit'?\n"
    )


def test_another_folder_can_be_named(cache: CacheFolder, tmp_path: Path, capsys: Captured) -> None:
    keep(CacheFolder(tmp_path / "elsewhere"), 1)
    assert main(["cache", "stats", "--cache-dir", "elsewhere"]) == 0
    assert capsys.readouterr().out.startswith(f"Cache: {tmp_path / 'elsewhere'}\n")


@pytest.mark.parametrize("name", ["stats", "prune", "explain"])
def test_every_sub_command_has_help_with_an_example(name: str, capsys: Captured) -> None:
    assert main(["cache", name, "--help"]) == 0
    assert f"Example: flightlog cache {name}" in capsys.readouterr().out
