"""Masks of transformers as what attention() takes, without a dense one where that can be.

transformers makes a mask once for all layers, by mask_for(), which gives None where causal, a window and lengths say all; else a tensor
of int32 and of four dimensions, which models pass on as they are, of one of these kinds:
  [batch, 1, 1, 1]      how many keys of a cache are filled
  [batch, 1, 1, 1 + n]  the same, and then of each of n keys whether it counts: padding
  [batch, 1, 2, n]      which document each of n tokens is in (twice)
  [batch, 1, 3, n]      of each query the first and the last key that it sees (and 0), whatever causal and windows say
Dense masks of the caller's, [batch, heads, queries, keys], become code of the caller's: floats a score text, whose aligned array is read
by rows of keys; booleans a mask text, which a step before the kernel asks once for each pair.
"""

import torch

from .._checks import refuse_type
from .._errors import InvalidError, UnsupportedError

_USED, _DOCUMENTS, _ROWS = 1, 2, 3  # by the third dimension
_OF_MASKS = torch.bool, torch.float32, torch.float16, torch.bfloat16


def mask_for(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, allow_is_causal_skip=True,
    use_vmap=False, device="cpu", packed_under_compile=True, **kwargs
):
    """The mask function of transformers' AttentionMaskInterface; attention_mask: [batch, keys], True where a key counts."""
    traced = torch.compiler.is_compiling()
    static = isinstance(q_offset, torch.Tensor) or q_offset + q_length - kv_offset != kv_length
    if traced:
        more = _more_in_a_graph(mask_function, allow_is_causal_skip and q_length > 1, attention_mask, packed_under_compile)
    else:
        more = _more_than_causal(mask_function)
    keys = None if attention_mask is None else _keys(attention_mask, kv_length, kv_offset)
    if use_vmap or more == "other":
        from transformers.masking_utils import sdpa_mask

        same = dict(q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, device=device)
        return sdpa_mask(batch_size, q_length, kv_length, **same, allow_is_causal_skip=False, use_vmap=use_vmap)
    if more == "rows":
        return _rows(mask_function, (batch_size, q_length, kv_length), (q_offset, kv_offset), keys, device)
    if more == "packed" and q_length > 1:
        return _documents(mask_function, batch_size, q_length, device)
    if keys is None and not static or keys is not None and not traced and not static and bool(keys.all()):
        return None
    used = torch.zeros(batch_size, 1, dtype=torch.int32, device=device) + (q_offset + q_length - kv_offset)
    if keys is not None and not traced and static:
        filled = torch.arange(kv_length, device=device) < used
        keys = None if bool((keys | ~filled).all()) else keys
    return torch.cat([used] if keys is None else [used, keys], 1)[:, None, None].to(torch.int32)


def _keys(attention_mask, kv_length, kv_offset):
    """[batch, kv_length]: as long as the cache is, False where nobody has said."""
    missing = kv_length + kv_offset - attention_mask.shape[-1]
    if missing > 0:
        attention_mask = torch.nn.functional.pad(attention_mask, (0, missing))
    return attention_mask[:, kv_offset : kv_offset + kv_length]


def _more_in_a_graph(function, is_plain, attention_mask, packed_under_compile):
    """The same where torch.compile traces, which sees no more of a closure than its name. is_plain: transformers says so."""
    name = getattr(function, "__name__", "")
    if is_plain or name not in ("and_mask", "or_mask"):
        return None
    if name == "or_mask":  # blocks of images that are seen from both sides
        return "rows"
    return "packed" if attention_mask is None and packed_under_compile else None


def _more_than_causal(function):
    """None where a mask function is what attention() knows by causal and windows alone, "packed" where documents come to that, else
    "other". transformers builds these functions of closures."""
    name = getattr(function, "__qualname__", "")
    if name.startswith("and_masks."):
        found = {_more_than_causal(each) for cell in function.__closure__ for each in cell.cell_contents}
        return "other" if "other" in found else "packed" if "packed" in found else None
    if name.startswith("packed_sequence_mask_function."):
        return "packed"
    known = "causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay.", "sliding_window_bidirectional_overlay."
    return None if function is None or name.startswith(known) else "other"


