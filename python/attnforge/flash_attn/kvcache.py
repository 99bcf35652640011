"""A cache as flash_attn_with_kvcache() has it: new rows go into it first, and attention is to all of them."""

from typing import NamedTuple, Optional

import torch

from .._caches.append import append_kv
from .._attention import attention
from .._errors import InvalidError, UnsupportedError


class Cache(NamedTuple):
    """k, v: [batch_cache, seqlen_cache, heads_k, head_dim], or pages. seqlens: a number, int32 [batch], or None."""

    k: torch.Tensor
    v: torch.Tensor
    seqlens: object = None
    pages: Optional[torch.Tensor] = None
    rows: Optional[torch.Tensor] = None  # of the batch, which row of the cache

    def table(self):
        """A page table, or None. Where it says which row each sequence has, a row is a page."""
        if self.rows is None or self.pages is not None:
            return self.pages
        if self.k.shape[1] % 8:
            raise UnsupportedError(f"cache_batch_idx wants a seqlen_cache that is a multiple of 8; it is {self.k.shape[1]}")
        return self.rows.to(torch.int32)[:, None].contiguous()

    def lengths(self, batch, new):
        """int32 [batch] before the new rows, or None: no rows where some come, all of them where none do."""
        if isinstance(self.seqlens, int):
            return torch.full((batch,), self.seqlens, dtype=torch.int32, device=self.k.device)
        if self.seqlens is None and (new or self.pages is not None or self.rows is not None):
            rows = 0 if new else self.k.shape[1] * (1 if self.pages is None else self.pages.shape[1])
            return torch.full((batch,), rows, dtype=torch.int32, device=self.k.device)
        return self.seqlens


def attend_after_append(q, k, v, cache, rope, options, return_lse, cu_seqlens=None, cu_seqlens_new=None, max_seqlen=None):
    """(o, lse), lse None where it is not asked for. rope: (cos, sin, interleaved), None as cos: without."""
    cos, sin, interleaved = rope
    batch = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if (k is None) != (v is None):
        raise InvalidError("k and v are both new rows; one of them is None")
    if k is None and cos is not None:
        raise InvalidError("rotary_cos rotates new rows: pass k and v")
    if q.shape[-1] % 8 or cache.v.shape[-1] % 8:
        raise UnsupportedError(f"head dims of a cache must be multiples of 8; these are {q.shape[-1]} and {cache.v.shape[-1]}")
    table, used = cache.table(), cache.lengths(batch, k is not None)
    k_cache, v_cache = (each if table is not None else each[:batch] for each in (cache.k, cache.v))
    q = q if q.stride(-1) == 1 else q.contiguous()
    if k is not None:
        after = torch.empty_like(used)
        own = {"page_table": table, "cu_seqlens": cu_seqlens_new, "used_kv_after": after}
        if cos is not None:
            _check_rope(q, k, options, cu_seqlens, cu_seqlens_new)
            own.update(rope=(cos.float().contiguous(), sin.float().contiguous()), rope_interleaved=interleaved, q=q)
        with torch.no_grad():
            rotated = append_kv(*(each if each.stride(-1) == 1 else each.contiguous() for each in (k, v)), k_cache, v_cache, used, **own)
        q, used = q if cos is None else rotated, after
    if cu_seqlens is not None:
        options = {**options, "cu_seqlens": cu_seqlens, "max_seqlen": q.shape[0] if max_seqlen is None else max_seqlen}
    of_cache = {} if used is None else {"used_kv": used}
    if table is not None:
        of_cache["page_table"] = table
    with torch.no_grad():
        result = attention(q, k_cache, v_cache, **({"return_lse": True} if return_lse else {}), **of_cache, **options)
    return result if return_lse else (result, None)


def _check_rope(q, k, options, cu_seqlens, cu_seqlens_new):
    of_packed = cu_seqlens is not None
    if of_packed != (cu_seqlens_new is not None) or of_packed and cu_seqlens.data_ptr() != cu_seqlens_new.data_ptr():
        raise UnsupportedError("rotary_cos wants cu_seqlens_q and cu_seqlens_k_new to be one tensor: else rotate q before the call")
    if q.shape[0] != k.shape[0] or not of_packed and q.shape[1] != k.shape[1]:
        raise UnsupportedError("rotary_cos wants as many rows of q as of k: rotate q before the call")
    one_row = not of_packed and q.shape[1] == 1
    if not (options.get("causal") or "window" in options or one_row):
        raise UnsupportedError("rotary_cos without causal or a window: rows of q would all have one position; rotate q before the call")
