"""Where tasks run: one contract, many engines, plugins loaded the same way as built-in ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.core.errors import UsageError
from flightlog.core.plugins import did_you_mean, load

if TYPE_CHECKING:
    from inspect import Parameter

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
    from inspect import signature

    factory: Callable[..., Any] = load(ENTRY_POINTS, provider, "provider", extra=provider)
    given = {name: value for name, value in options.items() if value is not None}
    parameters = signature(factory).parameters
    declared = getattr(getattr(factory, "options", None), "__struct_fields__", None)
    _check_options(provider, parameters.values(), given, declared)
    if components and COMPONENTS in parameters:
        given[COMPONENTS] = dict(components)
    engine: Engine = factory(**given)
    return engine


def _check_options(
    provider: str,
    parameters: Iterable[Parameter],
    options: Mapping[str, Any],
    declared: Sequence[str] | None,
) -> None:
    from inspect import Parameter

    if declared is None and any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_name = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    named = [each.name for each in parameters if each.kind in by_name and each.name != COMPONENTS]
    taken = list(dict.fromkeys([*(declared or ()), *named]))
    for name in options:
        if name not in taken:
            listed = f"It takes {', '.join(taken)}." if taken else "It takes none."
            raise UsageError(
                f"the engine {provider!r} has no option {name!r}.{did_you_mean(name, taken)} {listed}"
            )