def _documents(function, batch, rows, device):
    """[batch, 1, 2, rows]: a document begins where a token does not see the one before it."""
    at, sequence = torch.arange(rows, device=device)[None, :], torch.arange(batch, device=device)[:, None]
    begins = ~function(sequence, torch.zeros_like(sequence), at, (at - 1).clamp(min=0)).expand(batch, rows)
    begins = begins & (at > 0)
    return begins.cumsum(1).to(torch.int32)[:, None, None].expand(-1, -1, 2, -1).contiguous()


def _rows(function, sizes, offsets, keys, device):
    """[batch, 1, 3, queries]; the keys that a row sees are those from the first to the last, which is looked at on the GPU. sizes: batch,
    queries, keys; offsets: of queries and keys."""
    sequence, q, k = (torch.arange(size, device=device).view([-1 if i == j else 1 for j in range(3)]) for i, size in enumerate(sizes))
    seen = function(sequence, torch.zeros_like(sequence), q + offsets[0], k + offsets[1]).expand(sizes)
    seen = seen if keys is None else seen & keys[:, None]
    first, last = torch.where(seen, k, sizes[2]).amin(2), torch.where(seen, k, -1).amax(2)
    whole = (seen.sum(2) == (last - first + 1).clamp(min=0)).all()
    torch._assert_async(whole, "a query sees keys with others between them that it does not")
    return torch.stack([first, last, torch.zeros_like(first)], 1)[:, None].to(torch.int32)


# ---- What attention() takes of a mask ----


def apply(options, mask, bias, queries, keys):
    """Adds a mask of mask_for()'s kinds or a dense one, and a bias that is added to scores, to the options of attention()."""
    if bias is not None:
        add_dense(options, bias, queries, keys, "bias")
    if mask is None:
        return
    if mask.dim() != 4:
        raise UnsupportedError(
            f"attention_mask has shape {tuple(mask.shape)}; it must be [batch, heads, queries, keys], or left to transformers"
        )
    if mask.dtype != torch.int32:
        options.pop("causal", None)  # a dense mask says all
        options.pop("window", None)
        add_dense(options, mask, queries, keys, "mask")
        return
    kind = mask.shape[2]
    if kind == _USED:
        options["used_kv"] = mask[:, 0, 0, 0].contiguous()
        if mask.shape[3] > 1:
            _add(options, mask="valid[batch * columns + 1 + k]", args={"valid": mask.contiguous(), "columns": mask.shape[3]})
    elif kind == _DOCUMENTS:
        of_tokens = mask[:, 0, 0].contiguous()
        _add(options, mask="document[batch * seqlen_q + q] == document[batch * seqlen_kv + k]", args={"document": of_tokens})
    else:
        options.pop("causal", None)
        options.pop("window", None)
        first, last = (mask[:, 0, i].contiguous() for i in range(2))
        text = "first[batch * seqlen_q + q] <= k && k <= last[batch * seqlen_q + q]"
        _add(options, mask=text, args={"first": first, "last": last})


