"""`@cacheable`: what is used again and what is not, and what is recorded of it."""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import flightlog
from flightlog.core.errors import UsageError
from flightlog.session.cache import store
from flightlog.session.cache.decorator import CacheFolder, CacheOptions, cache_options, cacheable, cached_call
from flightlog.store.run import Run

CALLS: list[object] = []
FACTOR = 10


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache and a place of its own for each test."""
    CALLS.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "_said", set())
    return tmp_path / ".flightlog" / "cache"


def called(*what):
    """Note a call where no global of the function changes by it."""
    sys.modules[__name__].__dict__["CALLS"].append(what)


def recorded(work):
    """What a piece of work gives, and the lookups that were recorded of it."""
    with flightlog.record("demo", sample_interval_s=None) as run:
        value = work()
    return value, list(Run(run.path).events("cache"))


def lookups(work):
    return [(event.task, event.result, event.reason) for event in recorded(work)[1]]


@cacheable
def sub(a, b=1):
    called("sub", a, b)
    return a - b


@cacheable
def nothing(x):
    called("nothing", x)


@cacheable
def fails(x):
    called("fails", x)
    raise ValueError(x)


@cacheable
def rest(first, *more, **named):
    called("rest")
    return first, more, named


@cacheable(ignore=["verbose"])
def loud(x, verbose=False):
    called("loud", x)
    return x


@cacheable
async def later(x):
    called("later", x)
    await asyncio.sleep(0)
    return x + 1


@cacheable
def numbers(x):
    yield x


@cacheable
def unpicklable(x):
    return lambda: x


@dataclass
class Model:
    rate: float

    @cacheable
    def fit(self, x):
        called("fit", self.rate, x)
        return self.rate * x

    @classmethod
    @cacheable
    def name(cls, x):
        called("name", x)
        return cls.__name__ + x

    def __call__(self, x):
        return self.rate + x


def test_a_result_is_computed_once_and_then_read():
    assert (sub(5, 3), sub(5, 3), sub(5, b=3), sub(a=5, b=3)) == (2, 2, 2, 2)
    assert CALLS == [("sub", 5, 3)]


def test_order_types_and_names_of_arguments_count():
    assert (sub(5, 3), sub(3, 5)) == (2, -2)
    calls = [sub.cache_key(*args) for args in ((5, 3), (3, 5), (5, 3.0), (5.0, 3), (5, True), ("5", 3), (5,))]
    assert len(set(calls)) == len(calls)
    assert sub.cache_key(5) == sub.cache_key(5, 1) == sub.cache_key(b=1, a=5)
    assert {len(key) for key in calls} == {64}


def test_arguments_beyond_the_named_ones_count():
    assert rest(1, 2, a=3) == rest(1, 2, a=3) == (1, (2,), {"a": 3})
    keys = {
        rest.cache_key(1, 2),
        rest.cache_key(1, (2,)),
        rest.cache_key(1, more=2),
        rest.cache_key(1),
        rest.cache_key((1, 2)),
    }
    assert len(keys) == 5
    assert len(CALLS) == 1


def test_the_order_of_keys_counts_where_the_function_can_see_it():
    assert rest.cache_key(1, a=1, b=2) != rest.cache_key(1, b=2, a=1)
    assert nothing.cache_key({"a": 1, "b": 2}) != nothing.cache_key({"b": 2, "a": 1})


def test_the_code_of_a_function_with_a_cache_of_its_own_counts_as_an_argument_and_as_a_method():
    makers = [
        variant(f"""
import functools
@functools.lru_cache
def go(x): return {number}
class A:
    @functools.lru_cache
    def go(self): return {number}
