"""The functions of flash_attn 3 (flash_attn_interface) by their names. Left to the plan: num_splits, pack_gqa, sm_margin,
scheduler_metadata. Refused by UnsupportedError: fp8 (descale), qv, attention_chunk, cache_leftpad."""

import torch

from .._errors import InvalidError
from .._merge import merge_states
from ..integrations.adapter import attend, longest, options_of, refuse
from . import kvcache
from .flash_attn_interface import _of_packed, backward_into

_FP8 = "fp8 is not there by this name; attnforge.attention() takes q_scale, k_scale and v_scale"


def _check(qv=None, q_descale=None, k_descale=None, v_descale=None, attention_chunk=0, leftpad=None):
    refuse(
        qv=(qv, "attention with two parts of q is not there; concatenate q and qv, and k and v"),
        q_descale=(q_descale, _FP8),
        k_descale=(k_descale, _FP8),
        v_descale=(v_descale, _FP8),
        attention_chunk=(attention_chunk or None, "chunks are not there; a block mask of documents is"),
        cache_leftpad=(leftpad, "a cache begins with its first row"),
    )


def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1),
    attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False
):
    """Returns o, or (o, lse) with return_attn_probs."""
    _check(qv, q_descale, k_descale, v_descale, attention_chunk)
    options = options_of(q, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic)
    o, lse = attend(q, k, v, return_attn_probs, **options)
    return (o, lse) if return_attn_probs else o


def flash_attn_qkvpacked_func(
    qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0,
    softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False
):
    """qkv: [batch, seqlen, 3, heads, head_dim], or with num_heads_q [batch, seqlen, heads of all three, head_dim]."""
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(-3)
    else:
        heads_kv = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, heads_kv, heads_kv], dim=-2)
    descale = None, q_descale, k_descale, v_descale
    given = window_size, attention_chunk, softcap, 1, None, deterministic, sm_margin, return_attn_probs
    return flash_attn_func(q, k, v, softmax_scale, causal, *descale, *given)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None, softmax_scale=None, causal=False,
    qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1,
    pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False
):
    """Packed sequences: q [total_q, heads, head_dim], k and v [total_k, heads_k, head_dim]."""
    _check(qv, q_descale, k_descale, v_descale, attention_chunk)
    refuse(seqused_q=(seqused_q, "does not go with packed queries; cu_seqlens_q counts them"))
    options = options_of(q, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, head=1)
    options.update(_of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, None, seqused_k))
    o, lse = attend(q, k, v, return_attn_probs, **options)
    return (o, lse) if return_attn_probs else o


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, q_descale=None,
    k_descale=None, v_descale=None, softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
    rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False
):
    """As of version 2; q may be packed by cu_seqlens_q where the cache lies in pages."""
    _check(qv, q_descale, k_descale, v_descale, attention_chunk, cache_leftpad)
    refuse(rotary_seqlens=(rotary_seqlens, "new rows are rotated by their places in the cache"))
    if cu_seqlens_q is not None:
        refuse(cu_seqlens_q=(page_table is None or None, "packed queries go with a page_table"))
    options = options_of(q, 0.0, softmax_scale, causal, window_size, softcap)
    cache = kvcache.Cache(k_cache, v_cache, cache_seqlens, page_table, cache_batch_idx)
    lengths = cu_seqlens_q, cu_seqlens_k_new, None if max_seqlen_q is None else longest(max_seqlen_q, q)
    o, lse = kvcache.attend_after_append(
        q, k, v, cache, (rotary_cos, rotary_sin, rotary_interleaved), options, return_softmax_lse, *lengths
    )
    return (o, lse) if return_softmax_lse else o


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """(o, lse [batch, seqlen, heads]) of parts: out_partial [parts, batch, seqlen, heads, head_dim], lse_partial [parts, batch, seqlen,
    heads] of float32. out_dtype: of o, default that of the parts."""
    lse = lse_partial.transpose(2, 3)
    lse = lse if lse.stride(-1) == 1 else lse.contiguous()
    if out is None and out_dtype in (None, out_partial.dtype):
        o, merged = merge_states(out_partial, lse)
        return o, merged.transpose(1, 2)
    o = torch.empty(out_partial.shape[1:], dtype=out_dtype or out_partial.dtype, device=lse.device) if out is None else out
    merged = torch.empty(lse.shape[1:], dtype=torch.float32, device=lse.device)
    merge_states(out_partial, lse, out=(o, merged))
    return o, merged.transpose(1, 2)


def get_scheduler_metadata(*_, **__):
    """None: a plan has what it needs."""
    return None


def _flash_attn_forward(
    q, k, v, k_new=None, v_new=None, qv=None, out_=None, cu_seqlens_q=None, cu_seqlens_k=None, cu_seqlens_k_new=None, seqused_q=None,
    seqused_k=None, max_seqlen_q=None, max_seqlen_k=None, page_table=None, kv_batch_idx=None, leftpad_k=None, rotary_cos=None,
    rotary_sin=None, seqlens_rotary=None, q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False,
    window_size_left=-1, window_size_right=-1, attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None,
    num_splits=1, pack_gqa=None, sm_margin=0
):
    """Returns (out, softmax_lse, nothing, nothing). Caches: flash_attn_with_kvcache()."""
    _check(qv, q_descale, k_descale, v_descale, attention_chunk, leftpad_k)
    refuse(k_new=(k_new, "call flash_attn_with_kvcache()"), kv_batch_idx=(kv_batch_idx, "call flash_attn_with_kvcache()"))
    options = options_of(q, 0.0, softmax_scale, causal, (window_size_left, window_size_right), softcap, head=-2)
    if cu_seqlens_q is not None:
        refuse(seqused_q=(seqused_q, "does not go with packed queries; cu_seqlens_q counts them"))
        options.update(_of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, page_table, seqused_k))
    elif seqused_q is not None or seqused_k is not None or page_table is not None:
        if page_table is not None and seqused_k is None:
            raise InvalidError("page_table wants seqused_k: how many keys of each sequence lie in its pages")
        options["used_kv"] = seqused_k if seqused_q is None else (seqused_q, seqused_k)
        if page_table is not None:
            options["page_table"] = page_table
    o, lse = attend(q, k, v, True, **options)
    if out_ is not None:
        o = out_.copy_(o)
    return o, lse, q.new_empty(0), q.new_empty(0)


def _flash_attn_backward(
    dout, q, k, v, out, softmax_lse, cu_seqlens_q=None, cu_seqlens_k=None, sequed_q=None, sequed_k=None, max_seqlen_q=None,
    max_seqlen_k=None, dq=None, dk=None, dv=None, softmax_scale=None, is_causal=False, window_size_left=-1, window_size_right=-1,
    softcap=0.0, deterministic=False, sm_margin=0
):
    """Writes dq, dk and dv; returns an empty tensor in the place of softmax_d."""
    window = window_size_left, window_size_right
    options = options_of(q, 0.0, softmax_scale, is_causal, window, softcap, None, deterministic, head=-2)
    if cu_seqlens_q is not None:
        options.update(_of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))
    elif sequed_q is not None or sequed_k is not None:
        options["used_kv"] = sequed_k if sequed_q is None else (sequed_q, sequed_k)
    return backward_into(dout, q, k, v, out, softmax_lse, (dq, dk, dv), options)
