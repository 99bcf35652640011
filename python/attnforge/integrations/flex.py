"""flex_attention() as torch.nn.attention.flex_attention has it, by kernels of attnforge.

    from attnforge.integrations.flex import flex_attention
    o = flex_attention(q, k, v, score_mod=lambda s, b, h, q, k: s + slope[h] * (k - q), block_mask=mask)

The Python functions become texts (flex_trace.py), captured tensors arrays of args, which get gradients where score_mod reads them; a
BlockMask of torch is taken as it is. Functions are traced once for what they have captured. Under torch.compile call options_of() before
the graph, and attnforge.attention(q, k, v, **options) in it.
"""

import math
import re
import types
import weakref

import torch
from torch.nn.attention.flex_attention import create_block_mask

from .._attention import attention
from .._block_mask import BlockMask
from .._errors import UnsupportedError
from .adapter import padded
from .flex_trace import Trace, call

_traced = {}
# What is the same as long as it is the same object. Others may have changed inside.
_FIXED = (bool, int, float, str, type(None), torch.dtype, types.CodeType, types.BuiltinFunctionType)
_masks = weakref.WeakKeyDictionary()
_MOST = 256
# Pairs that are asked to compare a mask's blocks with its function. Of one that reads tensors a training step may have another mask each time,
# for which more than are asked at once would take too long.
_PAIRS_AT_ONCE, _MOST_PAIRS = 2**26, 2**32


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *,
    return_aux=None
):
    """query [batch, heads, seqlen, head_dim], key and value with their heads and lengths. Returns o, or (o, lse) with return_lse.
    kernel_options is not looked at: the plan has its own. Raises UnsupportedError, from the line of a function that has no text."""
    if return_aux is not None:
        raise UnsupportedError("return_aux: lse comes with return_lse=True")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise UnsupportedError(f"query has {query.shape[1]} heads and key {key.shape[1]}: enable_gqa=True says that this is meant")
    options = options_of(score_mod, block_mask, query.shape[2], key.shape[2])
    if scale is not None and scale != query.shape[-1] ** -0.5 or query.shape[-1] % 8:
        options["softmax_scale"] = float(query.shape[-1] ** -0.5 if scale is None else scale)
    if return_lse:
        options["return_lse"] = True
    result = attention(*padded(query, key, value), layout="bhsd", **options)
    o, lse = result if return_lse else (result, None)
    o = o if value.shape[-1] % 8 == 0 else o[..., : value.shape[-1]]
    return (o, lse) if return_lse else o


def options_of(score_mod=None, block_mask=None, seqlen_q=None, seqlen_kv=None):
    """The options of attention() that say the same. seqlen_*: of a call, which a BlockMask of torch is checked against."""
    options, args = {}, {}
    if score_mod is not None:
        options["score"], of_score = _text_of(score_mod, True)
        args.update(_as_arrays(of_score))
    if block_mask is not None:
        text, of_mask = _text_of(block_mask.mask_mod, False)
        if text != "true":
            options["mask"] = text
            args.update(_as_arrays(of_mask))
        blocks = _blocks_of(block_mask, text, of_mask, seqlen_q, seqlen_kv)
        if blocks is not None:
            options["block_mask"] = blocks
    if args:
        options["args"] = args
    return options


# ---- Texts ----


def _text_of(function, is_score):
    """(text, captured tensors by their names in it). A function is traced once for what it has captured, if that can be told; it is looked
    at in each call."""
    if getattr(function, "__name__", "") == "noop_mask" and (function.__module__ or "").startswith("torch."):
        return "true", {}
    captured = tuple(_captured(function, set()))
    fixed = all(isinstance(each, (*_FIXED, torch.Tensor)) or each is torch or each is math for each in captured)
    key = is_score, *(id(each) for each in captured)
    text, places = _known(key, captured) if fixed else (None, None)
    if text is None:
        trace = Trace("of_score" if is_score else "of_mask")
        score = [trace.symbol("s", "float")] if is_score else []
        text = call(function, trace, *score, *(trace.symbol(name, "int", True) for name in ("batch", "head", "q", "k"))).text
        places = {name: next((i for i, each in enumerate(captured) if each is array), None) for name, array in trace.arrays.items()}
        if not fixed or None in places.values():
            return text, dict(trace.arrays)
        if len(_traced) >= _MOST:
            _traced.clear()
        # Ids mean what they meant while nothing died: numbers and code are kept, tensors are not.
        _traced[key] = text, places, [weakref.ref(each) if isinstance(each, torch.Tensor) else lambda each=each: each for each in captured]
    return text, {name: captured[i] for name, i in places.items()}


def _known(key, captured):
    text, places, kept = _traced.get(key, (None, None, ()))
    return (text, places) if kept and all(of() is each for of, each in zip(kept, captured)) else (None, None)


def _as_arrays(tensors):
    return {name: _as_array(tensor) for name, tensor in tensors.items()}


def _as_array(tensor):
    if tensor.dtype in (torch.int64, torch.int16, torch.uint8, torch.int8):
        return tensor.to(torch.int32).contiguous()
    as_it_is = tensor.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.bool)
    return (tensor if as_it_is else tensor.float()).contiguous()