f = lambda: (go, A())
""")
        for number in (1, 2)
    ]
    (go, a), (other_go, other_a) = (make() for make in makers)
    assert nothing.cache_key(go) != nothing.cache_key(other_go)
    assert nothing.cache_key(a) != nothing.cache_key(other_a)


def test_none_is_a_result_like_any_other():
    assert (nothing(1), nothing(1)) == (None, None)
    assert CALLS == [("nothing", 1)]


def test_an_exception_is_raised_each_time_and_never_kept():
    def work():
        for _ in range(2):
            with pytest.raises(ValueError, match="7"):
                fails(7)

    assert lookups(work) == [("fails", "miss", "never seen")] * 2
    assert CALLS == [("fails", 7)] * 2


def test_each_lookup_is_recorded_with_what_it_saved():
    with flightlog.record("demo", sample_interval_s=None) as run:
        with run.task("work") as task:
            sub(5, 3)
            with flightlog.span("inner") as span:
                sub(5, 3)
    miss, hit = Run(run.path).events("cache")
    key = sub.cache_key(5, 3)
    assert (miss.task, miss.result, miss.key, miss.reason) == ("sub", "miss", key, "never seen")
    assert (hit.task, hit.result, hit.key, hit.reason) == ("sub", "hit", key, None)
    assert (miss.task_id, miss.span_id) == (task.span_id, task.span_id)
    assert (hit.task_id, hit.span_id) == (task.span_id, span.span_id)
    assert miss.saved_s is None
    assert hit.saved_s > 0
    assert hit.duration_s > 0
    assert hit.size_bytes == miss.size_bytes == len(pickle.dumps(2, protocol=5))
    assert hit.timestamp > miss.timestamp


def test_hits_misses_and_bypasses_are_counted_apart():
    events = recorded(lambda: (sub(1), sub(1), sub(2), loud(object())))[1]
    assert Counter(event.result for event in events) == {"hit": 1, "miss": 2, "bypass": 1}
    assert [event.reason for event in events if event.result == "miss"] == ["never seen", "arguments changed"]


def variant(source: str, **names: object):
    """The function `f` of a source, as if the module had been edited."""
    space = {"__name__": __name__, "cacheable": cacheable, **names}
    exec(compile(source, __file__, "exec"), space)
    return space["f"]


def test_a_miss_says_what_has_changed():
    first = variant("@cacheable\ndef f(x): return x + 1")
    edited = variant("@cacheable\ndef f(x): return x + 2")
    found = lookups(lambda: (first(1), first(2), edited(1), edited(3), edited(2), first(1)))
    assert [reason for _, _, reason in found] == [
        "never seen",
        "arguments changed",
        "code changed",
        "arguments changed",
        "code changed",
        None,
    ]


def test_a_version_is_part_of_the_code():
    found = lookups(
        lambda: [variant(f"@cacheable(version={v})\ndef f(x): return x")(1) for v in ("1", "1", "2", "'2'")]
    )
    assert [reason for _, _, reason in found] == ["never seen", None, "code changed", "code changed"]


def test_a_global_that_changes_makes_old_results_miss():
    f = variant("@cacheable\ndef f(x): return x * K", K=10)
    assert f(2) == 20
    f.uncached.__globals__["K"] = 11
    assert f(2) == 22
    f.uncached.__globals__["K"] = 10
    assert lookups(lambda: f(2)) == [("f", "hit", None)]


def test_the_class_of_an_argument_counts_by_its_code():
    def model(body):
        return variant(
            f"class M:\n  def go(self): return {body}\n@cacheable\ndef f(m): return m.go()\nf.M = M"
        )

    one, other = model("1"), model("2")
    assert lookups(lambda: (one(one.M()), one(one.M()), other(other.M()))) == [
        ("f", "miss", "never seen"),
        ("f", "hit", None),
        ("f", "miss", "code changed"),
    ]
    assert other(other.M()) == 2


def test_ignored_arguments_do_not_count():
    assert (loud(1), loud(1, verbose=True), loud(1, True)) == (1, 1, 1)
    assert CALLS == [("loud", 1)]


def test_a_result_expires():
    now = [1e9]
    store = CacheFolder("results", clock=lambda: now[0])
    f = variant("@cacheable(ttl='1h', store=store)\ndef f(x): return x", store=store)
    f(1)
    now[0] += 3599
    assert lookups(lambda: f(1)) == [("f", "hit", None)]
    now[0] += 2
    assert lookups(lambda: (f(1), f(1))) == [("f", "miss", "expired"), ("f", "hit", None)]


def test_results_are_made_anew_when_asked_for():
    plain = variant("@cacheable\ndef f(x): return x")
    anew = variant("@cacheable(recompute=True)\ndef f(x): return x")
    assert lookups(lambda: (plain(1), anew(1), plain(1))) == [
        ("f", "miss", "never seen"),
        ("f", "miss", "recompute asked for"),
        ("f", "hit", None),
    ]


def test_a_damaged_result_is_made_again_and_put_in_its_place(folder):
    sub(5, 3)
    path = CacheFolder(folder).path(sub.cache_key(5, 3))
    for damage in (
        b"",
        b"nonsense\n",
        path.read_bytes()[:-1],
        path.read_bytes() + b"x",
        path.read_bytes()[:-2] + b"xx",
    ):
        path.write_bytes(damage)
        assert lookups(lambda: (sub(5, 3), sub(5, 3))) == [("sub", "miss", "damaged"), ("sub", "hit", None)]


def test_an_argument_without_a_stable_value_is_a_bypass_with_the_reason():
    held = object()
    value, events = recorded(lambda: (loud(held), loud([held])))
    assert value == (held, [held])
    assert [(event.result, event.key, event.reason) for event in events] == [
        ("bypass", None, "argument x of type object has no stable value"),
        ("bypass", None, "argument x of type list has no stable value: it holds an object without a value"),
    ]
    with pytest.raises(UsageError, match="argument x of type object has no stable value"):
        loud.cache_key(held)


def test_a_result_that_cannot_be_kept_is_returned_and_is_a_bypass_with_the_reason():
    value, events = recorded(lambda: unpicklable(3))
    assert value() == 3
    [event] = events
    assert (event.result, event.size_bytes) == ("bypass", None)
    assert event.reason.startswith("result of type function cannot be kept (")
    value, events = recorded(lambda: list(numbers(3)))
    assert value == [3]
    assert [(event.result, event.reason) for event in events] == [("bypass", "a generator cannot be kept")]


def test_a_coroutine_function_is_awaited_and_its_result_kept():
    async def work():
        return await later(1), await later(1)

    assert lookups(lambda: asyncio.run(work())) == [("later", "miss", "never seen"), ("later", "hit", None)]
    assert CALLS == [("later", 1)]


def test_a_methods_object_is_an_argument():
    assert [Model(2.0).fit(3), Model(2.0).fit(3), Model(4.0).fit(3)] == [6.0, 6.0, 12.0]
    assert CALLS == [("fit", 2.0, 3), ("fit", 4.0, 3)]
    assert (Model.name("a"), Model.name("a")) == ("Modela", "Modela")
    assert CALLS[2:] == [("name", "a")]


def test_what_is_returned_is_nobody_elses():
    f = variant("@cacheable\ndef f(x): return [x]")
    f(1).append(2)
    f(1).append(3)
    assert f(1) == [1]


def test_a_wrong_call_raises_what_the_function_raises():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        sub()


def test_a_function_says_what_it_is():
    assert (sub.__name__, sub.uncached(5, 3), CALLS) == ("sub", 2, [("sub", 5, 3)])
    assert sub.cache_options == CacheOptions()


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: cacheable(ignore=["nope"])(lambda x: x), "has no argument 'nope' to ignore (it has x)"),
        (lambda: cacheable(ignore="x"), "give a list of names, as ignore=['x']"),
        (lambda: cacheable(ttl=0), "ttl=0 is no time for a result to live"),
        (lambda: cacheable(ttl="soon"), "age 'soon' is not understood"),
        (lambda: cacheable(files="name"), "files='name' is neither 'content' nor 'path'"),
        (lambda: cacheable(version=1.5), "version=1.5 is neither a text nor a whole number"),
        (lambda: cacheable(staticmethod(len)), "put @cacheable under @staticmethod"),
        (lambda: cacheable(int), "@cacheable is for functions"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(use, said):
    with pytest.raises(UsageError) as raised:
        use()
    assert said in str(raised.value)


def test_a_time_to_live_can_be_written_in_three_ways():
    assert {cache_options(ttl=ttl).ttl_s for ttl in ("1h", 3600, timedelta(hours=1))} == {3600.0}


def test_files_count_by_content_or_by_path(tmp_path):
    file = tmp_path / "data.txt"
    file.write_text("1")
    f = variant("@cacheable\ndef f(path): return path.read_text()")
    by_path = variant("@cacheable(files='path')\ndef f(path): return path.read_text()")
    assert (f(file), by_path(file)) == ("1", "1")
    file.write_text("2")
    assert (f(file), by_path(file)) == ("2", "1")


def plain(x, factor=1):
    return x * factor


def test_a_call_can_be_looked_up_without_a_decorator(tmp_path):
    cache = CacheFolder(tmp_path / "results")
    value, lookup = cached_call(plain, (3,), {"factor": 2}, cache_options(version=1), cache)
    assert (value, lookup.task, lookup.result, lookup.reason) == (6, "plain", "miss", "never seen")
    value, again = cached_call(
        plain, (), {"x": 3, "factor": 2}, cache_options(version=1), pickle.loads(pickle.dumps(cache))
    )
    assert (value, again.result, again.key) == (6, "hit", lookup.key)
    assert again.saved_s is not None


def test_partials_methods_and_callables_are_looked_up_as_what_they_call(tmp_path):
    cache = CacheFolder(tmp_path / "results")
    ways = [
        (functools.partial(plain, factor=2), (3,)),
        (plain, (3, 2)),
        (Model(2.0).fit, (3,)),
        (Model(2.0), (3,)),
        (Model.name, ("a",)),
        (max, (1, 2)),
    ]
    first = [cached_call(function, args, {}, CacheOptions(), cache) for function, args in ways]
    again = [cached_call(function, args, {}, CacheOptions(), cache) for function, args in ways]
    assert [value for value, _ in first] == [value for value, _ in again] == [6, 6, 6.0, 5.0, "Modela", 2]
    assert [lookup.result for _, lookup in first] == ["miss", "hit", "miss", "miss", "miss", "miss"]
    assert [lookup.result for _, lookup in again] == ["hit"] * 6


def test_a_full_or_broken_disk_costs_the_result_and_not_the_run(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    store = CacheFolder(tmp_path / "file" / "cache")
    f = variant("@cacheable(store=store)\ndef f(x): return x", store=store)
    with flightlog.record("demo", sample_interval_s=None) as run:
        assert [f(1), f(1), f(2)] == [1, 1, 2]
        counted = run.recorder.counts["cache_results_not_kept"]
    assert [(event.result, event.size_bytes) for event in Run(run.path).events("cache")] == [
        ("miss", None)
    ] * 3
    assert (store.not_kept, counted) == (3, 3)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"the cache {store.folder} takes no results"
    ]


def test_a_folder_that_others_can_write_to_is_a_bypass_and_a_warning_once(folder, caplog):
    sub(5, 3)
    folder.chmod(0o775)
    value, events = recorded(lambda: (sub(5, 3), sub(5, 3)))
    assert value == (2, 2)
    assert [event.result for event in events] == ["bypass", "bypass"]
    assert f"the cache folder {folder} can be written to by others (mode 0775)" in events[0].reason
    assert len(caplog.records) == 1
    folder.chmod(0o755)
    assert lookups(lambda: sub(5, 3)) == [("sub", "hit", None)]


SCRIPT = """
import sys
import flightlog
from flightlog.session.cache.decorator import cacheable