def with_attn_mask(mask, q, k, options):
    """The options of attention() of these tensors with a mask as torch's scaled_dot_product_attention() has it: booleans, True where a
    pair counts, or floats that are added, broadcast to [batch, heads_q, seqlen_q, seqlen_kv]. Raises InvalidError or UnsupportedError."""
    if not isinstance(mask, torch.Tensor):
        refuse_type("attn_mask", mask, "a tensor of torch")
    if mask.dtype not in _OF_MASKS:
        raise InvalidError(f"attn_mask has dtype {mask.dtype}; it must be one of {', '.join(map(str, _OF_MASKS))}")
    if options.get("cu_seqlens") is not None or options.get("page_table") is not None:
        raise UnsupportedError("attn_mask does not go with cu_seqlens and page_table, whose sequences have no common columns: use score and mask")
    if any(len(getattr(x, "shape", ())) != 4 for x in (q, k)):
        return options  # attention() says what is wrong with these
    rows, head = (2, 1) if options.get("layout") == "bhsd" else (1, 2)
    sizes = q.shape[0], q.shape[head], q.shape[rows], k.shape[rows]
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.dim() != 4 or any(size not in (1, whole) for size, whole in zip(mask.shape, sizes)):
        text = f"attn_mask of shape {tuple(mask.shape)} is not of {sizes[2]} queries and {sizes[3]} keys"
        raise UnsupportedError(f"{text}: it is broadcast to {tuple(sizes)}")
    options = dict(options)
    if 0 in sizes:  # no pair, and nothing to read
        return options
    if mask.requires_grad and (options.get("deterministic") or torch.are_deterministic_algorithms_enabled()):
        mask = mask.expand(sizes)  # each pair adds to an element of its own, and torch sums them up
    add_dense(options, mask.expand(-1, -1, -1, sizes[3]), sizes[2], sizes[3], "attn_mask")
    return options


def _stored(dense, keys):
    """(the elements as kernels read them, what the columns of its rows are a multiple of)"""
    # What expand() made is there once; but its gradient would have another sum than that of the tensor.
    once = [slice(1) if dense.stride(i) == 0 and not dense.requires_grad else slice(None) for i in range(3)]
    dense, of_row = dense[(*once, slice(keys))], 16 // dense.element_size()
    if dense.dtype == torch.bool:
        return dense.contiguous(), 1
    if keys % of_row or not dense.is_contiguous() or dense.storage_offset() % of_row:
        dense = torch.nn.functional.pad(dense, (0, -keys % of_row)).contiguous()
    return dense, of_row


def add_dense(options, dense, queries, keys, name):
    """A dense tensor, of which each dimension may be 1."""
    rows = dense.shape[2]
    if dense.shape[3] < keys or rows not in (1, queries) and rows < queries:
        raise UnsupportedError(f"a mask of shape {tuple(dense.shape)} is not of {queries} queries and {keys} keys")
    dense, of_row = _stored(dense, keys)
    batch, heads, rows, columns = dense.shape
    own = options.get("used_kv") is not None  # what texts call lengths are then those that count
    place = "0" if batch == 1 else "batch"
    place = place if heads == 1 else f"({place} * {heads} + head)"
    numbers, of_rows, of_keys = {}, "seqlen_q", "seqlen_kv"
    if rows > 1:
        if own or rows != queries:
            numbers[of_rows := f"{name}_rows"] = rows
        place = f"({place} * {of_rows} + q)"
    if own or columns != keys:
        numbers[of_keys := f"{name}_columns"] = columns
    element = f"{name}[{place} * {of_keys} + k]"
    # How many elements it has in other problems too, which tuning makes up.
    sizes = [name for name, there in (("batch", batch > 1), ("num_heads_q", heads > 1), ("seqlen_q", rows == queries)) if there]
    extent = " * ".join([*sizes, "seqlen_kv"])
    if columns != keys:
        extent += " + " + " * ".join([*sizes, str(of_row)])
    extent = extent if rows in (1, queries) else str(dense.numel())
    if dense.dtype == torch.bool:
        _add(options, mask=element, args={f"{name}[{extent}]": dense, **numbers})
        return
    before = options.get("score")
    # One array of a text is read by rows, and in a text that makes no choices.
    other = any([each.startswith("aligned ") for each in options.get("args") or {}])
    other = other or before and any([choice in before for choice in ("?", "{", "&&", "||")])
    args = {f"{name}[{extent}]" if other else f"aligned {name}[{extent}]": dense, **numbers}
    _add(options, score=f"({before}) + {element}" if before else f"s + {element}", args=args)


def _add(options, args, **texts):
    """Texts beside those that are there."""
    if "mask" in texts and options.get("mask"):
        texts["mask"] = f"({options['mask']}) && ({texts['mask']})"
    options.update(texts, args={**(options.get("args") or {}), **args})
