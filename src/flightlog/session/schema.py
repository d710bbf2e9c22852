"""What a manifest may say: every field declared once; and the JSON Schema made from it, for editors.

Attributes bear their units (`memory_bytes`), the file's keys do not (`memory: 16GB`); otherwise they are the
same. None is "not said".
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from flightlog.core.plugins import plugin_points
from flightlog.core.text import first_line
from flightlog.engines import ENTRY_POINTS
from flightlog.engines.contract import Resources
from flightlog.engines.options import PROVIDERS, Count, Duration, Kind, Positive, Size, Text, written
from flightlog.events.base import doc
from flightlog.events.schema import DIALECT

MANIFEST_VERSION = 1


OVERLAID = ("project", "targets", "components", "tasks", "cost", "otel", "alerts")
"""The keys an overlay may hold, each in part."""
_UNITS: dict[Kind, str] = {"size": "_bytes", "duration": "_s"}
"""How the attributes of such values end, and the keys do not."""
_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""A text with a variable, which may stand wherever a value may."""
_SIZE = r"^\s*\d+(\.\d+)?\s*[kKmMgGtTpPeE]?([iI]?[bB])?\s*$"
_DURATION = r"^\s*((\d+-)?\d+:[0-5]?\d:[0-5]?\d|(\d+(\.\d+)?\s*([mMuUµ]?[sS]|[mMhHdDwW])\s*)+)$"


class Project(Struct, frozen=True, kw_only=True):
    """What the work is called and where its files go."""

    name: Annotated[Name, doc("name of the project; runs bear it")]
    default_storage: Annotated[Text | None, doc("folder or address for outputs")] = None
    local_cache: Annotated[Text | None, doc("folder of the result cache")] = None


class Rates(Struct, frozen=True, kw_only=True):
    """What a target costs. GB are 1000s."""

    currency: Annotated[Name | None, doc("ISO 4217 code; that of the price table, or USD, if not said")] = (
        None
    )
    instance: Annotated[
        Name | None,
        doc("instance type of the price table, such as aws/m6i.xlarge, in place of rates by the hour"),
    ] = None
    workers_per_instance: Annotated[
        Count | None, doc("workers that share an instance; 1, but on the local provider all, if not said")
    ] = None
    prices: Annotated[Text | None, doc("file of the price table, in place of the one that ships")] = None
    per_worker_hour: Annotated[float | None, doc("for each worker")] = None
    per_cpu_hour: Annotated[float | None, doc("for each CPU of a worker")] = None
    per_gpu_hour: Annotated[float | None, doc("for each GPU of a worker")] = None
    per_gb_hour: Annotated[float | None, doc("for each GB (1000s) of memory of a worker")] = None
    per_gb_month: Annotated[float | None, doc("for keeping a GB of artifacts for a month")] = None
    per_gb_egress: Annotated[float | None, doc("for each GB that leaves the provider's network")] = None
    per_kwh: Annotated[float | None, doc("for a kilowatt-hour of what energy counters show")] = None


class Target(Struct, frozen=True, kw_only=True):
    """Where to run: a provider with its options."""

    provider: Annotated[
        Name, doc("engine that runs the tasks: local, dask, slurm, ray, dragon or a plugin's")
    ]
    overlay: Annotated[OverlayName | None, doc("overlay that applies whenever this target is picked")] = None
    cost: Annotated[Rates | None, doc("what it costs, in place of the manifest's own cost")] = None
    options: dict[str, Any] = {}
    """The provider's own keys that were written, checked and converted: sizes in bytes, durations in
    seconds."""


class Component(Struct, frozen=True, kw_only=True):
    """What a kind of worker is made of."""

    cpus: Annotated[Positive | None, doc("CPUs of a worker")] = None
    memory_bytes: Annotated[Size | None, doc("memory of a worker")] = None
    gpus: Annotated[float | None, doc("GPUs of a worker")] = None
    walltime_s: Annotated[Duration | None, doc("longest life of a worker")] = None
    image: Annotated[Text | None, doc("container image")] = None
    runtime: Annotated[Text | None, doc("what runs the image: docker, apptainer, …")] = None
    env: Annotated[dict[str, Text], doc("environment variables of a worker")] = {}
    mounts: Annotated[dict[str, Text], doc("folders of the host, and where the container sees them")] = {}
    tags: Annotated[tuple[Text, ...], doc("words to find it by")] = ()
    preload_script: Annotated[Text | None, doc("Python file a worker executes when it starts")] = None

    @property
    def needs(self) -> Resources:
        """What its workers need, for engines that launch workers to measure."""
        return Resources(
            cpus=self.cpus, memory_bytes=self.memory_bytes, gpus=self.gpus, walltime_s=self.walltime_s
        )


class Cache(Struct, frozen=True, kw_only=True):
    """How a task's results are kept."""

    version: Annotated[Text | None, doc("part of the key: a new one makes old results miss")] = None
    ttl_s: Annotated[Duration | None, doc("how long a result is good for")] = None
    ignore: Annotated[tuple[Name, ...], doc("arguments that are no part of the key")] = ()
    store: Annotated[Text | None, doc("folder of the results")] = None


