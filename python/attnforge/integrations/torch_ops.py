"""The functions of this package where torch traces their caller: each is a call of an op of torch.ops.attnforge.

Traced are callers under torch.compile and torch.export, under torch.vmap, and with fake tensors. A plan is chosen when an op runs, and
lengths of sequences are never read on the host: other lengths, offsets and windows compile nothing anew.
"""

import torch

from .._gradients.autograd import autocast
from .._errors import InvalidError, UnsupportedError
from .._options import NO_GRADIENTS, OF_FORWARD
from . import torch_kernels  # defines the ops
from .masks import with_attn_mask
from .options import encode

ops = torch.ops.attnforge
__all__ = ["append_kv", "attention", "attention_backward", "merge_states", "torch_kernels"]


def _is_tensor(value):
    return isinstance(value, torch.Tensor)


def _check_stream(stream):
    if stream is not None:
        raise InvalidError("stream= is no part of a graph, which runs on torch's current stream: leave it out")


def attention(q, k, v, *, out=None, stream=None, rope_offset=0, attn_mask=None, **options):
    """As attnforge.attention()."""
    _check_stream(stream)
    if attn_mask is not None:
        options = with_attn_mask(attn_mask, q, k, options)
    if out is None and not options.get("tf32"):
        q, k, v = autocast(torch, q, k, v) or (q, k, v)
    return_lse = bool(options.pop("return_lse", False))
    parts, numbers = [], []
    text = encode(_is_tensor, {**options, "rope_offset": rope_offset or None}, parts, numbers)
    tensors = [q, k, v, *parts]
    differs = torch.is_grad_enabled() and any([each.requires_grad for each in tensors])
    if differs:
        for name, advice in NO_GRADIENTS.items():
            if options.get(name) is not None:
                raise UnsupportedError(f"a tensor requires grad, but a call with {name} has no gradients: {advice}, or use torch.no_grad()")
        if out is not None:
            raise InvalidError("a tensor requires grad, and out= does not go with gradients: leave it out, or use torch.no_grad()")
    if out is not None:
        o, lse = out if return_lse else (out, None)
        ops.forward_out(q, k, v, parts, numbers, text, o, lse)
        return out
    if return_lse or differs:
        o, lse = ops.forward(q, k, v, parts, numbers, text)
        return (o, lse) if return_lse else o
    return ops.decode(q, k, v, parts, numbers, text)


def attention_backward(
    q, k, v, o, lse, dout, *, out=None, stream=None, dlse=None, accumulate=False, fp32_gradients=False, dargs=None, **options
):
    """As attnforge.attention_backward()."""
    _check_stream(stream)
    for name in OF_FORWARD:
        if name in options:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    parts, numbers = [], []
    text = encode(_is_tensor, options, parts, numbers)
    dargs = dargs or {}
    new = out is None
    if new:
        if accumulate:
            raise InvalidError("accumulate=True adds to out, which is None; pass out=(dq, dk, dv)")
        dtypes = [torch.float32 if fp32_gradients else each.dtype for each in (q, k, v)]
        make = torch.zeros if "used_kv" in options else torch.empty
        out = [make(each.shape, dtype=dtype, device=q.device) for each, dtype in zip((q, k, v), dtypes)]
        sinks = options.get("sinks")
        if sinks is not None:
            out.append(make(sinks.shape, dtype=torch.float32, device=q.device))
    arrays = q, k, v, o, lse, dout, dlse
    ops.backward_out(*arrays, parts, numbers, text, list(out), accumulate, new, list(dargs.values()), list(dargs))
    return tuple(out)


def append_kv(
    k, v, k_cache, v_cache, used_kv=None, page_table=None, cu_seqlens=None, used_kv_after=None, rope=None, rope_interleaved=False,
    rope_offset=0, q=None, q_out=None, layout="bshd", stream=None, k_scale=None, v_scale=None
):
    """As attnforge.append_kv()."""
    _check_stream(stream)
    if q is not None and q_out is None:
        q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    cos, sin = (None, None) if rope is None else rope
    goes_on = used_kv is not None and used_kv_after is used_kv  # an op has each tensor once
    of_rope = cos, sin, rope_interleaved, rope_offset
    arrays = k, v, k_cache, v_cache, None if goes_on else used_kv, page_table, cu_seqlens, used_kv_after, goes_on
    if q_out is q:
        ops.append_kv(*arrays, *of_rope, None, q_out, layout, k_scale, v_scale)
    else:
        ops.append_kv(*arrays, *of_rope, q, q_out, layout, k_scale, v_scale)
    return q_out


def merge_states(o, lse, layout="bshd", out=None, stream=None):
    """As attnforge.merge_states()."""
    _check_stream(stream)
    o, lse = (list(each.unbind(0)) if _is_tensor(each) else list(each) for each in (o, lse))
    if out is None:
        return ops.merge_states(o, lse, layout)
    ops.merge_states_out(o, lse, layout, *out)
    return out
