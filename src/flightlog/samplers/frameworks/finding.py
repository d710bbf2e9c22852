"""Which framework a program uses: the one that is named, or whichever it has imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

from flightlog.samplers.frameworks.allocator import Allocator, is_imported
from flightlog.samplers.frameworks.jax_memory import jax_allocator
from flightlog.samplers.frameworks.tensorflow_memory import tensorflow_allocator
from flightlog.samplers.frameworks.torch_memory import torch_allocator
from flightlog.samplers.gpu.driver import may_have_gpu

AUTO = "auto"
FRAMEWORKS = ("torch", "jax", "tensorflow")
NAMES = (
    AUTO,
    "torch",
    "torch.cuda",
    "torch.rocm",
    "torch.mps",
    "torch.cpu",
    "jax",
    "jax.cpu",
    "tensorflow",
    "tensorflow.cpu",
)
"""What may be asked for. A framework alone means the kind of device that the program turns out to use."""


def find_allocator(
    wanted: str = AUTO, *, modules: Mapping[str, Any] | None = None, gpu: bool | None = None
) -> Allocator | None:
    """The allocator of the framework that is wanted; None while the program has not imported it, or not
    started it up.

    `auto` takes whichever framework is there, and one on an accelerator before one on the host. `gpu` says
    whether a GPU could be used here. May raise what the framework raises.
    """
    modules = sys.modules if modules is None else modules
    framework, _, kind = wanted.partition(".")
    names = FRAMEWORKS if wanted == AUTO else (framework,)
    gpu = may_have_gpu() if gpu is None else gpu
    on_host: Allocator | None = None
    for name in names:
        module = modules.get(name)
        if not is_imported(module):
            continue
        found = _of(name, module, kind or None, modules, gpu)
        if found is not None and not found.name.endswith(".cpu"):
            return found
        on_host = on_host or found
    return on_host


def _of(name: str, module: Any, kind: str | None, modules: Mapping[str, Any], gpu: bool) -> Allocator | None:
    if name == "torch":
        found = torch_allocator(module, kind, may_have_gpu=gpu)
    elif name == "jax":
        found = jax_allocator(module, kind, modules)
    else:
        found = tensorflow_allocator(module, kind, modules)
    return cast("Allocator | None", found)
