"""Block masks: which blocks of queries and keys are computed. Made and checked by the library, in host memory and uploaded once a
GPU, or on a GPU."""

import ctypes
import itertools
import math
import re
import sys
import threading
import weakref
from typing import NamedTuple

from . import _c, _checks
from ._arrays import backend_of
from ._calls.code import check_devices, code_of
from ._errors import InvalidError
from ._library import check, context, lib, take_string
from ._problem import Problem

_INT64_MAX = 2**63 - 1
_numbers, _by_number = itertools.count(1), weakref.WeakValueDictionary()


def of_number(number):
    """The BlockMask of a number, which ops of torch have in its place."""
    mask = _by_number.get(number)
    if mask is None:
        raise InvalidError(f"block mask {number} is not there: it must live as long as what was traced with it is called, in one process")
    return mask


class _Lists(NamedTuple):
    """Addresses on a GPU, 0 where there is none, and what keeps them alive."""

    row_begin: int
    columns: int
    bits: int
    bit_blocks: int
    owners: tuple


def _size(name, value):
    return _checks.integer(name, value, 0, _INT64_MAX)


def _shape(block, seqlen, heads, batch):
    block = block if isinstance(block, (tuple, list)) else (block, block)
    seqlen = seqlen if isinstance(seqlen, (tuple, list)) else (seqlen, seqlen)
    block_q, block_kv = _checks.pair("block", block, "a number, or a pair (of queries, of keys)")
    seqlen_q, seqlen_kv = _checks.pair("seqlen", seqlen, "a number, or a pair (of queries, of keys)")
    return _c.BlockMaskShape(
        ctypes.sizeof(_c.BlockMaskShape),
        _checks.integer("block", block_q, 0, 1024),
        _checks.integer("block", block_kv, 0, 1024),
        _size("seqlen", seqlen_q),
        _size("seqlen", seqlen_kv),
        _size("heads", heads),
        _size("batch", batch),
    )


def _array(kind, name, values):
    """A ctypes array and its length, of a sequence, an array with tolist(), or None."""
    if values is None:
        return None, 0
    if hasattr(values, "tolist"):
        values = values.tolist()
    try:
        return (kind * len(values))(*values), len(values)
    except TypeError as error:
        raise InvalidError(f"{name} must be a flat list of whole numbers: {error}") from None


def _bytes_of(mask):
    """One byte a pair, of nested lists or of an array with tolist(), flat."""
    for step in ("detach", "cpu", "numpy"):  # of torch
        mask = getattr(mask, step)() if hasattr(mask, step) else mask
    if hasattr(mask, "tobytes") and getattr(mask.dtype, "itemsize", 0) == 1:
        return bytearray(mask.tobytes())  # numpy's bools and bytes, as they are
    if hasattr(mask, "tolist"):
        mask = mask.tolist()
    flat = bytearray()

    def add(part):
        if part and isinstance(part[0], (list, tuple)):
            for each in part:
                add(each)
        else:
            flat.extend(1 if each else 0 for each in part)

    add(mask)
    return flat


def _dimensions(mask):
    if hasattr(mask, "shape"):
        return tuple(mask.shape)
    sizes = []
    while isinstance(mask, (list, tuple)):
        sizes.append(len(mask))
        mask = mask[0] if mask else None
    return tuple(sizes)


def _place(code, device, stream):
    """The GPU that a mask is made on, and the number of the stream on which its arguments are ready."""
    if stream is not None:
        stream = _checks.integer("stream", stream, 0, 2**64 - 1)
    if device is not None:
        device = _checks.integer("device", device, 0, 2**31 - 1)
    if not code.arrays:
        torch = sys.modules.get("torch")
        if device is None:
            device = torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0
        return device, stream
    device = code.arrays[0].device if device is None else device
    check_devices(code, device, "the mask")
    return device, code.backend.stream(device) if stream is None else stream


