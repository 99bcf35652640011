"""Rows after the last of packed sequences, which kernels do not write: zeros of new arrays, which the GPU sets without the host knowing where
they begin.
"""

import ctypes
import math
import struct

from .._arrays import backend_of
from .._formats import INTEGERS
from .._library import check, context, lib

_pack = struct.Struct("=5Q").pack  # of _c.Rest


def clear_rest(device, queue, arrays):
    """arrays: (address, shape, bytes of an element, the Array of where its sequences begin) of each that attnforge has made, [tokens, heads,
    columns] or [heads, tokens]."""
    packed, count = b"", 0
    for address, shape, item_bytes, begins in arrays:
        size = math.prod(shape)
        if size:
            pieces, rows = shape if len(shape) == 2 else (1, shape[0])
            packed += _pack(address, begins.address + 4 * (begins.shape[0] - 1), rows, size // (pieces * rows) * item_bytes, pieces)
            count += 1
    if count:
        check(lib().attnforge_clear_rest(context(device), packed, count, ctypes.c_void_p(queue)))


def clear_rest_of_tensors(cu_seqlens, of_q, of_kv=()):
    """The same on torch's current stream, of tensors of queries and of keys of a call that was checked. cu_seqlens: as there."""
    backend = backend_of(of_q[0])
    pair = cu_seqlens if isinstance(cu_seqlens, (tuple, list)) else (cu_seqlens, cu_seqlens)
    begins = [backend.view("cu_seqlens", each, None, INTEGERS) for each in pair]
    arrays = [(x.data_ptr(), x.shape, x.element_size(), of) for tensors, of in zip((of_q, of_kv), begins) for x in tensors]
    clear_rest(begins[0].device, backend.stream(begins[0].device), arrays)