class Task(Struct, frozen=True, kw_only=True):
    """How a function or command of this name is run."""

    component: Annotated[ComponentName | None, doc("component whose workers run it")] = None
    cache: Annotated[bool | Cache | None, doc("whether, and how, results are kept")] = None
    retries: Annotated[int | None, doc("further attempts after a failed one")] = None
    timeout_s: Annotated[Duration | None, doc("longest an attempt may run")] = None
    outputs: Annotated[tuple[Text, ...], doc("files it makes")] = ()


class Otel(Struct, frozen=True, kw_only=True):
    """Where the run goes while it runs, by OpenTelemetry's protocol over HTTP; what is not said, `OTEL_*`
    variables say.
    """

    endpoint: Annotated[
        Text | None,
        doc("address of the server, such as http://localhost:4318; /v1/traces and so on are added"),
    ] = None
    headers: Annotated[dict[str, Text], doc("headers of every request; secrets as variables: ${TOKEN}")] = {}
    traces: Annotated[bool | None, doc("whether tasks and spans are sent; they are if not said")] = None
    metrics: Annotated[bool | None, doc("whether counts and measurements are sent; they are if not said")] = (
        None
    )
    logs: Annotated[bool | None, doc("whether failures and events are sent; they are if not said")] = None


class AlertRules(Struct, frozen=True, kw_only=True):
    """When to alert, and how; without anything but rules, the alert is in the program's log."""

    when: Annotated[tuple[Text, ...], doc("rules, such as failed, stuck, memory > 90 %, loss is NaN")]
    every_s: Annotated[Duration | None, doc("least time between two alerts of one cause; 1h if not said")] = (
        None
    )
    notify: Annotated[tuple[Text, ...], doc("addresses of Apprise, as variables: ${ALERT_ADDRESS}")] = ()
    webhook: Annotated[Text | None, doc("address that alerts are sent to as JSON")] = None
    command: Annotated[
        tuple[Text, ...], doc("program and its arguments, started with the alert as JSON")
    ] = ()
    python: Annotated[Text | None, doc("function that is called beside the run, as module:function")] = None


class Contents(Struct, frozen=True, kw_only=True):
    """A Flightlog manifest: what runs where, and with what."""

    version: Annotated[int, doc("version of the manifest's form: 1")]
    project: Project
    targets: Annotated[dict[str, Target], doc("places to run, by name")] = {}
    components: Annotated[dict[str, Component], doc("kinds of workers, by name")] = {}
    tasks: Annotated[dict[str, Task], doc("how tasks are run, by name")] = {}
    cost: Annotated[Rates | None, doc("what targets cost that have no cost of their own")] = None
    otel: Annotated[
        bool | Otel | None,
        doc(
            "whether, and where, the run is sent to an OpenTelemetry server while it runs; true: as the "
            "OTEL_* variables say"
        ),
    ] = None
    alerts: Annotated[tuple[AlertRules, ...], doc("when to alert while the run runs, and how")] = ()


Name = Annotated[str, written("name")]
"""A text that others refer to, or that refers to them; always shown expanded."""
OverlayName = Annotated[str, Meta(extra={"kind": "name", "refers_to": "overlay"})]
ComponentName = Annotated[str, Meta(extra={"kind": "name", "refers_to": "component"})]


class Shape(Struct, frozen=True, kw_only=True):
    """One way a value may be written."""

    kind: Kind
    doc: str = ""
    inner: Shape | None = None
    """Of lists: the items. Of tables: the values."""
    struct: type[Struct] | None = None
    switch: bool = False
    """Of structs: whether `true` or `false` may stand in its place."""
    least: int = 0
    """Of whole numbers: the smallest."""
    positive: bool = False
    """Of numbers: whether 0 is none."""
    choices: tuple[str, ...] = ()
    """Of texts: the only ones there are."""
    refers_to: str = ""
    """Of names: what of the manifest they name, such as `component`."""


class Field(Struct, frozen=True, kw_only=True):
    """One key of a mapping."""

    key: str
    name: str
    """The attribute that holds it."""
    shape: Shape
    required: bool


