"""Objects whose own code raises, handed to every entry point: the program never sees it, and the run says
what came."""

from __future__ import annotations

import collections
import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.runs import finished
from django.utils.functional import SimpleLazyObject, lazy

import flightlog
from flightlog.events import Event, define_event
from flightlog.record.context import active_runs
from flightlog.record.span import current
from flightlog.store.run import Run


class Ending(BaseException):
    """What no `except Exception` catches."""


def no_connection() -> Any:
    raise ConnectionError("the database is gone")


def endless() -> Any:
    return endless()


def leave() -> Any:
    sys.exit(3)


def stop() -> Any:
    raise KeyboardInterrupt


def end() -> Any:
    raise Ending


RAISING: list[Callable[[], Any]] = [no_connection, endless, leave, stop, end]

METHODS = [
    "__repr__",
    "__str__",
    "__len__",
    "__eq__",
    "__ne__",
    "__lt__",
    "__ge__",
    "__hash__",
    "__float__",
    "__int__",
    "__index__",
    "__bool__",
    "__iter__",
    "__next__",
    "__contains__",
    "__getitem__",
    "__getattr__",
    "__getattribute__",
    "__fspath__",
    "__format__",
    "__sub__",
    "__neg__",
    "__call__",
    "__copy__",
    "__reduce_ex__",
    "__await__",
    "__enter__",
    "keys",
    "items",
    "values",
    "get",
    "isoformat",
]
PROPERTIES = ["__class__", "__dict__", "__name__", "__module__", "__wrapped__", "shape", "dtype", "__code__"]


def raising(raise_it: Callable[[], Any], *names: str, base: type = object) -> Any:
    """An object of which each of these methods and properties raises."""

    def body(namespace: dict[str, Any]) -> None:
        for name in names:
            if name in PROPERTIES:
                namespace[name] = property(lambda _self: raise_it())
            else:
                namespace[name] = lambda *_args, **_kwargs: raise_it()

    import types

    return types.new_class("Raising", (base,), exec_body=body)


class Rude(type):
    """A class of classes that answers nothing."""

    def _refuse(self, *_args: Any) -> Any:
        raise RuntimeError("ask somebody else")

    __instancecheck__ = __subclasscheck__ = __eq__ = __hash__ = __repr__ = __iter__ = __getattribute__ = (
        _refuse  # type: ignore[assignment]
    )
    __name__ = __mro__ = __dict__ = property(_refuse)  # type: ignore[assignment]


class OfRude(metaclass=Rude):
    pass


class Colour(enum.Enum):
    RED = 1

    @property
    def name(self) -> str:
        raise RuntimeError("no name")


class Changing(Mapping[str, int]):
    """A mapping that is another one whenever it is read."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["gone"])

    def __len__(self) -> int:
        return 5


class SelfRecording:
    """Records a span, with itself as a tag, whenever its text is asked for."""

    def __repr__(self) -> str:
        with flightlog.span("inside", me=self):
            return "SelfRecording()"


class OddText(str):
    """A text of which every method raises."""

    def _refuse(self, *_args: Any) -> Any:
        raise RuntimeError("no text")

    __str__ = __repr__ = __len__ = __eq__ = __iter__ = __contains__ = __add__ = __getitem__ = __format__ = (
        _refuse  # type: ignore[assignment]
    )
    __hash__ = lower = startswith = encode = isascii = isidentifier = _refuse  # type: ignore[assignment]


def bare(kind: type) -> Any:
    return kind.__new__(kind)


def objects() -> list[Any]:
    """One object of each kind, made anew: some of them are used up."""
    made: list[Any] = [bare(raising(how, name)) for name in [*METHODS, *PROPERTIES] for how in RAISING]
    made += [bare(raising(how, *METHODS)) for how in RAISING]
    made += [bare(raising(no_connection, *METHODS, *PROPERTIES, "__setattr__", "__dir__"))]
    for base in (int, float, list, dict, tuple, set, bytes, collections.deque, collections.UserDict):
        names = [name for name in METHODS if name not in ("__getattribute__", "__getattr__")]
        made.append(bare(raising(no_connection, *names, base=base)))
    made += [OddText("text"), type("Odd", (), {"__module__": 5})(), type.__call__(OfRude), OfRude, Colour.RED]
    made += [SimpleLazyObject(no_connection), lazy(no_connection, str)(), Changing()]
    return made


OBJECTS = objects()


def hand_over(run: Any, use: Callable[[Any, Any], object]) -> list[str]:
    """Use every object; gives what the program saw of it, which is to be nothing."""
    seen = []
    for i, value in enumerate(objects()):
        before = current.get()
        try:
            use(run, value)
        except BaseException as error:
            seen.append(f"{i}: {type(error)}")
        if current.get() is not before:
            seen.append(f"{i}: another span is current")
            current.set(before)
    return seen


def in_span(use: Callable[[Any, Any], object]) -> Callable[[Any, Any], None]:
    def used(_run: Any, value: Any) -> None:
        with flightlog.span("s") as span:
            use(span, value)

    return used


def tag(_run: Any, value: Any) -> None:
    with flightlog.span("s", tag=value):
        pass


def decorate(run: Any, value: Any) -> None:
    with run.span(value):
        pass


def task(run: Any, value: Any) -> None:
    with run.task("t", arg=value) as this:
        this.tags["tag"] = value
        this.metrics["metric"] = value
        this.set_status("error", value)


def replaced_in_task(run: Any, value: Any) -> None:
    with run.task(value) as this:
        this.tags = this.metrics = value


def set_metric(span: Any, value: Any) -> None:
    span.metrics["m"] = value


def replace(span: Any, value: Any) -> None:
    span.tags = span.metrics = value


def rename(span: Any, value: Any) -> None:
    span.name = value


def change_tags(span: Any, value: Any) -> None:
    span.tags["a"] = [value, {"b": value}, (value,)]


def odd_key(span: Any, value: Any) -> None:
    class Key:
        """The same hash as a text's, and no answer whether it is equal to it."""

        def __hash__(self) -> int:
            return hash("m")

        def __eq__(self, _other: object) -> bool:
            raise RuntimeError("who knows")

    span.tags = {Key(): value}


