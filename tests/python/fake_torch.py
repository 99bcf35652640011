"""A module that looks like torch to the Python package: tensors with addresses but without memory, on GPUs that are not there."""

import contextlib
import types


class Device:
    def __init__(self, type, index=None):
        self.type, self.index = type, index

    def __repr__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


def tensor_type(torch):
    """torch.Tensor of that module."""

    class Tensor:
        __module__ = "torch"
        __torch_dispatch__ = None
        requires_grad = is_nested = False
        tangent = negative = None

        def __init__(self, shape, dtype="bfloat16", strides=None, address=None, device=("cuda", 0), layout="strided"):
            self.shape, self.dtype, self.device, self.layout = tuple(shape), dtype, Device(*device), layout
            natural, step = [], 1
            for size in reversed(self.shape):
                natural.insert(0, step)
                step *= size
            self._natural = tuple(natural)
            self._strides = self._natural if strides is None else tuple(strides)
            self._address = torch.allocate(4 * step) if address is None else address

        def stride(self):
            return self._strides

        def is_contiguous(self):
            return self._strides == self._natural

        def get_device(self):
            return -1 if self.device.index is None else self.device.index

        def data_ptr(self):
            if self._address == "none":
                raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
            return self._address

        def to(self, device, non_blocking=False):
            if isinstance(device, str):
                tensor = torch.Tensor(self.shape, device, device=(self.device.type, self.device.index))
                tensor.requires_grad = self.requires_grad
                return tensor
            if self._address == "host":
                torch.uploads.append(self.content)
            return torch.Tensor(self.shape, self.dtype, device=(device.type, device.index))

        def view(self, rows, columns):
            rows = self.numel() // columns if rows == -1 else rows
            tensor = torch.Tensor((rows, columns), self.dtype, address=self._address, device=(self.device.type, self.device.index))
            tensor.content = getattr(self, "content", None)
            return tensor

        def transpose(self, first, second):
            exchanged = list(range(len(self.shape)))
            exchanged[first], exchanged[second] = second, first
            shape, strides = ([of[i] for i in exchanged] for of in (self.shape, self._strides))
            return torch.Tensor(shape, self.dtype, strides, self._address, (self.device.type, self.device.index))

        def pin_memory(self):
            return self

        def __add__(self, number):
            torch.sums.append((self.data_ptr(), number))
            return torch.Tensor(self.shape, self.dtype, device=(self.device.type, self.device.index))

        def __getitem__(self, index):
            if not 0 <= index < self.shape[0]:
                raise IndexError(index)
            address = self._address + index * self._strides[0] * (2 if self.dtype in ("float16", "bfloat16") else 4)
            return torch.Tensor(self.shape[1:], self.dtype, self._strides[1:], address, (self.device.type, self.device.index))

        def element_size(self):
            return 2 if self.dtype in ("float16", "bfloat16") else 4

        def resolve_neg(self):
            return self

        def clone(self, memory_format=None):
            return torch.Tensor(self.shape, self.dtype, device=(self.device.type, self.device.index))

        def contiguous(self):
            return self if self.is_contiguous() else self.clone()

        def detach(self):
            return torch.Tensor(self.shape, self.dtype, self._strides, self._address, (self.device.type, self.device.index))

        def new_zeros(self, shape, dtype=None):
            return torch.zeros(shape, dtype or self.dtype, self.device)

        def zero_(self):
            torch.zeroed.append(self.data_ptr())
            return self

        def is_neg(self):
            return bool(self.negative)

        def numel(self):
            count = 1
            for size in self.shape:
                count *= size
            return count

        def __bool__(self):
            raise RuntimeError("the value of a fake tensor was read")

    return Tensor


