"""XLA's foreign functions by ctypes: a handler of XLA calls a function of Python with buffers, attributes and a stream.

The structs are those of xla/ffi/api/c_api.h, which jaxlib brings (jax.ffi.include_dir()); its version of them is told to XLA. Nothing is
compiled.
"""

import contextlib
import ctypes
import re
import threading
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p

from .. import _arrays
from .._arrays import Array, contiguous
from .._errors import AttnforgeError, InvalidError
from .._formats import BF16, BOOL, FLOATS, FP16, FP32, INT32

_CODES = {1: BOOL, 4: INT32, 10: FP16, 11: FP32, 16: BF16}  # of XLA_FFI_DataType
_METADATA, _STRING, _EXECUTE = 1, 4, 3
_INVALID_ARGUMENT, _INTERNAL = 3, 13
_START = [("struct_size", c_size_t), ("extension_start", c_void_p)]


def _struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [*_START, *fields]})


class _Extension(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", c_void_p)]


class _Span(ctypes.Structure):
    _fields_ = [("pointer", c_void_p), ("length", c_size_t)]


_Version = _struct("_Version", ("major", c_int), ("minor", c_int))
_Buffer = _struct("_Buffer", ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", ctypes.POINTER(c_int64)))
_List = _struct("_List", ("size", c_int64), ("types", ctypes.POINTER(c_int)), ("items", ctypes.POINTER(c_void_p)))
_Attributes = _struct(
    "_Attributes", ("size", c_int64), ("types", ctypes.POINTER(c_int)), ("names", ctypes.POINTER(c_void_p)), ("items", ctypes.POINTER(c_void_p))
)
_Frame = _struct(
    "_Frame", ("api", c_void_p), ("context", c_void_p), ("stage", c_int), ("args", _List), ("rets", _List), ("attributes", _Attributes)
)
_Failure = _struct("_Failure", ("message", c_char_p), ("code", c_int))
_OfMessage = _struct("_OfMessage", ("message", c_char_p), ("error", c_void_p))
_OfError = _struct("_OfError", ("error", c_void_p))
_OfStream = _struct("_OfStream", ("context", c_void_p), ("stream", c_void_p))
_OfDevice = _struct("_OfDevice", ("context", c_void_p), ("ordinal", c_int32))
_OfMemory = _struct("_OfMemory", ("context", c_void_p), ("size", c_size_t), ("alignment", c_size_t), ("data", c_void_p))
_NAMES = (
    "error_create error_message error_destroy handler_register stream_get type_register context_get state_set state_get memory_allocate "
    "memory_free schedule threads future_create future_available future_error run_id device_ordinal"
).split()
_Api = _struct("_Api", ("version", _Version), ("internal", c_void_p), *((name, c_void_p) for name in _NAMES))


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32), ("state_type", c_int64)]


Handler = ctypes.CFUNCTYPE(c_void_p, ctypes.POINTER(_Frame))


def version_of(header):
    """(major, minor) that a text of c_api.h defines."""
    return tuple(int(re.search(rf"#define XLA_FFI_API_{name} (\d+)", header)[1]) for name in ("MAJOR", "MINOR"))


class Call:
    """What a run has of XLA; while the handler runs."""

    def __init__(self, frame):
        self.api, self.context = _Api.from_address(frame.api), frame.context

    def ask(self, name, kind, **fields):
        """The struct that a function of XLA's fills in. Raises AttnforgeError with XLA's text."""
        asked = kind(struct_size=ctypes.sizeof(kind), context=self.context, **fields)
        error = self.call(name, asked)
        if error:
            told, ended = (of(struct_size=ctypes.sizeof(of), error=error) for of in (_OfMessage, _OfError))
            self.call("error_message", told)
            message = told.message.decode(errors="replace")
            self.call("error_destroy", ended)
            raise AttnforgeError(f"XLA refused {name}: {message}")
        return asked

    def call(self, name, asked):
        return ctypes.CFUNCTYPE(c_void_p, c_void_p)(getattr(self.api, name))(ctypes.addressof(asked))

    def device(self):
        known = self.api.struct_size > _Api.device_ordinal.offset and self.api.device_ordinal
        return self.ask("device_ordinal", _OfDevice).ordinal if known else 0


class Buffer:
    """A dense array of XLA's, as attention() takes it."""

    def __init__(self, address, shape, code, device):
        self.array, self.shape = Array(address, shape, contiguous(shape), code, device), shape


class _Xla(_arrays._Protocols):
    """Buffers; memory for a workspace is XLA's, freed at the end of the call in the stream's order."""

    def view(self, name, buffer, stream=None, allowed=FLOATS):
        if buffer.array.code not in allowed:
            raise InvalidError(f"{name} has a dtype that is not taken here")
        return buffer.array

    @contextlib.contextmanager
    def scratch(self, size_bytes, device, stream):
        most = 256 - _XLA_ALIGNMENT
        begin = _running.call.ask("memory_allocate", _OfMemory, size=size_bytes + most, alignment=_XLA_ALIGNMENT).data
        yield -(-begin // 256) * 256


_XLA_ALIGNMENT = 16  # the most that it promises
_running = threading.local()  # call: of this thread's handler
BACKEND = _arrays._by_type[Buffer] = _Xla()


def _buffers(items, device):
    for i in range(items.size):
        buffer = _Buffer.from_address(items.items[i])
        if buffer.dtype not in _CODES:
            raise InvalidError(f"array {i} has a dtype (XLA's number {buffer.dtype}) that attention does not take")
        yield Buffer(buffer.data or 0, tuple(buffer.dims[: buffer.rank]), _CODES[buffer.dtype], device)


def _attributes(attributes):
    for i in range(attributes.size):
        if attributes.types[i] == _STRING:
            name, text = _Span.from_address(attributes.names[i]), _Span.from_address(attributes.items[i])
            yield tuple(ctypes.string_at(span.pointer, span.length).decode() if span.length else "" for span in (name, text))


def handler_of(function, version, stream_of=None):
    """A Handler that calls function(arguments, results, stream, **attributes) with Buffers; keep it as long as XLA may call it.

    stream_of: of a Call, the number of its stream; default: XLA's.
    """
    stream_of = stream_of or (lambda call: call.ask("stream_get", _OfStream).stream or 0)

    def handle(frame):
        frame = frame.contents
        extension = frame.extension_start and _Extension.from_address(frame.extension_start)
        if extension and extension.type == _METADATA:
            metadata = _Metadata.from_address(extension.metadata)
            metadata.version.major, metadata.version.minor = version
            return None
        if frame.stage != _EXECUTE:
            return None
        call = _running.call = Call(frame)
        try:
            device = call.device()
            arguments, results = (list(_buffers(each, device)) for each in (frame.args, frame.rets))
            function(arguments, results, stream_of(call), **dict(_attributes(frame.attributes)))
        except BaseException as error:  # an exception cannot pass through XLA
            code = _INVALID_ARGUMENT if isinstance(error, (ValueError, NotImplementedError)) else _INTERNAL
            message = f"{type(error).__name__}: {error}".encode()
            failure = _Failure(struct_size=ctypes.sizeof(_Failure), message=message, code=code)
            return ctypes.CFUNCTYPE(c_void_p, c_void_p)(call.api.error_create)(ctypes.addressof(failure))
        finally:
            del _running.call
        return None

    return Handler(handle)
