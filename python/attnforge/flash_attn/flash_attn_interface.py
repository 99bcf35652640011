"""flash_attn 2's functions, and those beneath them that ring attention and diffusers call. Arguments, shapes and results are flash_attn's."""

import inspect

import torch

from .._gradients.backward import attention_backward
from ..integrations.adapter import attend, longest, options_of, padded, refuse
from . import kvcache


def _result(q, o, lse, return_attn_probs):
    """The third is that of dropout, which is not there."""
    return (o, lse, q.new_empty(0)) if return_attn_probs else o


def _with_options_of(function):
    """What a function's *args and **kwargs are, by name: the arguments of `function` that have defaults."""
    options = [each for each in inspect.signature(function).parameters.values() if each.default is not each.empty]

    def decorated(packed):
        first = [each for each in inspect.signature(packed).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        packed.__signature__ = inspect.Signature([*first, *options])
        return packed

    return decorated


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
    return_attn_probs=False
):
    """q [batch, seqlen, heads, head_dim], k and v with seqlen_k and heads_k. Returns o, or (o, lse, nothing) with return_attn_probs."""
    options = options_of(q, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return _result(q, *attend(q, k, v, return_attn_probs, **options), return_attn_probs)


@_with_options_of(flash_attn_func)
def flash_attn_kvpacked_func(q, kv, *args, **kwargs):
    """kv: [batch, seqlen_k, 2, heads_k, head_dim]. The rest as of flash_attn_func()."""
    return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)


@_with_options_of(flash_attn_func)
def flash_attn_qkvpacked_func(qkv, *args, **kwargs):
    """qkv: [batch, seqlen, 3, heads, head_dim]. The rest as of flash_attn_func()."""
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
    softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None
):
    """q [total_q, heads, head_dim], k and v [total_k, heads_k, head_dim], or pools of pages with block_table. max_seqlen_*: a bound;
    None or a tensor, which is not read: as many as there are rows."""
    options = options_of(q, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, head=1)
    options.update(_of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table))
    return _result(q, *attend(q, k, v, return_attn_probs, **options), return_attn_probs)


def _of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table=None, seqused_k=None):
    of_q = longest(max_seqlen_q, q)
    if block_table is None:
        refuse(seqused_k=(seqused_k, "does not go with packed keys; cu_seqlens_k counts them"))
        lengths = cu_seqlens_q if cu_seqlens_k is cu_seqlens_q else (cu_seqlens_q, cu_seqlens_k)
        return {"cu_seqlens": lengths, "max_seqlen": (of_q, longest(max_seqlen_k, k))}
    used = cu_seqlens_k[1:] - cu_seqlens_k[:-1] if seqused_k is None else seqused_k
    return {"cu_seqlens": cu_seqlens_q, "max_seqlen": of_q, "used_kv": used, "page_table": block_table}


@_with_options_of(flash_attn_func)
def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *args, **kwargs):
    """kv: [total_k, 2, heads_k, head_dim]. The rest as of flash_attn_varlen_func()."""
    return flash_attn_varlen_func(q, *kv.unbind(1), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *args, **kwargs)


@_with_options_of(flash_attn_func)
def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *args, **kwargs):
    """qkv: [total, 3, heads, head_dim]. The rest as of flash_attn_varlen_func()."""
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs)


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None,
    block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None,
    num_splits=0, return_softmax_lse=False
):
    """Attention to a cache [batch_cache, seqlen_cache, heads_k, head_dim], or to pages [blocks, block, heads_k, head_dim] with
    block_table, to which k and v are written first: attnforge.append_kv() and attention(). Has no derivative. cache_batch_idx wants a
    seqlen_cache that is a multiple of 8."""
    refuse(cache_leftpad=(cache_leftpad, "a cache begins with its first row; pack what comes after the padding"))
    options = options_of(q, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes)
    cache = kvcache.Cache(k_cache, v_cache, cache_seqlens, block_table, cache_batch_idx)
    rope = rotary_cos, rotary_sin, rotary_interleaved
    o, lse = kvcache.attend_after_append(q, k, v, cache, rope, options, return_softmax_lse)
    return (o, lse) if return_softmax_lse else o


# ---- Beneath autograd: whoever calls these has a function of autograd of their own ----


def _rest(q):
    """(S_dmask, rng_state): of dropout."""
    return q.new_empty(0), torch.empty(2, dtype=torch.int64, device=q.device)


def _flash_attn_forward(
    q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes, return_softmax
):
    """Returns (out, softmax_lse, S_dmask, rng_state), the last two without a meaning."""
    options = options_of(q, dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes)
    return (*attend(q, k, v, True, **options), *_rest(q))


def _flash_attn_varlen_forward(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size_left=-1,
    window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False, block_table=None, leftpad_k=None, seqused_k=None,
    zero_tensors=False
):
    """The same of packed sequences."""
    refuse(leftpad_k=(leftpad_k, "sequences begin with their first row"))
    options = options_of(q, dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes, head=1)
    options.update(_of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table, seqused_k))
    return (*attend(q, k, v, True, **options), *_rest(q))


def backward_into(dout, q, k, v, out, softmax_lse, gradients, options):
    """attention_backward() into (dq, dk, dv), None for one that nobody wants; also of head dims that are filled up."""
    given = padded(q, k, v, out, dout)
    odd = any(each.shape[-1] % 8 for each in (q, v))
    into = [
        torch.empty_like(each) if target is None or odd else target for target, each in zip(gradients, given)
    ]
    attention_backward(*given[:4], softmax_lse, given[4], out=into, **options)
    if odd:
        for target, made in zip(gradients, into):
            if target is not None:
                target.copy_(made[..., : target.shape[-1]])
    return softmax_lse.new_empty(0)  # softmax_d, which is no buffer of the caller's here


def _flash_attn_backward(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap,
    alibi_slopes, deterministic, rng_state=None
):
    """Writes dq, dk and dv; returns an empty tensor in the place of softmax_d."""
    options = options_of(q, dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes, deterministic)
    return backward_into(dout, q, k, v, out, softmax_lse, (dq, dk, dv), options)


def _flash_attn_varlen_backward(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
    window_size_left, window_size_right, softcap, alibi_slopes, deterministic, rng_state=None, zero_tensors=False
):
    """The same of packed sequences."""
    window = window_size_left, window_size_right
    options = options_of(q, dropout_p, softmax_scale, causal, window, softcap, alibi_slopes, deterministic, head=1)
    options.update(_of_packed(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))
    return backward_into(dout, q, k, v, out, softmax_lse, (dq, dk, dv), options)


_wrapped_flash_attn_forward = _flash_attn_forward
_wrapped_flash_attn_backward = _flash_attn_backward
_wrapped_flash_attn_varlen_forward = _flash_attn_varlen_forward
_wrapped_flash_attn_varlen_backward = _flash_attn_varlen_backward