WEIGHTS = {"b": 2, "a": 1}

def scale(x):
    return sum(WEIGHTS.values()) * x

@cacheable
def work(x, tags=frozenset({"p", "q"})):
    return scale(x)

if __name__ == "__main__":
    with flightlog.record("script", sample_interval_s=None):
        print(work(3), work.cache_key(3))
"""


def test_another_process_on_another_day_with_another_hash_seed_hits(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    outputs = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "script.py"], env=env, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    runs = sorted(Path(".flightlog/runs").iterdir(), key=lambda path: path.stat().st_mtime)
    found = [event.result for path in runs for event in Run(path).events("cache")]
    assert sorted(found) == ["hit", "hit", "miss"]


def test_lookups_in_other_processes_are_recorded_in_the_run(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with flightlog.record("demo", sample_interval_s=None) as run:
        for _ in range(2):
            subprocess.run([sys.executable, "-c", "import script; script.work(3)"], check=True)
    events = sorted(Run(run.path).events("cache"), key=lambda event: event.timestamp)
    assert [(event.task, event.result) for event in events] == [("work", "miss"), ("work", "hit")]


def test_without_a_run_results_are_kept_all_the_same(folder):
    assert (sub(5, 3), sub(5, 3)) == (2, 2)
    assert len(CALLS) == 1
    assert not folder.with_name("runs").exists()


def test_a_time_that_is_ignored_is_no_part_of_the_key():
    @cacheable(ignore=["at"])
    def when(region, at):
        return region

    assert lookups(lambda: [when(1, time.time() + n) for n in range(2)]) == [
        ("when", "miss", "never seen"),
        ("when", "hit", None),
    ]


def test_a_miss_is_recorded_with_what_computing_took():
    @cacheable
    def slow(number):
        time.sleep(0.05)
        return number

    _, [miss, hit] = recorded(lambda: [slow(1), slow(1)])
    assert 0.05 <= miss.computed_s == hit.saved_s
    assert hit.computed_s is None