class BlockMask:
    """A block mask for attention(..., block_mask=mask): present blocks of block_q queries and block_kv keys are computed, others not.

    Immutable; the lists are uploaded to a GPU at the first call there and kept. Rows of blocks are ordered [batch, heads, rows].
    block: 16, 32, 64 or 128, or a pair (of queries, of keys). seqlen: a number, or a pair. heads: 1, or as many as heads of k, or of
    q, with a mask of their own; batch: 1, or as many as sequences. What cannot be made is an InvalidError with its position.

    number: of this mask among all of the process.
    mask, args: the text that partial blocks are left to, and its arguments, which attention() takes where it is given no mask of its
    own; None where there is none. device: the GPU that the lists were made on; None: they are in host memory.
    """

    def __init__(self, first, function, *arguments, device=None, mask=None, args=None):
        """Of the classmethods below."""
        self._handle = ctypes.c_void_p()
        first = ctypes.byref(first) if isinstance(first, _c.BlockMaskShape) else first
        check(getattr(lib(), function)(first, *arguments, ctypes.byref(self._handle)))
        self.device, self.mask, self.args = device, mask, args
        shape = _c.BlockMaskShape(ctypes.sizeof(_c.BlockMaskShape))
        check(lib().attnforge_block_mask_get_shape(self._handle, ctypes.byref(shape)))
        self._info = _c.BlockMaskInfo(ctypes.sizeof(_c.BlockMaskInfo))
        check(lib().attnforge_block_mask_get(self._handle, ctypes.byref(self._info)))
        text = ctypes.c_void_p()
        check(lib().attnforge_block_mask_words(self._handle, ctypes.byref(text)))
        self.words = take_string(text)
        self.seqlen = shape.seqlen_q, shape.seqlen_kv
        self.block = shape.block_q, shape.block_kv
        self.heads, self.batch = shape.heads, shape.batch
        self._uploaded, self._lock = {}, threading.Lock()
        self.of_problem = None  # block_words_of()
        self.number = next(_numbers)
        _by_number[self.number] = self

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle:
            lib().attnforge_block_mask_destroy(handle)

    @classmethod
    def from_bsr(cls, row_begin, columns, block, seqlen, heads=1, batch=1, partial=None, bits=None, bit_blocks=None):
        """Of block-sparse rows: row r has the block columns columns[row_begin[r]:row_begin[r + 1]], ascending.

        partial: of each entry, whether it is partial; bits: 32-bit words of blocks of bits, rows of ceil(block_kv / 32) words, and
        bit_blocks: of each entry which of these blocks it has, -1 for none.
        """
        begin, rows = _array(ctypes.c_int32, "row_begin", row_begin)
        entries, count = _array(ctypes.c_int32, "columns", columns)
        is_partial, given = _array(ctypes.c_uint8, "partial", partial)
        words, num_words = _array(ctypes.c_uint32, "bits", bits)
        blocks, of_bits = _array(ctypes.c_int32, "bit_blocks", bit_blocks)
        for name, array, length in (("partial", is_partial, given), ("bit_blocks", blocks, of_bits)):
            if array is not None and length != count:
                raise InvalidError(f"{name} has {length} entries; columns has {count}")
        shape = _shape(block, seqlen, heads, batch)
        return cls(shape, "attnforge_block_mask_from_bsr", begin, rows, entries, count, is_partial, words, num_words, blocks)

    @classmethod
    def from_dense(cls, mask, block):
        """Of booleans [seqlen_q, seqlen_kv], [heads, ...] or [batch, heads, ...]: an array with tolist(), or nested lists. A contiguous
        torch.Tensor of bools or bytes on a GPU is read there, on torch's current stream, and so is the mask made there."""
        sizes = _dimensions(mask)
        if not 2 <= len(sizes) <= 4:
            raise InvalidError(f"mask has shape {sizes}; it must be [seqlen_q, seqlen_kv], with heads and batch before it")
        batch, heads, seqlen_q, seqlen_kv = (1, 1, 1, 1)[: 4 - len(sizes)] + sizes
        if getattr(mask, "is_cuda", False) and mask.is_contiguous() and mask.element_size() == 1:
            shape, device = _shape(block, (seqlen_q, seqlen_kv), heads, batch), mask.device.index
            arguments = ctypes.byref(shape), mask.data_ptr(), backend_of(mask).stream(device)
            return cls(context(device), "attnforge_block_mask_from_dense_on_gpu", *arguments, device=device)
        seen = _bytes_of(mask)
        buffer = (ctypes.c_uint8 * len(seen)).from_buffer(seen)
        return cls(_shape(block, (seqlen_q, seqlen_kv), heads, batch), "attnforge_block_mask_from_dense", buffer, len(seen))

    @classmethod
    def random(cls, density, block, seqlen, heads=1, batch=1, seed=0):
        """Each block is present with the probability `density`; those on the diagonal always."""
        density = ctypes.c_double(_checks.number("density", density))
        seed = _checks.integer("seed", seed, 0, 2**64 - 1)
        return cls(_shape(block, seqlen, heads, batch), "attnforge_block_mask_random", density, seed)

    @classmethod
    def sliding_window(cls, left, right, block, seqlen, heads=1, batch=1):
        """A query sees the keys from position - left to position + right; -1: all on that side."""
        return cls.global_window(0, left, right, block, seqlen, heads, batch)

    @classmethod
    def global_window(cls, global_keys, left, right, block, seqlen, heads=1, batch=1):
        """sliding_window(), and all queries see the first global_keys keys, the first global_keys queries all keys."""
        sides = [_checks.integer(name, value, -1, _INT64_MAX) for name, value in (("left", left), ("right", right))]
        shape = _shape(block, seqlen, heads, batch)
        return cls(shape, "attnforge_block_mask_window", _size("global_keys", global_keys), *sides)

    @classmethod
    def strided(cls, local, stride, block, seqlen, heads=1, batch=1):
        """Whole blocks: those on the diagonal, `local` before them, and each `stride`th block column."""
        shape = _shape(block, seqlen, heads, batch)
        return cls(shape, "attnforge_block_mask_strided", _size("local", local), _size("stride", stride))

    @classmethod
    def documents(cls, lengths, block, heads=1, batch=1):
        """Documents of these lengths one after another: a query sees the keys of its own."""
        array, count = _array(ctypes.c_int64, "lengths", lengths)
        if array is None:
            raise InvalidError("lengths must be a list of the lengths of documents, not None")
        return cls(_shape(block, sum(array), heads, batch), "attnforge_block_mask_documents", array, count)

    @classmethod
    def from_text(
        cls, mask, seqlen_q, seqlen_kv=None, args=None, block=128, heads=None, batch=None, bits=False, device=None, stream=None
    ):
        """Of a mask text and its args, as attention() takes them, classified on the GPU: once for all calls with the mask.

        Blocks of which no pair is seen are not present, full ones need no text; in partial ones attention(..., block_mask=mask) asks
        the text, with these args. bits: partial blocks have a bit for each pair instead, and calls compile no text. heads: of q,
        wanted where the text names `head`; batch: where it names `batch`. Causal and windows, which calls apply, are not looked at.
        device: the number of a GPU; default: that of args' arrays, else torch's current one, else 0. The arrays must be ready on
        `stream` (default: the framework's current one), which is waited for, and keep their values while the mask is used.
        """
        text = _checks.text("mask", mask)
        for name, value in (("head", heads), ("batch", batch)):
            if value is None and re.search(rf"\b{name}\b", text):
                raise InvalidError(f"the mask names {name}; say {'heads' if name == 'head' else name}=, how many there are")
        code = code_of(None, text, args, stream)
        device, queue = _place(code, device, stream)
        shape = _shape(block, (seqlen_q, seqlen_q if seqlen_kv is None else seqlen_kv), heads or 1, batch or 1)
        problem = Problem(
            batch=shape.batch,
            num_heads_q=shape.heads,
            seqlen_q=shape.seqlen_q,
            seqlen_kv=shape.seqlen_kv,
            mask_block_q=shape.block_q,
            mask_block_kv=shape.block_kv,
            mask_bits=bits,
            mask=text,
            args=code.texts[2],
        )
        of_calls = {} if bits else {"mask": text, "args": args}
        with problem.handle() as handle:
            arguments = handle, code.argument(), queue
            return cls(context(device), "attnforge_block_mask_from_text", *arguments, device=device, **of_calls)

    def to_host(self):
        """A copy in host memory, which may be used on any GPU."""
        copy = BlockMask(self._handle, "attnforge_block_mask_to_host")
        copy.mask, copy.args = self.mask, self.args
        return copy

    # With lists and a number of its own, which copies of attributes would share.
    __copy__ = to_host

    def __deepcopy__(self, _):
        return self.to_host()

    def transposed(self):
        """The same blocks by columns, where this mask is: queries and keys change places. Without the text, which is of rows."""
        return BlockMask(self._handle, "attnforge_block_mask_transpose", None, device=self.device)

    @property
    def blocks(self):
        """How many blocks there are, of all masks."""
        return self._info.blocks

    @property
    def full(self):
        """How many are present and full."""
        return self._info.full

    @property
    def partial(self):
        """How many are present and partial."""
        return self._info.partial

    @property
    def density(self):
        """The share of blocks that are present."""
        return (self.full + self.partial) / self.blocks if self.blocks else 0.0

    @property
    def has_bits(self):
        """Whether partial blocks have a bit for each pair."""
        return self._info.bits_count > 0

    def __repr__(self):
        return f"BlockMask({self.words}, seqlen={self.seqlen[0]}:{self.seqlen[1]}, {self.full} full and {self.partial} partial blocks)"

    def to_text(self, head=0, sequence=0):
        """A drawing of one head in at most 64 lines: '#' full, '+' partial or mixed."""
        return self._draw(head, sequence, 0)

    def to_svg(self, head=0, sequence=0):
        """The same as an SVG picture."""
        return self._draw(head, sequence, 1)

    def _draw(self, head, sequence, svg):
        text = ctypes.c_void_p()
        head, sequence = _checks.integer("head", head, 0, _INT64_MAX), _checks.integer("sequence", sequence, 0, _INT64_MAX)
        check(lib().attnforge_block_mask_draw(self._handle, head, sequence, svg, ctypes.byref(text)))
        return take_string(text)

    def lists(self):
        """(row_begin, columns, bits, bit_blocks) as bytes of 32-bit integers; columns hold block column * 2 + partial. One entry at
        least of each that there is."""
        if self.device is not None:
            return self.to_host().lists()
        info = self._info
        lists = [(info.row_begin, info.row_begin_count), (info.columns, info.columns_count)]
        if self.has_bits:
            lists += [(info.bits, info.bits_count), (info.bit_blocks, info.columns_count)]
        return tuple(ctypes.string_at(address, 4 * count) if count else bytes(4) for address, count in lists)

    def uploaded(self, device):
        """What on_gpu() has given for a GPU; None: it was not asked."""
        return self._uploaded.get(device)

    def on_gpu(self, backend, device, stream):
        """The lists on a GPU, for use on any stream after the first call has returned; uploaded there once."""
        if self.device is not None and self.device != device:
            raise InvalidError(f"block_mask is on GPU {self.device} and q is on GPU {device}; to_host() can be used on both")
        with self._lock:
            uploaded = self._uploaded.get(device)
            if uploaded is None and self.device is not None:
                there = _c.BlockMaskLists(ctypes.sizeof(_c.BlockMaskLists))
                check(lib().attnforge_block_mask_on_gpu(self._handle, ctypes.byref(there)))
                addresses = (there.row_begin, there.columns, there.bits or 0, there.bit_blocks or 0)
                uploaded = self._uploaded[device] = _Lists(*addresses, ())
            if uploaded is None:
                made = [backend.upload(data, device, stream) for data in self.lists()]
                addresses = [address for address, _ in made] + [0] * (4 - len(made))
                uploaded = self._uploaded[device] = _Lists(*addresses, tuple(owner for _, owner in made))
            return uploaded


