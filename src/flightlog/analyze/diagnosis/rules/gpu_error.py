"""The GPU, its driver or its libraries failed, or cannot be used."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, named, raised, reports, says

_MEMORY = r"out of memory|OUT_OF_MEMORY|ALLOC_FAILED|MemoryAllocation"

rule = Clues(
    raised(
        5,
        "AcceleratorError CUDARuntimeError CudaAPIError CudaSupportError CUDADriverError CUDAError",
        "NVMLError cudaError CUBLASError CUDNNError NVVMError LinkerError HIPError CudaError",
        "CUDABackendError NVMLError_DriverNotLoaded NVMLError_LibraryNotFound NVMLError_GpuIsLost",
        "CudaDriverError NvvmSupportError cudaErrorUnknown thrust::system::system_error",
        unless=_MEMORY,
    ),
    says(
        5,
        r"\bCUDA (?:runtime |driver )?error\b|\bCUDA(?:_| )ERROR(?:_\w+)?|\bcudaError\w+|\bHIP error\b",
        r"\bhipError\w+|\bROCm error|device-side assert",
        "an illegal (?:memory access|instruction) was encountered|unspecified launch failure",
        "misaligned address|CUDA exception|CUDA kernel failed|launch timed out and was terminated",
        "uncorrectable (?:ECC|NVLink) error|too many resources requested for launch|CUDA failure",
        "no CUDA(?:-| )capable device|CUDA driver version is insufficient|found no NVIDIA driver",
        "no NVIDIA (?:GPU|driver)|NVIDIA driver (?:on your system is too old|is not|was not)",
        "driver/library version mismatch|no kernel image is available|invalid device ordinal",
        "(?:cuda|gpu|device)s? (?:is |are |were )?(?:not available|unavailable|busy)",
        "CUDA (?:is )?not available",
        "no (?:GPU|CUDA|HIP|accelerator)s?(?: devices?)? (?:were |was |is |are )?(?:found"
        "|detected|available|visible)",
        r"cuda\.is_available\(\) is False|is_available\(\) (?:is|returned) False",
        "GPU (?:is lost|has fallen off|device not found)|not compiled with CUDA|without CUDA support",
        "no supported gpu|(?:invalid|bad) CUDA (?:device|id)",
        "couldn't communicate with the NVIDIA driver|NVIDIA-SMI has failed",
        "all CUDA-capable devices are busy|incompatible with the current PyTorch",
        "unable to initialize (?:the )?(?:CUDA|GPU|backend '(?:cuda|rocm|tpu)')|no devices were found",
        "no HIP GPUs are available|failed to initialize NVML",
        unless=_MEMORY,
    ),
    says(
        4.5,
        r"CU(?:BLAS|DNN|SOLVER|SPARSE|FFT|RAND)_(?:STATUS_)?(?!STATUS_SUCCESS|SUCCESS)\w+|cuDNN error",
        r"cuBLAS error|cuda(?:Get|Set)?Device\w* failed|\bcuInit\b|unhandled cuda error",
        "ncclUnhandledCudaError|cudnn .{0,40}(?:fail|error)",
        unless=_MEMORY,
    ),
    reports(
        4.5,
        r"NVRM: Xid|\bXid \(PCI|\bXid \d+|fallen off the bus|GPU is lost|ECC (?:error|ERROR|page)|\bDBE\b",
        "row remapp|NVLink error|amdgpu.{0,60}(?:ring|fault|reset)|GPU reset|nvidia-container-cli",
        r"libnvidia-ml\.so|libcuda\.so",
        unless="No such file or directory.*import",
    ),
    says(
        4.5,
        r"could not select device driver|with capabilities: \[\[gpu\]\]|nvidia-container-cli",
        "nvidia-container-runtime",
        "unable to determine the device handle for GPU|PCIe Bus Error.{0,80}GPU|nvidia-smi.{0,40}(?:fail"
        "|error)",
        r"\bACL (?:stream|error)|aclrt\w+|\b(?:NPU|HCCL|XPU|TPU) (?:error|fault|function error)",
        "CUDA driver init|CUDA unknown error|CUDA call failed|CUDA initialization",
    ),
    says(
        2,
        "NCCL (?:error|WARN|failure)|ncclInternalError|ncclInvalidUsage|DistBackendError",
        unless="socket|connect|timeout|timed out|net",
    ),
    says(-3, "expected all tensors to be on the same device|found at least two devices"),
    named(
        3, "C(?:uda|UDA|UBLAS|UDNN)|GPU|Gpu|NVML|N[Cc][Cc][Ll]|HIP|ROC[Mm]|Accelerator", unless="(?i:memory)"
    ),
    says(
        4.5,
        "no (?:visible |available |usable )?(?:CUDA |HIP |NVIDIA |AMD )?(?:GPUs?"
        "|accelerators?)(?: devices?)?(?: (?:were|was|is|are))? ?(?:found|detected|available"
        "|visible)?\\b",
        "unable to initialize backend",
        unless="insufficient|nodes are",
    ),
    says(3, "cannot re-initialize CUDA"),
    says(
        3,
        r"\brequires? (?:an? )?(?:working )?(?:CUDA|NVIDIA GPU|GPU|ROCm)\b(?! ?(?:>=|version|\d))",
        unless=_MEMORY,
    ),
    says(1.3, r"\b(?:gpu|cuda|nccl|rocm|hip)\b.{0,60}\b(?:error|fail\w*)\b", unless=_MEMORY),
    reports(
        4.5,
        r"Accelerator Fatal Error|[Ll]ibomptarget (?:fatal )?error|HSA_STATUS_ERROR\w*"
        r"|Memory access fault by GPU",
        r"\berror from cuda[A-Z]\w+|\bcuda[A-Z]\w+(?:\(\))? (?:failed|returned)|_ACC_ERROR\b|\bcu(?:Ctx"
        r"|Stream|Mem|Launch|Module|Event)\w+ (?:error|failed|returned error)",
        r"\bCL_(?:PLATFORM|DEVICE|INVALID|BUILD)\w*|\bclGet\w+ failed|\bVK_ERROR_(?!OUT_OF)\w+",
        r"\bPRESENT clause|not found in present table|partially present on the device",
        unless=_MEMORY,
    ),
    suggest=[
        "See what the driver says: `nvidia-smi`, and `dmesg -T | grep -i -e xid -e nvrm` for the hardware.",
        "A failed assert or illegal access is reported late: run once with `CUDA_LAUNCH_BLOCKING=1` to see "
        "the call; indices out of range (labels, embeddings) are the usual reason.",
        "If no device is seen: does the job ask for one, and do driver, CUDA version and the package's "
        "build fit each other?",
    ],
)
