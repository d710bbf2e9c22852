"""What a function's code is, as far as can be seen: its own, and that of the project's code and constants it
refers to.

The code that runs is what counts: the bytecode with its constants, as it stands in memory, and not the text
of a file that may have been edited since it was loaded, or is not on the worker at all. Comments, docstrings
and layout are no part of it; another minor version of Python makes another code. From there globals,
closures, defaults, attributes of modules and imports inside functions are followed, within the project; a
library counts by its name and version. Not seen is what only happens when it runs: `getattr` with a computed
name, methods of what other functions return.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import resolve_name
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from flightlog.core.text import words
from flightlog.session.digest.origins import is_library, label, library_version, module_label, origin_of
from flightlog.session.digest.values import PLAIN, Digester, Files
from flightlog.session.limits import SessionLimits

_HAS_DOCSTRING = 0x4000000  # a flag of code objects from Python 3.13 on
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_COMPREHENSIONS = words("<listcomp> <setcomp> <dictcomp> <genexpr>")
_NOTHING = object()

_statics: dict[int, tuple[CodeType, Static]] = {}


class Import(NamedTuple):
    """An import inside a function."""

    level: int
    module: str
    names: tuple[str, ...]
    """What is taken from it; nothing where the module itself is."""


class Static(NamedTuple):
    """What can be said of a code object alone, for ever."""

    digest: bytes
    references: tuple[tuple[str, ...], ...]
    """Each global it names, with the attributes that are asked of it at once: `("helpers", "fit")`."""
    imports: tuple[Import, ...]


def code_digest(
    function: Callable[..., Any],
    *,
    version: str | int | None = None,
    files: Files = "content",
    classes: dict[type, None] | None = None,
) -> bytes:
    """The digest of a function's code, of what it refers to, and of these classes; 32 bytes.

    Made anew at every call, since globals change; what cannot change is kept. What is referred to and has no
    value that lasts counts by its class; an `Unstable` where the function itself has none.
    """
    out = Digester(files, dict(classes or {}))
    out.of_code = True
    out.value(version)
    out.value(function)
    out.drain()
    done: set[type] = set()
    while more := [cls for cls in out.classes if cls not in done]:
        for cls in sorted(more, key=label):
            done.add(cls)
            walk(out, cls)
            out.drain()
    return out.digest()


def walk(out: Digester, value: FunctionType | type | ModuleType) -> None:
    """Take a function, a class or a module: each once, with what it refers to, however they refer to each
    other.
    """
    if isinstance(value, ModuleType):
        _module(out, value, ())
        return
    number = out.seen.get(id(value))
    if number is None:
        number = out.seen[id(value)] = len(out.seen)
        out.kept.append(value)
        out.waiting.append(value)
    out.put(b"r", str(number).encode())


def expand(out: Digester, value: FunctionType | type) -> None:
    """Take apart what `walk` has met."""
    if isinstance(value, type):
        _class(out, value)
    else:
        _function(out, value)


def static_digest(code: CodeType) -> bytes:
    """The digest of a code object: what it does, without where it stands and what it is called."""
    return _static(code).digest


# --- functions


def _function(out: Digester, function: FunctionType) -> None:
    module = function.__globals__.get("__name__")
    origin = origin_of(module if isinstance(module, str) else None)
    code = function.__code__
    if origin is None:
        static = _static(code)
        out.put(b"F", static.digest)
        for chain in static.references:
            found = function.__globals__.get(chain[0], _NOTHING)
            if found is not _NOTHING and not _is_dunder(chain[0]):
                out.text(b"n", ".".join(chain))
                _refer(out, found, chain[1:])
        for one in static.imports:
            _import(out, one, function.__globals__.get("__package__"))
        _refer(out, function.__defaults__)
        _refer(out, function.__kwdefaults__)
    else:
        out.text(b"l", f"{label(function)} {origin}")
    if origin is None or not _is_ours(module):
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a cell that is still empty
                content = cell.cell_contents
                out.text(b"n", name)
                _refer(out, content)
    wrapped = function.__dict__.get("__wrapped__")
    if wrapped is not None:
        options = function.__dict__.get("cache_options")
        out.tolerant(getattr(options, "version", None))
        _refer(out, wrapped)


def _refer(out: Digester, value: Any, attributes: tuple[str, ...] = ()) -> None:
    """Take what code refers to; never an `Unstable`."""
    if type(value) in PLAIN:
        out.value(value)
    elif isinstance(value, FunctionType | type):
        walk(out, value)
    elif isinstance(value, ModuleType):
        _module(out, value, attributes)
    else:
        wrapped = wrapped_by_library(value)
        if wrapped is not None:
            out.of_class(type(value))
            _refer(out, wrapped)
        else:
            out.tolerant(value)


def wrapped_by_library(value: Any) -> Any:
    """The function that a library's callable was made of, where it says so: `functools.lru_cache`, a compiled
    function.

    None for a decorator of the project's own, whose other state counts as well: it is taken as any object is.
    """
    with suppress(Exception):  # an object may answer for another one that is not there
        if callable(value) and origin_of(type(value).__module__) is not None:
            return vars(value).get("__wrapped__")
    return None


def _module(out: Digester, module: ModuleType, attributes: tuple[str, ...]) -> None:
    """Take a module: the attribute that is asked of it; where none is seen, all it holds but other
    modules.
    """
    name = module.__name__
    out.text(b"m", module_label(name))
    origin = origin_of(name)
    if origin is not None:
        out.text(b"l", origin)
    elif attributes and attributes[0] in vars(module):
        _refer(out, vars(module)[attributes[0]], attributes[1:])
    elif id(module) not in out.seen:
        out.seen[id(module)] = len(out.seen)
        for held, value in sorted(vars(module).items()):
            if not _is_dunder(held) and not isinstance(value, ModuleType):
                out.text(b"n", held)
                _refer(out, value)


def _import(out: Digester, one: Import, package: str | None) -> None:
    """Take what a function imports when it runs. A project's module is imported now: it will be anyway."""
    out.text(b"I", f"{one.level} {one.module} {' '.join(one.names)}")
    try:
        name = resolve_name("." * one.level + one.module, package)
        top = name.partition(".")[0]
        if is_library(top):
            out.text(b"l", "" if top in sys.stdlib_module_names else library_version(top))
            return
        from importlib import import_module

        module = import_module(name)
        for wanted in one.names:
            if wanted not in vars(module):
                with suppress(ImportError):
                    import_module(f"{name}.{wanted}")
    except Exception:  # noqa: BLE001 - the import will tell the function itself, if the function gets there
        return
    for wanted in one.names or ("",):
        _module(out, module, (wanted,) if wanted else ())


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "flightlog"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