class BlockWords(NamedTuple):
    """What a problem says of a block mask, and of what seqlen it is."""

    seqlen: tuple
    mask_block_q: int
    mask_block_kv: int
    mask_heads: int
    mask_batch: int
    mask_bits: bool
    density: float  # the nearest power of two: masks of about one density share a plan

    def of_problem(self):
        """By the names of its fields."""
        return dict(zip(self._fields[1:], self[1:]))


def block_words_of(block_mask):
    """Of a BlockMask, or None. Raises InvalidError for anything else."""
    if block_mask is None:
        return None
    if not isinstance(block_mask, BlockMask):
        _checks.refuse_type("block_mask", block_mask, "an attnforge.BlockMask")
    m = block_mask
    if m.of_problem is None:
        density = 2.0 ** round(math.log2(max(m.density, 2.0**-19)))
        m.of_problem = BlockWords(m.seqlen, *m.block, m.heads, m.batch, m.has_bits, min(density, 1.0))
    return m.of_problem


_NUMBER = 0  # a name that no caller's option can have: it is no text


def by_number(options):
    """Options by their names as the shim compares them: there is one block mask of a number, ever. One with a text is looked at in each call."""
    mask = options.get("block_mask")
    return {**options, "block_mask": None, _NUMBER: mask.number} if type(mask) is BlockMask and mask.mask is None else options


def with_mask(options):
    """The other way round, as long as the mask lives."""
    return {**options, "block_mask": of_number(options[_NUMBER])} if _NUMBER in options else options
