"""Calls of torch's tensors like an earlier one, without a step of Python: libattnforge_torch.so reads tensors where torch and CPython have
them, and runs the plan.

What is read of objects (python/shim/python_abi.h) is in no stable ABI. It is found out here, of tensors of which torch says what must be
found; where it is not, calls stay Python's. So they do with ATTNFORGE_TORCH_SHIM=0, and with torch before 2.10.
"""

import ctypes
import itertools
import os
import sys

from .._block_mask import with_mask
from .._library import context, lib, library_path
from .marks import MORE, OF_KEYS, PLACE as MARK, ROWS, mark_rows
from .parts import addresses_of
from .._plans import plan_cache
from .rest import pack_rest

# What `call` is told first. TRAINING is ATTENTION with lengths, of which rows of o and lse that do not count are 0.
ATTENTION, BACKWARD, APPEND, TRAINING = range(4)
_WORDS_OF_TENSOR_IMPL = 26  # the dispatch keys are its last member that tells apart
_shim = _remember = None
_held = set()  # plans that the shim may run
_kept = []  # what the shim has borrowed


class _Layout(ctypes.Structure):
    """As in python_abi.h."""

    _fields_ = [
        *((name, ctypes.py_object) for name in ("none", "yes", "no", "integer", "real", "text", "tuple", "dict", "tensor")),
        *((name, ctypes.py_object) for name in ("forward_ad", "current_level", "requires_grad")),
        *((name, ctypes.c_int64) for name in ("type", "handle", "keys")),
        *((name, ctypes.c_uint64) for name in ("plain_keys", "plain_inference_keys")),
    ]


def load():
    """The library; raises OSError where it is not, or is not wanted."""
    global _shim
    if os.environ.get("ATTNFORGE_TORCH_SHIM") == "0":
        raise OSError("ATTNFORGE_TORCH_SHIM is 0")
    if _shim is None:
        shim = ctypes.CDLL(os.path.join(os.path.dirname(library_path()), "libattnforge_torch.so"))
        shim.attnforge_torch_epoch.restype = shim.attnforge_torch_runs.restype = ctypes.c_uint64
        shim.attnforge_torch_forget()  # calls by plans and block masks of this package when it was imported before
        plan_cache.on_clear.append(forget)
        _shim = shim
    return _shim


def open_calls(torch, device, run=None, clear=None):
    """call() of python_calls.cpp for tensors of a device, "cuda"; of tests "cpu", with `run` and `clear` in place of attnforge_run() and
    attnforge_clear_rest(). None where there is none."""
    global _remember
    try:
        shim, layout = load(), _layout(torch, device)
    except Exception:  # whatever it is: not there, or a torch of which nothing is known
        return None
    if layout is None:
        return None
    functions = (ctypes.c_void_p * 2)()
    with_gil = ctypes.PyDLL(shim._name).attnforge_torch_calls
    with_gil.restype = ctypes.c_char_p
    of_library = [ctypes.cast(each, ctypes.c_void_p) for each in (run or lib()["attnforge_run"], clear or lib()["attnforge_clear_rest"])]
    if with_gil(device.upper().encode(), *of_library, ctypes.byref(layout), functions):
        return None
    _kept.append(layout)
    call, _remember = (ctypes.cast(each, ctypes.py_object).value for each in functions)
    return call


def makes_plain_tensors(torch):
    """False under modes and transforms of torch, of whose tensors nothing can be found out."""
    names = "_are_functorch_transforms_active", "_len_torch_dispatch_stack"
    return not any(ask() for ask in (getattr(torch._C, name, None) for name in names) if ask)


def _layout(torch, device):
    """None where something is not as it has to be."""
    with torch.inference_mode():
        of_inference = torch.empty(1, device=device)
    with torch.inference_mode(False):
        plain = torch.empty(2, 3, device=device)
        odd = torch._neg_view(plain), torch.empty(3, device="meta"), torch.empty(1, dtype=torch.complex64, device=device).conj()
        tensors = plain, of_inference, plain.t(), plain.new_empty(1, requires_grad=True), *odd

    def keys(tensor):
        return torch._C._dispatch_keys(tensor).raw_repr()

    types = _place(object.__basicsize__, [(id(each), id(type(each))) for each in (None, True, 1 << 70, 0.5, "text", (1,), {}, plain)])
    handles = _place(torch.Tensor.__basicsize__, [(id(each), each._cdata) for each in tensors])
    of_keys = _place(8 * _WORDS_OF_TENSOR_IMPL, [(each._cdata, keys(each)) for each in tensors])
    if None in (types, handles, of_keys) or len({keys(each) for each in tensors}) != 5:
        return None
    objects = None, True, False, int, float, str, tuple, dict, torch.Tensor
    names = torch.autograd.forward_ad, sys.intern("_current_level"), sys.intern("requires_grad")
    return _Layout(*objects, *names, types, handles, of_keys, keys(plain), keys(of_inference))