# --- classes


def _class(out: Digester, cls: type) -> None:
    out.text(b"K", label(cls))
    origin = origin_of(cls.__module__)
    if origin is not None:
        out.text(b"l", origin)
        return
    for base in (type(cls), *cls.__bases__):
        walk(out, base)
    for name, member in sorted(vars(cls).items()):
        part = member
        if isinstance(member, staticmethod | classmethod):
            part = member.__func__
        elif isinstance(member, property):
            part = tuple(part for part in (member.fget, member.fset, member.fdel) if part is not None)
        elif isinstance(member, functools.cached_property):
            part = member.func
        elif not isinstance(member, FunctionType | type) and (
            _is_dunder(name) or isinstance(member, MemberDescriptorType | GetSetDescriptorType)
        ):
            continue
        out.text(b"n", name)
        _refer(out, part)


# --- code objects


def _static(code: CodeType) -> Static:
    known = _statics.get(id(code))  # by identity: comparing code objects compares all of them
    if known is not None:
        return known[1]
    if len(_statics) >= SessionLimits.max_known_functions:
        _statics.clear()
    static = _read(code)
    _statics[id(code)] = (code, static)
    return static


def _read(code: CodeType) -> Static:
    references: dict[tuple[str, ...], None] = {}
    imports: list[Import] = []
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for i, step in enumerate(steps):
        if step.opname in _GLOBALS:
            chain = [step.argval]
            for later in steps[i + 1 :]:
                if later.opname not in _ATTRIBUTES:
                    break
                chain.append(later.argval)
            references[tuple(chain)] = None
        elif step.opname == "IMPORT_NAME":
            names, level = steps[i - 1].argval, steps[i - 2].argval
            imports.append(Import(int(level or 0), step.argval, tuple(names or ())))
    out = Digester()
    out.put(b"c", code.co_code)
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    out.value((*counts, code.co_flags & ~_HAS_DOCSTRING, *names, code.co_exceptiontable))
    consts = code.co_consts
    if _has_docstring(code):
        consts = (None, *consts[1:])
    out.value(consts)
    for inner in consts:
        if isinstance(inner, CodeType):
            below = _static(inner)
            references.update(dict.fromkeys(below.references))
            imports += below.imports
    return Static(out.digest(), tuple(references), tuple(imports))


def _has_docstring(code: CodeType) -> bool:
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & _HAS_DOCSTRING)
    # Before, the first constant of every `def` and `lambda` was its docstring, or None.
    return bool(code.co_flags & 0x1) and code.co_name not in _COMPREHENSIONS