class Torch(types.ModuleType):
    """install() it as sys.modules["torch"]. `memory` is the next address that is given out."""

    def __init__(self):
        super().__init__("torch")
        torch = self
        self.grad_enabled, self.streams, self.memory = False, [0], 0x7F0000000000
        self.empty_streams = []  # the current stream at each allocation
        self.float32, self.float16, self.bfloat16, self.float64 = "float32", "float16", "bfloat16", "float64"
        self.int32, self.int64, self.bool = "int32", "int64", "bool"
        self.int8, self.float8_e4m3fn, self.float8_e5m2 = "int8", "float8_e4m3fn", "float8_e5m2"
        self.uint8, self.strided, self.sparse_coo = "uint8", "strided", "sparse_coo"
        self.device = Device
        self.is_grad_enabled = lambda: torch.grad_enabled
        forward_ad = types.SimpleNamespace(_current_level=-1)
        forward_ad.unpack_dual = lambda tensor: types.SimpleNamespace(tangent=tensor.tangent)
        self.autograd = types.SimpleNamespace(forward_ad=forward_ad, Function=self._function())
        self.autocast_dtype, self.contiguous_format = None, "contiguous"
        self.is_autocast_enabled = lambda device: torch.autocast_dtype is not None
        self.get_autocast_dtype = lambda device: torch.autocast_dtype
        self.are_deterministic_algorithms_enabled = lambda: False
        self.zeroed = []  # addresses
        self._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: torch.streams[-1])
        self.cuda = types.SimpleNamespace(
            stream=self._stream,
            ExternalStream=lambda number, device: number,
            default_stream=lambda device: 0,
            is_available=lambda: True,
            current_device=lambda: 0,
        )

        Tensor = tensor_type(self)

        class Parameter(Tensor):
            __module__ = "torch.nn.parameter"

        class DTensor(Tensor):
            __module__ = "torch.distributed.tensor"
            __torch_dispatch__ = "its own"

        self.Tensor, self.Parameter, self.DTensor = Tensor, Parameter, DTensor
        self.uploads = []  # what to() took from the host
        self.sums = []  # (address, number) of what was added on the GPU

    def frombuffer(self, content, dtype):
        count = len(content) // (4 if dtype == self.int32 else 1)
        tensor = self.Tensor((count,), dtype, address="host", device=("cpu",))
        tensor.content = content
        return tensor

    def allocate(self, size_bytes):
        address = self.memory
        self.memory += -(-size_bytes // 512) * 512 + 512
        return address

    @contextlib.contextmanager
    def _stream(self, number):
        self.streams.append(number)
        try:
            yield
        finally:
            self.streams.pop()

    @contextlib.contextmanager
    def no_grad(self):
        before, self.grad_enabled = self.grad_enabled, False
        try:
            yield
        finally:
            self.grad_enabled = before

    def _function(torch):
        class Function:
            """As that of autograd: apply() notes itself and what it saved at its results, whose backward(*gradients) runs it."""

            @classmethod
            def apply(cls, *arguments):
                saved = types.SimpleNamespace(
                    needs_input_grad=tuple([getattr(each, "requires_grad", False) for each in arguments]),
                    set_materialize_grads=lambda value: None,
                )

                def save(*tensors):
                    saved.saved_tensors = tensors

                saved.save_for_backward = save
                with torch.no_grad():
                    results = cls.forward(saved, *arguments)
                for each in results if isinstance(results, tuple) else (results,):
                    each.requires_grad, each.backward = True, lambda *gradients: torch._run(cls.backward, saved, gradients)
                return results

        return Function

    def _run(self, backward, saved, gradients):
        with self.no_grad():
            return backward(saved, *gradients)

    def zeros(self, shape, dtype, device):
        return self.empty(shape, dtype, device).zero_()

    def zeros_like(self, tensor, dtype=None):
        return self.zeros(tensor.shape, dtype or tensor.dtype, tensor.device)

    def empty(self, shape, dtype, device):
        self.empty_streams.append(self.streams[-1])
        return self.Tensor((shape,) if isinstance(shape, int) else shape, dtype, device=(device.type, device.index))

    def empty_strided(self, shape, strides, dtype, device):
        self.empty_streams.append(self.streams[-1])
        return self.Tensor(shape, dtype, strides, device=(device.type, device.index))

    def empty_like(self, tensor):
        return self.empty(tensor.shape, tensor.dtype, tensor.device)
