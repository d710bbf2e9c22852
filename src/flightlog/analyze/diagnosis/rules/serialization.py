"""An object could not be sent to or fetched from another process, or be written in a format."""

from __future__ import annotations

from flightlog.analyze.diagnosis.base import Source
from flightlog.analyze.diagnosis.matchers import Clues, named, raised, reports, says

_DATA = (
    "invalid load key|truncated|ran out of input|corrupt|could not find MARK"
    "|not a ZIP archive|STACK_GLOBAL requires"
)
_ELSEWHERE = r"cuda|safetensor|header|thrift|\bversion \S{1,20} \(?expected"
"""What is read, or where it is put, is the matter, and not the object."""

rule = Clues(
    raised(
        5.5,
        "PicklingError PickleError MaybeEncodingError NotSerializableException SerializationError",
        "SerializationException KryoException RepresenterError InvalidClassException",
        "StreamCorruptedException EncodeError UnserializableException NotSerializableError",
        "UnpickleableError TaskNotSerializable SerializationFailure UnserializableReturnValueError",
        "ObjectNotSerializable",
    ),
    raised(3.5, "UnpicklingError", unless=_DATA),
    raised(1.5, "UnpicklingError", saying=_DATA),
    raised(
        5.5,
        "TypeError AttributeError ValueError RuntimeError NotImplementedError ModuleNotFoundError",
        "OverflowError RecursionError",
        saying=r"\b(?:un|de|re)?(?:pickl|seriali[sz]|marshal)|__reduce|__getstate__",
        unless=_ELSEWHERE,
    ),
    raised(5.5, "AttributeError", saying="Can't get (?:local )?(?:attribute|object) '"),
    reports(4, r"Can't get (?:local )?(?:attribute|object) '\w+' on <module", source=Source.exception),
    says(
        5,
        "(?:cannot|can't|can not|could not|couldn't|unable to|failed to|not able to"
        "|error(?:s)? (?:while |when )?) ?(?:be )?(?:un)?(?:pickl|serializ|serialis|deserializ"
        r"|deserialis|marshal)\w*",
        unless=_ELSEWHERE,
    ),
    says(
        5.5,
        r"\b(?:is|are|was|were) not (?:JSON |msgpack |pickle |YAML )?(?:serializable|serialisable"
        "|picklable|pickleable|pickle-able)",
        "not JSON compliant|task not serializable|un(?:picklable|pickleable|serializable)",
        "unsupported pickle protocol|can not serialize|cannot represent an object",
        "not JSON serializable",
    ),
    says(
        4, "Weights only load failed|Unsupported (?:global|class|operand).{0,60}weights_only", "weights_only"
    ),
    says(1.5, r"\b(?:un)?serializ(?:e|ation|ing)\b|pickl(?:e|ing)", unless=rf"{_DATA}|\bwheel\b|install"),
    says(
        3,
        "did not recognize Python value type when inferring an Arrow data type",
        "Could not convert .{0,120}with type .{0,60}",
        "long vectors not supported|serialization is too large|exceeds (?:the )?maximum (?:pickle"
        "|message|serialized) size",
    ),
    says(
        2,
        r"code expected at (?:least|most) \d+ arguments|bytes object is too large",
        r"message (?:is )?too (?:large|long) to (?:send|serialize|pickle)|larger than \d+ ?[GM]i?B",
    ),
    named(3.5, "Pickl|Seriali[sz]|Marshal", unless=_DATA),
    raised(
        5.5, "ArrowInvalid ArrowTypeError", saying="did not recognize Python value type|Expected bytes, got a"
    ),
    suggest=[
        "Find the member that cannot travel: locks, open files, connections, generators, lambdas and "
        "classes defined in functions or in `__main__`. Make it in the worker instead of sending it.",
        "Move functions and classes into a module that both sides import, in the same versions of Python "
        "and packages.",
        "Send a path or a plain structure (arrays, dictionaries, data classes) rather than a live object.",
    ],
)
