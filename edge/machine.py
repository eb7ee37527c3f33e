"""What a measurement was made on: the processor and its instruction sets, memory, and the versions that matter."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mineru_edge.runtime.memory import MEMINFO, kernel_bytes
from mineru_edge.runtime.threads import CPUINFO, cpu_count, cpu_field

# What decides which integer and bf16 kernels an engine takes; Linux's names for x86 and ARM.
FEATURES = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
    "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
PACKAGES = ("mineru-edge", "onnxruntime", "openvino", "numpy", "pillow", "tokenizers")


@dataclass(frozen=True, slots=True)
class Machine:
    """`cpus` is how many this process may run on; `memory_bytes` is the machine's, None where it is not told."""

    cpu: str
    architecture: str
    system: str
    python: str
    cpus: int
    features: tuple[str, ...]
    memory_bytes: int | None
    packages: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "features": list(self.features), "packages": dict(self.packages)}


def this_machine(*, cpuinfo: Path = CPUINFO, meminfo: Path = MEMINFO) -> Machine:
    flags = set(cpu_field(cpuinfo, "flags", "Features").split())
    return Machine(
        cpu=cpu_field(cpuinfo, "model name", "Model") or platform.processor() or "unknown",
        architecture=platform.machine(),
        system=platform.system(),
        python=platform.python_version(),
        cpus=cpu_count(),
        features=tuple(name for name in FEATURES if name in flags),
        memory_bytes=kernel_bytes(meminfo, "MemTotal"),
        packages=tuple((name, version) for name in PACKAGES if (version := _version(name))),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
