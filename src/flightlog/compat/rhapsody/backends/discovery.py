"""Backends by name."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

_HERE = __package__ + ".execution"
_BUILT_IN = {
    "concurrent": f"{_HERE}.concurrent.ConcurrentExecutionBackend",
    "noop": f"{_HERE}.noop.NoopExecutionBackend",
    "dask": f"{_HERE}.dask_parallel.DaskExecutionBackend",
    "dragon": f"{_HERE}.dragon.DragonExecutionBackend",
    "radical_pilot": f"{_HERE}.RadicalExecutionBackend",
}


class BackendRegistry:
    """Backends by name: those of this package, and registered ones."""

    _backends: ClassVar[dict[str, Any]] = dict(_BUILT_IN)

    @classmethod
    def get_backend_class(cls, backend_name: str) -> Any:
        """The class of a backend. Raises ValueError for an unknown name, ImportError where it cannot be
        imported.
        """
        if backend_name not in cls._backends:
            raise ValueError(f"Backend '{backend_name}' not found. Available: {list(cls._backends)}")
        found = cls._backends[backend_name]
        if not isinstance(found, str):
            return found
        module, _, name = found.rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ImportError(f"Failed to import backend '{backend_name}' from '{found}': {error}") from error

    @classmethod
    def list_backends(cls) -> list[str]:
        """All names."""
        return list(cls._backends)

    @classmethod
    def register_backend(cls, name: str, backend_class: Any) -> None:
        """Register a class, or its path such as `package.module.Class`, under a name."""
        cls._backends[name] = backend_class


def get_backend(backend_name: str, *args: Any, **kwargs: Any) -> Any:
    """A backend of this name, to be awaited before use."""
    return BackendRegistry.get_backend_class(backend_name)(*args, **kwargs)


def discover_backends() -> dict[str, bool]:
    """Whether each backend is available, that is, its dependencies are installed."""
    found = {}
    for name in BackendRegistry.list_backends():
        try:
            kind = BackendRegistry.get_backend_class(name)
            found[name] = bool(getattr(kind, "is_available", lambda: True)())
        except ImportError:
            found[name] = False
    return found
