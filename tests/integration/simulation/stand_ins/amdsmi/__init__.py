"""Stand-in for AMD's amdsmi: one GPU of the architecture in SIMULATED_ARCH.

On the module path it makes vLLM choose its real RocmPlatform on a machine without a GPU. It has
what that platform calls, and nothing else.
"""

import os

# architecture: PCI device id, marketing name, bytes of memory
_GPUS = {
    "gfx942": ("0x74a1", "AMD Instinct MI300X", 192 << 30),
    "gfx1100": ("0x744c", "AMD Radeon RX 7900 XTX", 24 << 30),
    "gfx1151": ("0x1586", "AMD Radeon 8060S", 96 << 30),
}
_ARCH = os.environ["SIMULATED_ARCH"]
_DEVICE_ID, _NAME, _MEMORY = _GPUS[_ARCH]


class AmdSmiException(Exception):
    pass


class AmdSmiMemoryType:
    VRAM = 0


def amdsmi_init(*_: object) -> None:
    pass


def amdsmi_shut_down() -> None:
    pass


def amdsmi_get_processor_handles() -> list[str]:
    return ["gpu0"]


def amdsmi_get_gpu_asic_info(_handle: str) -> dict[str, str]:
    return {
        "target_graphics_version": _ARCH,
        "device_id": _DEVICE_ID,
        "market_name": _NAME,
    }


def amdsmi_get_gpu_memory_total(_handle: str, _kind: int) -> int:
    return _MEMORY


def amdsmi_get_gpu_device_uuid(_handle: str) -> str:
    return f"simulated-{_ARCH}"


def amdsmi_topo_get_link_type(*_: str) -> dict[str, int]:
    return {}


def amdsmi_topo_get_numa_node_number(*_: str) -> int:
    return 0
