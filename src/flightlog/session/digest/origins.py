"""Where code comes from: the project, Python or a library of some version; and what files hold."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flightlog.session.limits import SessionLimits

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})
_SOURCE = frozenset({".py", ".pyc", ".ipynb"})
_STDLIB = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"
_known: dict[str, str | None] = {}


def label(of: Any) -> str:
    """`module.qualname` of a class or function; scripts count under their file's name, run or imported."""
    return f"{module_label(getattr(of, '__module__', None))}.{getattr(of, '__qualname__', of)}"


def module_label(module: str | None, file: str | None = None) -> str:
    """A module's name; of the script that runs (`__main__`) the name it would be imported by, where it has a
    file.
    """
    if module not in ("__main__", "__mp_main__"):
        return module or ""
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if file is None and spec is not None:
        return str(spec.name)
    path = file if file is not None else getattr(main, "__file__", None)
    return Path(path).stem if path and not path.startswith("<") else "__main__"


def origin_of(module: str | None) -> str | None:
    """`"numpy 2.4.6"` or `"python 3.11"`; None for the project's own code, which includes what nothing is
    known of.

    A compiled module of the project counts by its file's content. What was found once holds for the process.
    """
    if not module or module in ("__main__", "__mp_main__"):
        return None
    if module not in _known:
        loaded = sys.modules.get(module)
        if loaded is None:  # it may come later, and from anywhere
            return _PYTHON if module.partition(".")[0] in sys.stdlib_module_names else None
        _known[module] = _origin(module, getattr(loaded, "__file__", None))
    return _known[module]


def _origin(module: str, file: str | None) -> str | None:
    top = module.partition(".")[0]
    if top == "flightlog" and not module.startswith("flightlog.demo"):
        from flightlog.version import __version__

        return f"flightlog {__version__}"
    if file is None:  # built in, frozen, or a folder without `__init__.py`
        return _PYTHON if top in sys.stdlib_module_names or top in sys.builtin_module_names else None
    path = Path(file)
    if not _LIBRARY_FOLDERS.isdisjoint(path.parts):
        version = getattr(sys.modules.get(top), "__version__", None)
        return f"{top} {version if isinstance(version, str) else library_version(top)}"
    if any(path.is_relative_to(folder) for folder in _STDLIB):
        return _PYTHON
    if path.suffix not in _SOURCE:
        with suppress(OSError):
            return f"{module} {file_digest(file).hex()}"
    return None


def library_version(top: str) -> str:
    """The version of an installed library by the name it is imported by; empty where its metadata do not
    tell.
    """
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError, ValueError):
        return version(top)
    return ""


def is_library(top: str) -> bool:
    """Whether a module is no part of the project, also one that is not imported yet, by its first name."""
    if top in sys.stdlib_module_names or top == "flightlog":
        return True
    if top in sys.modules:
        return origin_of(top) is not None
    spec = find_spec(top)
    where = Path(spec.origin).parts if spec is not None and spec.origin else ()
    return not _LIBRARY_FOLDERS.isdisjoint(where)


def file_digest(path: str) -> bytes:
    """The digest of a regular file's content; an OSError for anything else."""
    hashed = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer must not block
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - of a descriptor
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is no regular file")
        buffer = bytearray(SessionLimits.digest_file_chunk_bytes)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            hashed.update(view[:count])
    return hashed.digest()
