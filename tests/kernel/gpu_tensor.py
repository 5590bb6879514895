"""Tensors that torch takes for GPU tensors, in host memory, on a torch without a GPU."""

import ctypes

import torch

_CUDA = 2  # DLPack's device type
_TYPES = {  # DLPack's type code and bits
    torch.bfloat16: (4, 16),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.int64: (0, 64),
    torch.float8_e4m3fn: (10, 8),
    torch.float8_e5m2: (12, 8),
}


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dim", ctypes.c_int32),
        ("type", _Type),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_kept: list[object] = []


def on_gpu(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """`tensor`'s memory, sizes and strides as a tensor of the device cuda:`device`.

    The dispatcher sends it to the CUDA kernels. Nothing else of torch can work with it.
    """
    torch.cuda._lazy_init = lambda: None  # torch would start the GPU that is not there
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
    managed = _Managed(
        _Tensor(
            tensor.data_ptr(),
            _Device(_CUDA, device),
            tensor.dim(),
            _Type(*_TYPES[tensor.dtype], 1),
            sizes,
            strides,
            0,
        )
    )
    _kept.extend((managed, sizes, strides, tensor))
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    made = torch.utils.dlpack.from_dlpack(capsule(ctypes.addressof(managed), b"dltensor", None))
    assert made.data_ptr() == tensor.data_ptr()
    return made
