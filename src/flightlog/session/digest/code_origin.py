"""Where code comes from: the project's own counts by what it does, a library's by its name and version."""

from __future__ import annotations

import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})
_SOURCE = frozenset({".py", ".pyc", ".ipynb"})
_STDLIB = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"

_known: dict[str, str | None] = {}


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
        from flightlog.session.digest.objects import file_digest

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
