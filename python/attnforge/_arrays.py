"""Device arrays of any framework as address, shape, strides and dtype; without importing one.

A backend is found by the module of an array's type, so a framework is used only if the caller has imported it.
"""

import ctypes
import sys

from ._errors import InvalidError

FP32, FP16, BF16 = 0, 1, 2
ITEM_BYTES = (4, 2, 2)


class _Torch:
    """torch.Tensor."""

    def __init__(self, torch):
        self._torch = torch
        self._codes = {torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
        self._dtypes = {code: dtype for dtype, code in self._codes.items()}
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._grad_enabled = torch.is_grad_enabled

    def view(self, tensor):
        if tensor.device.type != "cuda":
            raise InvalidError(f"a tensor is on {tensor.device}; attention needs CUDA tensors")
        if tensor.requires_grad and self._grad_enabled():
            raise InvalidError(
                "a tensor requires grad, and attnforge has no backward yet: call it under torch.no_grad(), or detach()"
            )
        code = self._codes.get(tensor.dtype)
        if code is None:
            raise InvalidError(f"dtype {tensor.dtype} is not supported; use float16, bfloat16 or float32")
        return tensor.data_ptr(), tensor.shape, tensor.stride(), code, tensor.device.index, None

    def empty(self, shape, code, device):
        return self._torch.empty(shape, dtype=self._dtypes[code], device=self._torch.device("cuda", device))

    def zeros(self, size_bytes, device):
        zeros = self._torch.zeros(size_bytes, dtype=self._torch.uint8, device=self._torch.device("cuda", device))
        if not self.capturing():
            self._torch.cuda.synchronize(device)  # the run may be on another stream
        return zeros.data_ptr(), zeros

    def capturing(self):
        return self._torch.cuda.is_current_stream_capturing()

    def stream(self, device):
        if self._raw_stream is not None:
            return self._raw_stream(device)
        return self._torch.cuda.current_stream(device).cuda_stream


class _Cupy:
    """cupy.ndarray. cupy has no bfloat16; ml_dtypes' is taken if an array has it."""

    _CODES = {"float32": FP32, "float16": FP16, "bfloat16": BF16}

    def __init__(self, cupy):
        self._cupy = cupy

    def view(self, array):
        code = self._CODES.get(array.dtype.name)
        if code is None:
            raise InvalidError(f"dtype {array.dtype} is not supported; use float16, bfloat16 or float32")
        size = ITEM_BYTES[code]
        strides = tuple(stride // size for stride in array.strides)
        return array.data.ptr, array.shape, strides, code, array.device.id, None

    def empty(self, shape, code, device):
        name = ("float32", "float16", "bfloat16")[code]
        with self._cupy.cuda.Device(device):
            return self._cupy.empty(shape, dtype=name)

    def zeros(self, size_bytes, device):
        with self._cupy.cuda.Device(device) as gpu:
            zeros = self._cupy.zeros(size_bytes, dtype="uint8")
            if not self.capturing():
                gpu.synchronize()
        return zeros.data.ptr, zeros

    def capturing(self):
        return self._cupy.cuda.get_current_stream().is_capturing()

    def stream(self, device):
        with self._cupy.cuda.Device(device):
            return self._cupy.cuda.get_current_stream().ptr


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_CUDA, _DL_CUDA_MANAGED = 2, 13
_DL_CODES = {(2, 32): FP32, (2, 16): FP16, (4, 16): BF16}
_LEGACY_DEFAULT_STREAM = 1

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _contiguous(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class _Protocols:
    """Anything with DLPack or __cuda_array_interface__. Works on the default stream and allocates nothing."""

    def view(self, array):
        if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            return self._dlpack(array)
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            raise InvalidError(
                f"{type(array).__module__}.{type(array).__name__} is no device array: it has neither __dlpack__ nor "
                "__cuda_array_interface__"
            )
        return self._cuda_array_interface(interface)

    @staticmethod
    def _dlpack(array):
        kind, _ = array.__dlpack_device__()
        if kind not in (_DL_CUDA, _DL_CUDA_MANAGED):
            raise InvalidError(f"an array is on DLPack device type {kind}; attention needs CUDA arrays (type {_DL_CUDA})")
        capsule = array.__dlpack__(stream=_LEGACY_DEFAULT_STREAM)
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
        code = _DL_CODES.get((tensor.dtype.code, tensor.dtype.bits)) if tensor.dtype.lanes == 1 else None
        if code is None:
            raise InvalidError(
                f"DLPack dtype (code {tensor.dtype.code}, {tensor.dtype.bits} bits) is not supported; use float16, bfloat16 "
                "or float32"
            )
        shape = tuple(tensor.shape[: tensor.ndim])
        strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _contiguous(shape)
        # The capsule keeps the memory alive until it is dropped.
        return (tensor.data or 0) + tensor.byte_offset, shape, strides, code, tensor.device.device_id, capsule

    @staticmethod
    def _cuda_array_interface(interface):
        code = {"<f4": FP32, "<f2": FP16}.get(interface["typestr"])
        if code is None:
            raise InvalidError(f"typestr {interface['typestr']} is not supported; use <f2 or <f4, or DLPack for bfloat16")
        shape = tuple(interface["shape"])
        bytes_ = interface.get("strides")
        strides = _contiguous(shape) if bytes_ is None else tuple(stride // ITEM_BYTES[code] for stride in bytes_)
        # The interface does not say which GPU; where several are used, DLPack does.
        return interface["data"][0] or 0, shape, strides, code, 0, None

    def empty(self, shape, code, device):
        raise InvalidError(
            "attnforge cannot allocate arrays of this framework: pass out= (and, for return_lse, a pair out=(o, lse))"
        )

    def zeros(self, size_bytes, device):
        """From the driver, in the context that the arrays are in; never freed."""
        driver = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64()
        status = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size_bytes))
        status = status or driver.cuMemsetD8_v2(address, ctypes.c_ubyte(0), ctypes.c_size_t(size_bytes))
        status = status or driver.cuCtxSynchronize()
        if status:
            raise InvalidError(
                f"the driver gave no workspace of {size_bytes} bytes (error {status}): is the arrays' CUDA context current?"
            )
        return address.value, None

    def capturing(self):
        return False

    def stream(self, device):
        return 0


_FRAMEWORKS = {"torch": _Torch, "cupy": _Cupy}
_protocols = _Protocols()
_by_type = {}


def backend_of(array):
    """The backend of an array's type."""
    kind = type(array)
    backend = _by_type.get(kind)
    if backend is None:
        backend = _protocols
        # A subclass (torch.nn.Parameter) may live in another module than its base.
        for base in kind.__mro__:
            name = base.__module__.partition(".")[0]
            if name in _FRAMEWORKS and name in sys.modules:
                backend = _backend(name)
                break
        _by_type[kind] = backend
    return backend


_by_name = {}


def _backend(name):
    backend = _by_name.get(name)
    if backend is None:
        backend = _by_name[name] = _FRAMEWORKS[name](sys.modules[name])
    return backend
