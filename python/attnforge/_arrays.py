"""Device arrays of any framework as address, shape, strides and dtype; without importing one.

A backend is found by the module of an array's type, so a framework is used only if the caller has imported it. Each has
  view(name, array, stream, allowed)  an Array whose dtype is one of `allowed`, by default of what attention computes with; raises
                                    InvalidError, which calls the array `name`, for what cannot be taken
  empty(shape, code, device, stream, zeros)  a new contiguous array of the framework, for use on the stream; zeros: filled with zeros
  scratch(size_bytes, device, stream) a context manager: the address of memory for use on the stream, freed in the stream's order
  upload(data, device, stream)      (address, owner) of bytes on the GPU, which any stream may read once it has returned
  stream(device)                    number of the framework's current stream
  torch                             the module torch, or None
"""

import contextlib
import ctypes
import struct
import sys
from typing import NamedTuple

from ._checks import type_name
from ._errors import InvalidError
from ._formats import BF16, FLOATS, FORMATS, ITEM_BYTES

_NAMES = tuple(each.name for each in FORMATS)


def no_dtype(allowed):
    *others, last = [_NAMES[code] for code in allowed]
    return f"which is not supported; use {', '.join(others)}{' or ' if others else ''}{last}"


class Array(NamedTuple):
    """What is read or written: strides in elements, code of the dtype, GPU. The owner keeps the memory alive, where it must."""

    address: int
    shape: tuple
    strides: tuple
    code: int
    device: int
    owner: object = None