def _place(size, pairs):
    """Where, in bytes, memory has a word, for each of (address, word); the first place, None if there is none."""
    for at in range(0, size, 8):
        if all(ctypes.c_uint64.from_address(address + at).value == word for address, word in pairs):
            return at
    return None


def forget():
    """Before plans go: the shim knows none afterwards."""
    global _held
    before, _held = _held, set()  # first: what is remembered meanwhile is held by the new one
    _shim.attnforge_torch_forget()
    before.clear()


def epoch():
    """Which forget() was the last. Asked before a plan is known to be there that is remembered."""
    return _shim.attnforge_torch_epoch()


def words_of(recipe, rests=b"", device=None, zeros=()):
    """What the shim takes of a call's recipe(): (handle of the plan, bytes, words); None where there is none. The plan is kept. rests: the
    bytes of _c.Rest structs, with marks, on that device. zeros: places of new tensors that are zeros before the run."""
    if recipe is None or recipe[0].passing:
        return None
    plan, tensors, structs, pairs = recipe
    if len(_held) >= plan_cache.limit:
        forget()
    _held.add(plan)
    starts, memory = {}, bytearray(tensors)
    for struct in structs:
        starts[ctypes.addressof(struct)] = len(memory)
        memory += bytes(struct) + bytes(-ctypes.sizeof(struct) % 8)
    of_rests = context(device) if rests else 0, len(memory), len(rests) // 40
    memory += rests
    pointers, addresses, rows = [], [], []
    for at, word in zip(range(0, len(memory), 8), memoryview(memory).cast("Q")):
        if word in starts:
            pointers += starts[word], at, 0
        elif word >> 48 == MARK >> 48:
            addresses += (word - MARK) % MORE, at, (word - MARK) // MORE
        elif word >> 48 == ROWS >> 48:
            rows += (word - ROWS) // OF_KEYS, at, (word - ROWS) % OF_KEYS
    pairs = [word for output, other, below, above in pairs for word in (output - MARK, other - MARK, below, above)]
    lists = [word for each, size in ((pointers, 3), (addresses, 3), (rows, 3), (pairs, 4), (zeros, 1)) for word in (len(each) // size, *each)]
    words = plan.workspace_bytes, *of_rests, *lists
    return plan.handle.value, bytes(memory), bytes((ctypes.c_int64 * len(words))(*words))


def runs():
    """How many calls ran without Python."""
    return 0 if _shim is None else _shim.attnforge_torch_runs()


# ---- What calls are remembered ----


class Marked:
    """A tensor of which only the place among a call's tensors is known."""

    def __init__(self, place):
        self.mark = MARK + place

    def data_ptr(self):
        return self.mark


def _marked(value, Tensor, places):
    """`value`, with a Marked for each tensor in it, in the order in which the shim reads them."""
    if type(value) is Tensor:
        return Marked(next(places))
    if type(value) is tuple:
        return tuple(_marked(each, Tensor, places) for each in value)
    if type(value) is dict:
        return {name: _marked(each, Tensor, places) for name, each in value.items()}
    return value


def low_bits(*tensors):
    """The low four bits of addresses."""
    bits = 0
    for each in tensors:
        bits |= each.data_ptr()
    return bits & 15


def remember_number(number, since, values):
    """Calls with these values have a number, by which Python knows them. since: epoch() of before they were known."""
    _remember(number, (), since, *values)


def _rests(outputs, marks, ends, cu_seqlens):
    """Of new tensors: the first of queries, as lse is, others of keys. ends: marks of cu_seqlens, of queries and of keys."""
    last = cu_seqlens[0] if type(cu_seqlens) in (tuple, list) else cu_seqlens
    more, packed = 4 * (last.shape[0] - 1) * MORE, b""
    for i, (each, mark) in enumerate(zip(outputs, marks)):
        of_keys = i > 0 and each.dim() == 3
        packed += pack_rest(mark, each.shape, each.element_size(), ends[of_keys] + more, mark_rows(of_keys))
    return packed


def remember_attention(key, values, result, used, first=False):
    """After a run of what is remembered by a key. values: what call() was given; used: its options, with those of attn_mask. first: the run
    was the first one: whether there never is a recipe is not known."""
    which, out, q, k, v, stream, rope_offset, attn_mask, options = values
    since, call = epoch(), plan_cache.get_call(key)
    if call is None or stream is not None or rope_offset:
        return
    outputs, places = result if type(result) is tuple else (result,), itertools.count()
    marked = _marked((out, q, k, v, attn_mask, options), type(q), places)
    named = marked[5] if attn_mask is None else _with_mask(marked[5], options, used, attn_mask, marked[4])
    new = () if out is not None else outputs
    if new:
        of_outputs = [Marked(next(places)) for _ in new]
    else:
        of_outputs = marked[0] if type(out) is tuple else marked[:1]
    marks = [each.mark for each in (*marked[1:4], *of_outputs)] + [0] * (2 - len(of_outputs))
    recipe = None if named is None else call.recipe(marks, with_mask(named), low_bits(q, k, v, outputs[0]), out is None)
    if recipe is None and first:
        return
    rests, zeros = b"", ()
    if which == TRAINING and "cu_seqlens" in used:
        rests = _rests(outputs, marks[3:], addresses_of(named)[2:4], used["cu_seqlens"])
    elif which == TRAINING:  # the run was one with out=, here they are new
        recipe, zeros = recipe and (*recipe[:3], ()), range(len(outputs))
    _remember(words_of(recipe, rests, call.device, zeros), new, since, *values)


def _with_mask(marked, given, used, mask, mark):
    """Options `used`, which are `given` with those of a mask, marked. None where a mask was copied: each call makes a copy of its own."""
    before, args = given.get("args") or {}, dict(marked.get("args") or {})
    for name, value in (used.get("args") or {}).items():
        if name in before and value is before[name]:
            continue
        if type(value) is type(mask):
            if value.data_ptr() != mask.data_ptr():
                return None
            value = mark
        args[name] = value
    changed = {name: value for name, value in used.items() if name not in given or value is not given[name]}
    return {**marked, **changed, "args": args}


def backward_words(call, q, k, v, o, lse, dout, dlse, options, gradients, any_rows=False, trained=()):
    """words_of() a BackwardCall whose tensors are these, in this order, those of options, and new gradients; None without. trained: names
    of arrays in args, whose gradients are the last."""
    places = itertools.count(6 if dlse is None else 7)
    named = with_mask(_marked(options, type(q), places))
    dq, dk, dv, *others = (Marked(place).mark for place, _ in zip(places, gradients))
    of_args = others[len(others) - len(trained) :]
    marks = [MARK, MARK + 1, MARK + 2, MARK + 3, MARK + 5, dq, dk, dv, MARK + 4, 0 if dlse is None else MARK + 6]
    marks.append(others[0] if len(others) > len(trained) else 0)
    recipe = call.recipe(marks, named, low_bits(q, k, v, o, dout, *gradients[:3]), any_rows, of_args)
    rests = b""
    if call.packed:
        rests = _rests(gradients[:3], marks[5:8], addresses_of(named)[2:4], options["cu_seqlens"])
    added_to = len(gradients) - len(trained)  # but those of 16 bits, which are written
    zeros = [i for i, each in enumerate(gradients) if (call.zeros if i < added_to else each.element_size() == 4)]
    return words_of(recipe, rests, call.device, zeros)


def remember_backward(call, since, values, gradients, first=False):
    """The same for attention_backward(), whose values may end with the names of arrays in args that have gradients too. since: epoch() of
    before call was known to be there."""
    if call is not None:
        words = backward_words(call, *values[2:10], gradients, True, *values[10:])
        if words is not None or not first:
            _remember(words, gradients, since, *values)


def remember_append(key, values, q_out):
    """As remember_attention(), for append_kv(), which returned q_out."""
    since, call = epoch(), plan_cache.get_call(key)
    if call is None:
        return
    _, given, k, v, k_cache, v_cache, q, *_ = values
    new, places = () if q_out is None or given is not None else (q_out,), itertools.count()
    _, *arrays, rope, _, _, _, _ = _marked(values[1:], type(k), places)
    marks = [0 if each is None else each.mark for each in (*arrays, *(rope or (None, None)))]
    if new:
        marks[5] = MARK + next(places)
    low = low_bits(*(each for each in (k, v, k_cache, v_cache, q, q_out) if each is not None))
    _remember(words_of(call.recipe(marks, low)), new, since, *values)