Odd = define_event("users_objects.Odd", value=Any)


def kept(stream: str) -> Callable[[Run], int]:
    return lambda run: len(list(run.events(stream)))


def spans(run: Run) -> int:
    return len(finished(run))


def tasks(run: Run) -> int:
    return len([one for one in run.events("tasks") if type(one).__name__ in ("TaskCompleted", "TaskFailed")])


ENTRY_POINTS: dict[str, tuple[Callable[[Any, Any], object], Callable[[Run], int]]] = {
    "tag of a span": (tag, spans),
    "metric of a span": (in_span(set_metric), spans),
    "name of a span": (decorate, spans),
    "a span's own metric": (in_span(lambda span, value: span.add_metric("m", value)), spans),
    "name of a span's own metric": (in_span(lambda span, value: span.add_metric(value, 1)), spans),
    "second value of a metric": (
        in_span(lambda span, value: [span.add_metric("m", value) for _ in "ab"]),
        spans,
    ),
    "status of a span": (in_span(lambda span, value: span.set_status(value, value)), spans),
    "message of a span": (in_span(lambda span, value: span.set_status("error", value)), spans),
    "tags and metrics replaced": (in_span(replace), spans),
    "tags changed in place": (in_span(change_tags), spans),
    "key of a tag": (in_span(odd_key), spans),
    "name replaced": (in_span(rename), spans),
    "field of an event": (lambda run, value: run.event("e", field=value), kept("events")),
    "name of an event": (lambda run, value: run.event(value, field=1), kept("events")),
    "value of a defined event": (lambda run, value: run.emit(Odd(value=value)), kept("user.users_objects")),
    "value of a metric": (lambda run, value: run.metric("m", value), kept("metrics")),
    "name of a metric": (lambda run, value: run.metric(value, 1.0), kept("metrics")),
    "step of a metric": (lambda run, value: run.metric("m", 1.0, value), kept("metrics")),
    "arguments and results of a task": (task, tasks),
    "name, tags and metrics of a task": (replaced_in_task, tasks),
    "path of an artifact": (lambda run, value: run.record_artifact(value), kept("artifacts")),
    "metadata of an artifact": (
        lambda run, value: run.record_artifact("s3://b/k", about=value),
        kept("artifacts"),
    ),
    "kind and name of an artifact": (
        lambda run, value: run.record_artifact("s3://b/k", kind=value, name=value),
        kept("artifacts"),
    ),
    "an event": (lambda run, value: run.emit(value), lambda _run: 0),
    "several events": (lambda run, value: run.emit(value, value), lambda _run: 0),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_no_object_raises_into_the_program_and_each_is_recorded_or_counted(
    entry_point, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    use, recorded = ENTRY_POINTS[entry_point]
    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        assert hand_over(run, use) == []
    read = Run(run.path)
    counts = read.writers()[0].counts
    assert (read.status, recorded(read) + counts.get("events_failed", 0)) == ("completed", len(OBJECTS))


def test_there_are_many_kinds_of_objects():
    assert len(OBJECTS) > 200


def test_a_lazy_object_of_django_as_a_tag_is_not_evaluated(tmp_path):
    asked = []
    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        with flightlog.span("s", user=SimpleLazyObject(lambda: asked.append(1))):
            pass
        run.event("e", user=SimpleLazyObject(lambda: asked.append(1)))
    (span,) = finished(Run(run.path))
    assert (asked, span.tags["user"].partition(":")[0]) == ([], "<SimpleLazyObject")


def test_an_object_that_records_itself_whenever_it_is_read_comes_to_an_end(tmp_path):
    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        with flightlog.span("s", value=SelfRecording()):
            pass
        run.event("e", value=SelfRecording())
    read = Run(run.path)
    assert ("s" in {span.name for span in finished(read)}, len(list(read.events("events")))) == (True, 1)


@pytest.mark.parametrize(
    "option", ["project", "runs_dir", "tags", "sample_interval_s", "samplers", "target", "provider"]
)
def test_no_object_keeps_a_program_from_running_that_it_is_given_to_record_with(option, tmp_path):
    few = [
        type.__call__(OfRude),
        SimpleLazyObject(no_connection),
        bare(raising(leave, *(name for name in METHODS if name != "__call__"))),
        bare(raising(end, "__class__")),
    ]
    ran = []
    for value in few:
        if option == "tags":
            value = {"a": value}
        with flightlog.record(
            **{"runs_dir": tmp_path, "sample_interval_s": None, "project": "x", option: value}
        ):
            ran.append(1)
    with flightlog.record("x", runs_dir=tmp_path, tags=few[1], sample_interval_s=None):
        pass
    assert (len(ran), active_runs()) == (len(few), ())


def test_no_object_raises_where_events_are_subscribed_to(tmp_path):
    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None) as run:
        few = [SimpleLazyObject(no_connection), OfRude, bare(raising(leave, *METHODS)), OddText("metric")]
        for value in few:
            run.subscribe(value)
            run.subscribe(lambda _event: None, events=value)
            run.subscribe(lambda _event: None, events=[value])
            run.subscribe(lambda _event: None, capacity=value)
        run.metric("m", 1.0)
    (metric,) = Run(run.path).events("metrics")
    assert (metric.value, Run(run.path).writers()[0].counts.get("events_failed")) == (1.0, None)


def errors() -> list[BaseException]:
    """Exceptions whose own code raises."""
    made: list[BaseException] = []
    for how in RAISING:
        for names in (
            ["__str__"],
            ["__repr__"],
            ["__class__"],
            ["__str__", "__repr__", "__eq__", "__hash__", "__len__"],
        ):
            made.append(raising(how, *names, base=ValueError)())
        made.append(raising(how, "__traceback__", "__cause__", "__notes__", base=ValueError)())
    code = bare(raising(no_connection, "__eq__", "__repr__", "__str__", "__bool__"))
    return [*made, ValueError(SimpleLazyObject(no_connection)), SystemExit(code), KeyError(OddText("k"))]


@pytest.mark.parametrize("place", ["span", "task", "run", "collector", "function"])
def test_an_exception_whose_own_code_raises_passes_as_it_is(place, tmp_path):
    @flightlog.span("f")
    def function(error):
        raise error

    wrong = []
    with flightlog.record("outer", runs_dir=tmp_path, sample_interval_s=None) as run:
        for i, error in enumerate(errors() if place != "run" else errors()[:6]):
            within = {
                "span": lambda: flightlog.span("s"),
                "task": lambda: run.task("t"),
                "run": lambda: flightlog.record("inner", runs_dir=tmp_path, sample_interval_s=None),
                "collector": lambda: flightlog.Collector().span("s"),
                "function": lambda: flightlog.span("s"),
            }[place]
            try:
                if place == "function":
                    function(error)
                with within():
                    raise error
            except BaseException as raised:
                if raised is not error:
                    wrong.append(f"{i}: {type(raised)}")
            else:
                wrong.append(f"{i}: nothing")
    read = Run(run.path)
    found = {"span": len(finished(read)), "function": len(finished(read)), "task": tasks(read)}
    assert (wrong, found.get(place, len(errors()))) == ([], len(errors()))
    assert read.writers()[0].counts.get("events_failed") is None


def test_carriers_and_decorators_take_any_object(tmp_path):
    with flightlog.record("x", runs_dir=tmp_path, sample_interval_s=None):
        for value in objects():
            with flightlog.attached(value):
                pass
            with flightlog.attached({"traceparent": value, "flightlog_run": value}):
                pass
        odd = bare(raising(no_connection, *PROPERTIES, "__getattr__", "__repr__"))
        type(odd).__call__ = lambda _self, number: number + 1
        assert (flightlog.span("s")(odd)(1), flightlog.span(odd)(1)) == (2, 2)


def test_events_of_a_class_that_redefines_what_is_asked_of_it_are_counted(tmp_path):
    class Odd(Event, tag="users_objects.Redefined"):
        @property
        def stream(self):
            raise SystemExit(3)

    with flightlog.record("x", runs_dir=Path(tmp_path), sample_interval_s=None) as run:
        run.emit(Odd())
    assert Run(run.path).writers()[0].counts["events_failed"] == 1