class _Torch:
    """torch.Tensor."""

    native = ("cuda",)  # what open_calls() of _calls/native.py takes

    def __init__(self, torch):
        self.torch = torch
        self._dtypes = [getattr(torch, name, None) for name in _NAMES]  # older ones have no float8
        self._codes = {dtype: code for code, dtype in enumerate(self._dtypes)}
        self.stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or self._slow_stream
        self._Tensor = torch.Tensor
        self._transforms = getattr(torch._C, "_functorch", None)
        self._transform = self._transforms.peek_interpreter_stack if self._transforms else lambda: None

    def is_traced(self, q, k, v):
        """Whether ops are to take tensors: those of torch.export and torch.vmap have no memory."""
        Tensor = self._Tensor
        if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor:
            if any(type(each).__module__.startswith("torch._subclasses") for each in (q, k, v)):
                return True
        transform = self._transform()
        return transform is not None and transform.key() == self._transforms.TransformType.Vmap

    def view(self, name, tensor, stream=None, allowed=FLOATS):
        # Tensor subclasses are refused first: some raise when they are asked for a shape.
        kind = type(tensor)
        if kind.__torch_dispatch__ is not self.torch.Tensor.__torch_dispatch__:
            raise InvalidError(
                f"{name} is {type_name(tensor)}, which has operators of its own; attention reads memory and "
                "needs a plain torch.Tensor (of a DTensor: to_local())"
            )
        try:
            return self._view(name, tensor, allowed)
        except InvalidError:
            raise
        except Exception as error:  # torch raises many types for tensors without memory of their own
            raise InvalidError(
                f"{name} has no memory that could be read: {error}. Tensors inside torch.func transforms (vmap, grad, jvp), "
                "uninitialized parameters and the like cannot be taken"
            ) from error

    def _view(self, name, tensor, allowed):
        if tensor.is_nested or tensor.layout != self.torch.strided:
            layout = "nested" if tensor.is_nested else tensor.layout
            raise InvalidError(f"{name} is a tensor of layout {layout}; attention needs a dense, strided one")
        if tensor.device.type != "cuda":
            raise InvalidError(f"{name} is on {tensor.device}; attention needs CUDA tensors")
        code = self._codes.get(tensor.dtype)
        if code not in allowed:
            raise InvalidError(f"{name} has dtype {tensor.dtype}, {no_dtype(allowed)}")
        if tensor.requires_grad and self.torch.is_grad_enabled():
            raise InvalidError(
                f"{name} requires grad, and no gradient goes through it here: call this under torch.no_grad(), or pass {name}.detach()"
            )
        if tensor.is_neg():
            raise InvalidError(
                f"{name} is a view whose sign torch flips when it reads it (is_neg()); pass {name}.resolve_neg()"
            )
        address = tensor.data_ptr()
        if self.torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
            raise InvalidError(
                f"{name} has a forward-mode tangent, and attnforge has no derivative: pass "
                f"torch.autograd.forward_ad.unpack_dual({name}).primal, whose result has none"
            )
        if address == 0 and tensor.numel() > 0:
            raise InvalidError(f"{name} is null: a tensor without memory, as functional and zero tensors are")
        return Array(address, tensor.shape, tensor.stride(), code, tensor.device.index)

    def _on(self, device, stream):
        """The context in which the allocator's memory is for a stream, given by its number."""
        torch = self.torch
        if stream == self.stream(device):
            return contextlib.nullcontext()
        if stream in (0, 1):  # both are numbers of the default stream
            return torch.cuda.stream(torch.cuda.default_stream(device))
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device))

    def empty(self, shape, code, device, stream, zeros=False):
        make = self.torch.zeros if zeros else self.torch.empty
        with self._on(device, stream):
            return make(shape, dtype=self._dtypes[code], device=self.torch.device("cuda", device))

    def allocator(self, shape, code, device):
        """A function of any arguments that does what empty() does for the current stream, quickly."""
        torch, strides = self.torch, contiguous(shape)
        dtype, place = self._dtypes[code], torch.device("cuda", device)
        return lambda *_: torch.empty_strided(shape, strides, dtype=dtype, device=place)

    @contextlib.contextmanager
    def scratch(self, size_bytes, device, stream):
        torch = self.torch
        with self._on(device, stream):
            memory = torch.empty(size_bytes, dtype=torch.uint8, device=torch.device("cuda", device))
        yield memory.data_ptr()  # freed after it: to the pool of the stream, or of the graph that is captured

    def upload(self, data, device, stream):
        torch = self.torch
        with self._on(device, stream):  # a copy from pageable memory is waited for
            tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(torch.device("cuda", device))
        return tensor.data_ptr(), tensor

    def current_scratch(self, size_bytes, device):
        """(owner, address, size) of memory aligned to 256 bytes for use on the current stream, as ctypes passes them fastest."""
        memory = self.torch.empty(size_bytes + 255, dtype=self.torch.uint8, device=self.torch.device("cuda", device))
        return memory, ctypes.c_void_p(-(-memory.data_ptr() // 256) * 256), ctypes.c_size_t(size_bytes)

    def _slow_stream(self, device):
        return self.torch.cuda.current_stream(device).cuda_stream


class _Cupy:
    """cupy.ndarray. cupy has no bfloat16; ml_dtypes' is taken if an array has it."""

    torch = None

    def __init__(self, cupy):
        self._cupy = cupy

    def view(self, name, array, stream=None, allowed=FLOATS):
        code = _NAMES.index(array.dtype.name) if array.dtype.name in _NAMES else None
        if code not in allowed:
            raise InvalidError(f"{name} has dtype {array.dtype}, {no_dtype(allowed)}")
        strides = _in_elements(name, array.strides, ITEM_BYTES[code])
        return Array(array.data.ptr, array.shape, strides, code, array.device.id)

    @contextlib.contextmanager
    def _on(self, device, stream):
        cuda = self._cupy.cuda
        with cuda.Device(device):
            if stream == cuda.get_current_stream().ptr:
                yield
            else:
                with cuda.ExternalStream(stream, device):
                    yield

    def empty(self, shape, code, device, stream, zeros=False):
        make = self._cupy.zeros if zeros else self._cupy.empty
        with self._on(device, stream):
            return make(shape, dtype=_NAMES[code])

    @contextlib.contextmanager
    def scratch(self, size_bytes, device, stream):
        with self._on(device, stream):
            memory = self._cupy.empty(size_bytes, dtype="uint8")
            yield memory.data.ptr
            del memory  # freed while the stream is current: to the pool of that stream

    def upload(self, data, device, stream):
        with self._on(device, stream):
            memory = self._cupy.cuda.alloc(len(data))
            memory.copy_from_host(ctypes.c_char_p(data), len(data))  # waited for
        return memory.ptr, memory

    def stream(self, device):
        with self._cupy.cuda.Device(device):
            return self._cupy.cuda.get_current_stream().ptr


# A DLTensor: data, type and id of the device, ndim, code, bits and lanes of the dtype, shape, strides, byte_offset.
_DL_TENSOR = struct.Struct("=QiiiBBHQQQ")
_DL_CPU, _DL_CUDA, _DL_CUDA_MANAGED = 1, 2, 13
_DL_CODES = {(each.dlpack, each.bits): code for code, each in enumerate(FORMATS)}
_TYPESTRS = {each.typestr: code for code, each in enumerate(FORMATS) if each.typestr}
_LEGACY_DEFAULT_STREAM = 1

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def contiguous(shape):
    """Strides in elements of a contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _in_elements(name, strides_bytes, item_bytes):
    if any(stride % item_bytes for stride in strides_bytes):
        raise InvalidError(
            f"{name} has strides of {tuple(strides_bytes)} bytes, which are not whole elements of {item_bytes} bytes; copy it"
        )
    return tuple(stride // item_bytes for stride in strides_bytes)


def _driver():
    return ctypes.CDLL("libcuda.so.1")


class _DriverMemory:
    """A copy of bytes in memory of the driver's, in the context that is current."""

    def __init__(self, data):
        self.address = 0
        driver, address = _driver(), ctypes.c_uint64()
        status = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(len(data)))
        if status == 0:
            self.address = address.value
            status = driver.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(len(data)))
        if status:
            raise InvalidError(f"{len(data)} bytes could not be uploaded (error {status}): is the arrays' CUDA context current?")

    def __del__(self):
        if self.address:
            _driver().cuMemFree_v2(ctypes.c_uint64(self.address))


