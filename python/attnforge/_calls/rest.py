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


def pack_rest(address, shape, item_bytes, end, rows=None):
    """The bytes of a _c.Rest, none of an array without elements. end: the address of cu_seqlens' last number. rows: a mark in their place."""
    size = math.prod(shape)
    if size == 0:
        return b""
    pieces, own_rows = shape if len(shape) == 2 else (1, shape[0])
    return _pack(address, end, own_rows if rows is None else rows, size // (pieces * own_rows) * item_bytes, pieces)


def clear_rest(device, queue, arrays):
    """arrays: the first four arguments of pack_rest() for each that attnforge has made, [tokens, heads, columns] or [heads, tokens]."""
    packed = b"".join([pack_rest(*each) for each in arrays])
    if packed:
        check(lib().attnforge_clear_rest(context(device), packed, len(packed) // 40, ctypes.c_void_p(queue)))


def end_of(begins):
    """The address of the last number of an Array of cu_seqlens."""
    return begins.address + 4 * (begins.shape[0] - 1)


def clear_rest_of_tensors(cu_seqlens, of_q, of_kv=()):
    """The same on torch's current stream, of tensors of queries and of keys of a call that was checked. cu_seqlens: as there."""
    backend = backend_of(of_q[0])
    pair = cu_seqlens if isinstance(cu_seqlens, (tuple, list)) else (cu_seqlens, cu_seqlens)
    begins = [backend.view("cu_seqlens", each, None, INTEGERS) for each in pair]
    arrays = [(x.data_ptr(), x.shape, x.element_size(), end_of(of)) for tensors, of in zip((of_q, of_kv), begins) for x in tensors]
    clear_rest(begins[0].device, backend.stream(begins[0].device), arrays)
