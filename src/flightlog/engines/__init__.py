"""Where tasks run: one contract, many engines, plugins loaded the same way as built-in ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flightlog.core.errors import UsageError
from flightlog.core.plugins import did_you_mean, load

if TYPE_CHECKING:
    from flightlog.engines.contract import Engine, Resources

ENTRY_POINTS = "flightlog.engines"
"""The entry-point group that names engines: provider to a class or function that takes its options by
name."""

COMPONENTS = "components"
"""The argument by which an engine gets the resources of components."""


def make_engine(
    provider: str, options: Mapping[str, Any], components: Mapping[str, Resources] | None = None
) -> Engine:
    """The engine of a provider with these options, not started; an option that is None stands for its
    default.

    `components` are the resources of a manifest's components, by name: an engine that takes an argument of
    this name gets them.

    `UsageError` for a provider that no installed distribution offers and for options that the engine does not
    take, with the nearest right name; `MissingExtra` where what the engine needs is not installed.
    """
    from inspect import Parameter, signature

    factory: Callable[..., Any] = load(ENTRY_POINTS, provider, "provider", extra=provider)
    given = {name: value for name, value in options.items() if value is not None}
    parameters = signature(factory).parameters
    declared = getattr(getattr(factory, "options", None), "__struct_fields__", ())
    kinds = {name: each.kind for name, each in parameters.items() if name != COMPONENTS}
    by_name = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    taken = list(dict.fromkeys([*declared, *(name for name, kind in kinds.items() if kind in by_name)]))
    takes_all = not declared and Parameter.VAR_KEYWORD in kinds.values()
    if unknown := [name for name in given if name not in taken and not takes_all]:
        listed = f"It takes {', '.join(taken)}." if taken else "It takes none."
        hint = did_you_mean(unknown[0], taken)
        raise UsageError(f"the engine {provider!r} has no option {unknown[0]!r}.{hint} {listed}")
    if components and COMPONENTS in parameters:
        given[COMPONENTS] = dict(components)
    engine: Engine = factory(**given)
    return engine
