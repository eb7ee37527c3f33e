"""What a measurement was made on: the processor and its instruction sets, memory, and the versions that matter."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
# What decides which integer and bf16 kernels an engine takes; Linux's names for x86 and ARM.
FEATURES = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
    "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
PACKAGES = ("mineru-edge", "onnxruntime", "numpy", "pillow", "tokenizers")


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
    cpu, memory = _text(cpuinfo), _text(meminfo)
    flags = set(_field(cpu, "flags|Features").split())
    total = _field(memory, "MemTotal")
    return Machine(
        cpu=_field(cpu, "model name|Model") or platform.processor() or "unknown",
        architecture=platform.machine(),
        system=platform.system(),
        python=platform.python_version(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        features=tuple(name for name in FEATURES if name in flags),
        memory_bytes=int(total.split()[0]) * 1024 if total else None,
        packages=tuple((name, version) for name in PACKAGES if (version := _version(name))),
    )


def _field(text: str, names: str) -> str:
    """The first "name : value" line of /proc/cpuinfo or /proc/meminfo, "" without one."""
    found = re.search(rf"^(?:{names})\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