@cache
def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The keys of a declared mapping, in order of declaration; a field without a description is no key."""
    found = []
    for field in msgspec.structs.fields(struct):
        shape = shape_of(field.type)
        if shape.doc:
            key = field.name.removesuffix(_UNITS.get(shape.kind, ""))
            found.append(Field(key=key, name=field.name, shape=shape, required=field.required))
    return tuple(found)


def shape_of(declared: Any, doc: str = "") -> Shape:
    """The shape of a declared type. None beside a type says that it may be missing, which any shape may."""
    origin, args = get_origin(declared), get_args(declared)
    if origin is Annotated:
        metas = [meta for meta in declared.__metadata__ if isinstance(meta, Meta)]
        doc = next((meta.description for meta in metas if meta.description), doc)
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        if extra:
            return Shape(doc=doc, **extra)
        inner = shape_of(args[0], doc)
        least = next((meta.ge for meta in metas if meta.ge is not None), inner.least)
        positive = inner.positive or any(meta.gt == 0 for meta in metas)
        return msgspec.structs.replace(inner, least=least, positive=positive)
    if origin in {Union, types.UnionType}:
        options = [shape_of(arg, doc) for arg in args if arg is not type(None)]
        switch = any(option.kind == "switch" for option in options)
        main = next((option for option in options if option.kind != "switch"), options[0])
        return msgspec.structs.replace(main, doc=doc or main.doc, switch=switch and len(options) > 1)
    if origin is Literal:
        return Shape(kind="name", doc=doc, choices=args)
    if origin is dict:
        return Shape(kind="table", doc=doc, inner=shape_of(args[1]))
    if origin is tuple:
        return Shape(kind="list", doc=doc, inner=shape_of(args[0]))
    if isinstance(declared, type) and issubclass(declared, Struct):
        return Shape(kind="struct", doc=doc or first_line(declared.__doc__), struct=declared)
    kinds: dict[Any, Kind] = {bool: "switch", int: "whole", float: "number", str: "text", Any: "any"}
    return Shape(kind=kinds[declared], doc=doc)


def installed_providers() -> tuple[str, ...]:
    """Further providers that installed distributions offer; tens of milliseconds."""
    return tuple(name for name in plugin_points(ENTRY_POINTS) if name not in PROVIDERS)


def manifest_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a manifest. Names that refer to each other are left to `flightlog
    validate`.
    """
    definitions: dict[str, Any] = {}
    whole = _struct(Contents, definitions, partial=False)
    parts = _struct(Contents, definitions, partial=True)["properties"]
    whole["properties"]["version"] = {
        "const": MANIFEST_VERSION,
        "description": "version of the manifest's form",
    }
    whole["properties"]["overlays"] = {
        "description": "partial manifests to lay over this one, by name; null removes what it stands for",
        "type": ["object", "null"],
        "additionalProperties": {
            "type": ["object", "null"],
            "properties": {key: parts[key] for key in OVERLAID},
            "additionalProperties": False,
        },
    }
    return {"$schema": DIALECT, "title": "Flightlog manifest", **whole, "$defs": definitions}


def _struct(struct: type[Struct], definitions: dict[str, Any], *, partial: bool) -> dict[str, Any]:
    """A mapping with these keys, or with some of them; each may be null: "not said" in a manifest, "removed"
    in an overlay.
    """
    properties = {}
    for field in fields_of(struct):
        null = [{"type": "null"}] if partial or not field.required else []
        found = _either(_forms(field.shape, definitions, partial) + null)
        properties[field.key] = {"description": field.shape.doc, **found}
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [field.key for field in fields_of(struct) if field.required and not partial]
    return {**made, "required": required} if required else made


def _target(definitions: dict[str, Any], *, partial: bool) -> dict[str, Any]:
    """A target: which other keys it may have is its provider's to say; a plugin's are not known here."""
    own = _struct(Target, definitions, partial=partial)
    own["additionalProperties"] = True
    own["properties"]["provider"]["examples"] = list(PROVIDERS)
    own["allOf"] = [
        {
            "if": {"properties": {"provider": {"const": name}}, "required": ["provider"]},
            "then": {
                "properties": {
                    **dict.fromkeys(own["properties"], True),
                    **_struct(options, definitions, partial=partial)["properties"],
                },
                "additionalProperties": False,
            },
        }
        for name, options in PROVIDERS.items()
    ]
    return own


def _either(forms: list[dict[str, Any]]) -> dict[str, Any]:
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _forms(shape: Shape, definitions: dict[str, Any], partial: bool) -> list[dict[str, Any]]:
    """The ways in which a value may be written."""
    if shape.struct is not None:
        name = ("Partial" if partial else "") + shape.struct.__name__
        if name not in definitions:
            made = (
                _target(definitions, partial=partial)
                if shape.struct is Target
                else _struct(shape.struct, definitions, partial=partial)
            )
            definitions[name] = {"description": first_line(shape.struct.__doc__), **made}
        reference = {"$ref": f"#/$defs/{name}"}
        return [{"type": "boolean"}, reference, _VARIABLE] if shape.switch else [reference]
    if shape.inner is not None:
        inner = _forms(shape.inner, definitions, partial)
        if shape.kind == "list":
            return [{"type": "array", "items": _either(inner)}]
        return [{"type": "object", "additionalProperties": _either([*inner, {"type": "null"}])}]
    match shape.kind:
        case "whole":
            return [{"type": "integer", "minimum": shape.least}, _VARIABLE]
        case "number":
            return [{"type": "number", "exclusiveMinimum" if shape.positive else "minimum": 0}, _VARIABLE]
        case "switch":
            return [{"type": "boolean"}, _VARIABLE]
        case "size":
            return [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _SIZE}, _VARIABLE]
        case "duration":
            return [{"type": "string", "pattern": _DURATION}, _VARIABLE]
        case _ if shape.choices:
            return [{"enum": list(shape.choices)}, _VARIABLE]
        case _:
            return [{"type": ["string", "number", "boolean"]}]
