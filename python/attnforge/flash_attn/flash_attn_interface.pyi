"""Results are o, or more where a call asks for it."""

from typing import Any, TypeVar

_T = TypeVar("_T")

def flash_attn_func(
    q: _T,
    k: _T,
    v: _T,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: _T | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any: ...
def flash_attn_kvpacked_func(q: _T, kv: _T, *args: Any, **kwargs: Any) -> Any: ...
def flash_attn_qkvpacked_func(qkv: _T, *args: Any, **kwargs: Any) -> Any: ...
def flash_attn_varlen_func(
    q: _T,
    k: _T,
    v: _T,
    cu_seqlens_q: _T,
    cu_seqlens_k: _T,
    max_seqlen_q: int | _T | None,
    max_seqlen_k: int | _T | None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: _T | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: _T | None = None,
) -> Any: ...
def flash_attn_varlen_kvpacked_func(
    q: _T,
    kv: _T,
    cu_seqlens_q: _T,
    cu_seqlens_k: _T,
    max_seqlen_q: int | _T | None,
    max_seqlen_k: int | _T | None,
    *args: Any,
    **kwargs: Any,
) -> Any: ...
def flash_attn_varlen_qkvpacked_func(qkv: _T, cu_seqlens: _T, max_seqlen: int | _T | None, *args: Any, **kwargs: Any) -> Any: ...
def flash_attn_with_kvcache(
    q: _T,
    k_cache: _T,
    v_cache: _T,
    k: _T | None = None,
    v: _T | None = None,
    rotary_cos: _T | None = None,
    rotary_sin: _T | None = None,
    cache_seqlens: _T | None = None,
    cache_batch_idx: _T | None = None,
    cache_leftpad: _T | None = None,
    block_table: _T | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: _T | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any: ...