class _Protocols:
    """Anything with DLPack or __cuda_array_interface__. Works on the default stream and allocates no outputs."""

    torch = None

    def view(self, name, array, stream=None, allowed=FLOATS):
        if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            return self._dlpack(name, array, stream, allowed)
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            raise InvalidError(
                f"{name} is {type_name(array)}, which is not a device array: it has neither "
                "__dlpack__ nor __cuda_array_interface__"
            )
        return self._cuda_array_interface(name, interface, allowed)

    @staticmethod
    def _dlpack(name, array, stream, allowed):
        kind, _ = array.__dlpack_device__()
        if kind not in (_DL_CUDA, _DL_CUDA_MANAGED):
            where = "in host memory" if kind == _DL_CPU else f"on DLPack device type {kind}"
            raise InvalidError(f"{name} is {type_name(array)} {where}; attention needs arrays on a GPU")
        # The array's owner makes this stream wait for whatever still writes the array.
        capsule = array.__dlpack__(stream=stream or _LEGACY_DEFAULT_STREAM)
        tensor = ctypes.string_at(_capsule_pointer(capsule, b"dltensor"), _DL_TENSOR.size)
        data, _, device, ndim, kind, bits, lanes, sizes, steps, offset = _DL_TENSOR.unpack(tensor)
        code = _DL_CODES.get((kind, bits)) if lanes == 1 else None
        if code not in allowed:
            raise InvalidError(f"{name} has DLPack dtype (code {kind}, {bits} bits), {no_dtype(allowed)}")
        shape = tuple((ctypes.c_int64 * ndim).from_address(sizes)) if ndim else ()
        strides = tuple((ctypes.c_int64 * ndim).from_address(steps)) if steps else contiguous(shape)
        # The capsule keeps the memory alive until it is dropped.
        return Array(data + offset, shape, strides, code, device, capsule)

    @staticmethod
    def _cuda_array_interface(name, interface, allowed):
        code = _TYPESTRS.get(interface["typestr"])
        if code not in allowed:
            with_bf16 = " (bfloat16 by DLPack)" if BF16 in allowed else ""
            raise InvalidError(f"{name} has typestr {interface['typestr']}, {no_dtype(allowed)}{with_bf16}")
        shape = tuple(interface["shape"])
        bytes_ = interface.get("strides")
        strides = contiguous(shape) if bytes_ is None else _in_elements(name, bytes_, ITEM_BYTES[code])
        # The interface does not name the GPU, so 0 is assumed; DLPack names it.
        return Array(interface["data"][0] or 0, shape, strides, code, 0)

    def empty(self, shape, code, device, stream, zeros=False):
        raise InvalidError(
            "attnforge cannot allocate arrays of this framework: pass out= (and, for return_lse, a pair out=(o, lse))"
        )

    @contextlib.contextmanager
    def scratch(self, size_bytes, device, stream):
        """From the driver's own pool, in the context that the arrays are in."""
        driver = _driver()
        address, queue = ctypes.c_uint64(), ctypes.c_void_p(stream)
        status = driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(size_bytes), queue)
        if status:
            raise InvalidError(
                f"the driver gave no workspace of {size_bytes} bytes (error {status}): is the arrays' CUDA context current?"
            )
        try:
            yield address.value
        finally:
            driver.cuMemFreeAsync(address, queue)

    def upload(self, data, device, stream):
        memory = _DriverMemory(data)
        return memory.address, memory

    def stream(self, device):
        return 0


_FRAMEWORKS = (("torch", "Tensor", _Torch), ("cupy", "ndarray", _Cupy))
_protocols = _Protocols()
_by_name = {}
_by_type = {}


def backend_of(array):
    """The backend of an array's type."""
    kind = type(array)
    backend = _by_type.get(kind)
    if backend is None:
        backend = _by_type[kind] = _find_backend(kind)
    return backend


def _find_backend(kind):
    for name, array_type, backend in _FRAMEWORKS:
        module = sys.modules.get(name)
        # A subclass (torch.nn.Parameter) may live in another module than its base.
        if module is not None and issubclass(kind, getattr(module, array_type, ())):
            return _by_name.setdefault(name, backend(module))
    return _protocols
