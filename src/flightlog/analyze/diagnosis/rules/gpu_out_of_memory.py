"""A GPU or another accelerator had no more memory to give."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, raised, recorded, says

_DEVICE = (
    r"\b(?:cuda|gpu|hip|rocm|hbm|xpu|mps|vram|device)\b|GPU_\d|_bfc\b|\bGPU:\d|cuda:\d"
    r"|cudaMalloc|torch\.OutOfMemory|torch\.cuda"
)


DEVICE = "a device ran out of memory"


def _facts(facts: RunFacts) -> Iterator[Sign]:
    for said in facts.device_oom[:1]:
        yield Sign(source=Source.resources, weight=5.0, text=f"{DEVICE}: {said}")
    used = facts.gpu_memory_used_percent
    if used is not None and used >= 95:
        text = f"{used:.0f} % of the GPU's memory was in use"
        yield Sign(source=Source.resources, weight=1.5, text=text)


rule = Clues(
    recorded(_facts),
    raised(
        6,
        "torch.OutOfMemoryError torch.cuda.OutOfMemoryError cupy.cuda.memory.OutOfMemoryError",
        "torch.cuda.memory.OutOfMemoryError torch._C._OutOfMemoryError",
    ),
    raised(
        6,
        "OutOfMemoryError ResourceExhaustedError XlaRuntimeError JaxRuntimeError MemoryError",
        "bad_alloc out_of_memory",
        saying=rf"(?:memory|OOM|RESOURCE_EXHAUSTED).*?(?:{_DEVICE})|(?:{_DEVICE})[\s\S]*?(?:memory|OOM)",
    ),
    raised(
        4,
        "XlaRuntimeError JaxRuntimeError",
        saying="RESOURCE_EXHAUSTED.{0,20}(?:out of memory|failed to allocate|ran out)",
    ),
    raised(3, "ResourceExhaustedError", saying="OOM|memory|allocat"),
    says(
        6,
        r"\b(?:CUDA|HIP|XPU|MPS|GPU|NPU|ROCm|device|VRAM|HBM)\b[^\n]{0,60}\bout of (?:device )?memory\b",
        r"(?:cuda|hip|cu|hsa)\w*error\w*[ _:]out_?of_?memory|cudaErrorMemoryAllocation|hipErrorOutOfMemory",
        "CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED",
        "CL_(?:OUT_OF_RESOURCES|MEM_OBJECT_ALLOCATION_FAILURE)|VK_ERROR_OUT_OF_DEVICE_MEMORY",
        r"\bcudaMalloc(?:Async|Managed)?\b.{0,40}(?:failed|out of memory)",
        r"Allocator \(\w*(?:GPU|bfc)\w*\) ran out of memory|OOM when allocating tensor.{0,200}\bGPU\b",
        "ran out of memory in memory space (?:hbm|vmem)|exceeded hbm capacity",
    ),
    says(
        5,
        r"\bout of (?:device |GPU |video |CUDA )?memory\b[^\n]{0,120}\b(?:GPU(?:_\d+\w*)?|CUDA|on device"
        r"|HBM|VRAM)\b",
        "out of (?:device|GPU|video) memory",
        r"(?:insufficient|not enough) memory\b.{0,20}\b(?:accelerator|device|GPU)\b",
        r"unable to allocate (?:CUDA|GPU|Vulkan|Metal|device)\w* (?:buffer|memory)",
    ),
    says(1.5, "CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED"),
    says(
        4,
        "OOM when allocating tensor",
        "RESOURCE_EXHAUSTED: .{0,40}(?:out of memory|ran out|failed to allocate|allocat)",
    ),
    says(
        3,
        "GiB (?:total|of which)|reserved (?:in total )?by PyTorch|PYTORCH_(?:CUDA_)?ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF|PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    ),
    says(
        4.5,
        "no available memory for the cache blocks|free memory on device .{0,80}less than desired",
        "not enough (?:GPU|device|VRAM|CUDA) memory|insufficient (?:GPU|device) memory",
        r"failed to allocate .{0,60}(?:on (?:the )?(?:GPU|device)|of device memory|from device|VRAM|gpu"
        r"|CUDA\d)",
    ),
    suggest=[
        "Lower the batch size, the sequence length or the model's size, or accumulate gradients over "
        "smaller batches.",
        "See what held the memory: other processes on the GPU (`nvidia-smi`), tensors kept by a list or a "
        "closure, evaluation without `torch.no_grad()`.",
        "Against fragmentation: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; with JAX, "
        "`XLA_PYTHON_CLIENT_PREALLOCATE=false` where processes share a GPU.",
    ],
)