def _captured(function, seen):
    """Everything that a function's result depends on beside its arguments: code, cells, defaults and globals, of functions in them too."""
    code = getattr(function, "__code__", None)
    if code is None or id(function) in seen:
        yield function
        return
    seen.add(id(function))
    yield code
    if getattr(function, "__self__", None) is not None:
        yield function.__self__
    of_torch = (function.__module__ or "").partition(".")[0] == "torch"  # as what and_masks() makes: its cells alone are the caller's
    names = [] if of_torch else [function.__globals__.get(name) for each in _with_nested(code) for name in each.co_names]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    for each in (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *names):
        in_list = isinstance(each, (tuple, list))
        if in_list:
            yield len(each)  # the same objects in other lists are something else
        for one in each if in_list else (each,):
            yield from _captured(one, seen)


def _with_nested(code):
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _with_nested(each)


# ---- Blocks ----


def _blocks_of(mask, text, tensors, seqlen_q, seqlen_kv):
    """The blocks of a BlockMask of torch, read from the GPU once; None where they say nothing that text, its function's, does not.
    tensors: what the text reads, by names. Looked at anew when one was changed in place."""
    sizes = tuple(mask.seq_lengths)
    if seqlen_q is not None and sizes != (seqlen_q, seqlen_kv):
        raise UnsupportedError(
            f"block_mask is of {sizes[0]} queries and {sizes[1]} keys; the call has {seqlen_q} and {seqlen_kv}: create_block_mask() for them"
        )
    known = _masks.setdefault(mask, {})
    versions, kept, follows = known.get(text, (None, (), False))
    now = _versions(tensors.values())
    if versions is None or versions != now or any(of() is not each for of, each in zip(kept, tensors.values())):
        follows = now is not None and _follows(mask, text, sizes, _PAIRS_AT_ONCE if tensors else _MOST_PAIRS)
        known[text] = now, [weakref.ref(each) for each in tensors.values()], follows
    if follows:
        return None
    if None not in known:
        known[None] = _block_mask(mask, sizes)
    return known[None]


def _versions(tensors):
    """How often each was changed in place; None: one does not count that, as tensors of inference_mode()."""
    try:
        return [each._version for each in tensors]
    except RuntimeError:
        return None


def _follows(mask, text, sizes, most_pairs):
    """Whether the blocks are those with a pair that the mask's function keeps, as create_block_mask() makes them; False with more pairs.
    Kernels find windows in its text, and tiles by what it compares, and then need no lists."""
    batch, heads = mask.kv_num_blocks.shape[:2]
    of_one = {"true", *(["batch"] if batch == 1 else []), *(["head"] if heads == 1 else [])}  # which others share
    pairs_of_row = batch * heads * sizes[1]
    if of_one & set(re.findall(r"\w+", text)) or pairs_of_row * sizes[0] > most_pairs:
        return False
    block_q = mask.BLOCK_SIZE[0]
    rows = max(1, _PAIRS_AT_ONCE // max(pairs_of_row, 1) // block_q) * block_q
    device, given = mask.kv_num_blocks.device, _rows_of(mask)
    for first in range(0, sizes[0], rows):
        of_rows = lambda b, h, q, k, first=first: mask.mask_mod(b, h, q + first, k)  # noqa: E731
        try:
            made = create_block_mask(of_rows, batch, heads, min(rows, sizes[0] - first), sizes[1], device=device, BLOCK_SIZE=tuple(mask.BLOCK_SIZE))
        except Exception:  # whatever it is: blocks are what was given
            return False
        wanted = [None if each is None else each[:, :, first // block_q : (first + rows) // block_q] for each in given]
        made = _rows_of(made)
        if not all(x is not None and y is not None and torch.equal(x, y) for x, y in zip(made, wanted)) and _listed(made) != _listed(wanted):
            return False
    return True


def _rows_of(mask):
    """[batch, heads, rows of blocks, ...]: how many partial blocks, and which they are first; the same of full ones, or None."""
    return mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices


def _listed(rows):
    """(where each row of blocks begins, their columns, whether they are partial) of _rows_of() a mask."""
    kinds = [(*rows[:2], 1)]
    if rows[2] is not None:
        kinds.append((*rows[2:], 0))
    kinds = [(count.flatten().tolist(), index.flatten(0, 2).tolist(), partial) for count, index, partial in kinds]
    begin, columns, partials = [0], [], []
    for row in range(len(kinds[0][0])):
        entries = sorted((column, partial) for count, index, partial in kinds for column in index[row][: count[row]])
        columns += [column for column, _ in entries]
        partials += [partial for _, partial in entries]
        begin.append(len(columns))
    return begin, columns, partials


def _block_mask(mask, sizes):
    begin, columns, partials = _listed(_rows_of(mask))
    batch, heads = mask.kv_num_blocks.shape[:2]
    return BlockMask.from_bsr(begin, columns, tuple(mask.BLOCK_SIZE), sizes, heads=heads, batch=batch, partial=partials)
