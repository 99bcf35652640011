"""Rotary embeddings by the names of flash_attn.layers.rotary, as ops of torch, which have gradients and compile; KvCache, append_kv() and
attention(rope=) rotate on the way."""

import torch


def rotate_half(x, interleaved=False):
    """(-x2, x1) of pairs (x1, x2): i and i + dim / 2, or 2 i and 2 i + 1 with interleaved."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None):
    """x [batch, seqlen, heads, head_dim], or [tokens, heads, head_dim] with cu_seqlens, int32 [batch + 1]; cos, sin [rows, rotary_dim / 2],
    of which token i of a sequence takes row i + seqlen_offsets (a number, or int32 [batch]). Returns x rotated, itself with inplace."""
    offsets = seqlen_offsets if isinstance(seqlen_offsets, torch.Tensor) else None
    if cu_seqlens is None:
        rows = torch.arange(x.shape[1], device=x.device)
        rows = rows + seqlen_offsets if offsets is None else rows + offsets[:, None]
    else:
        token = torch.arange(x.shape[0], device=x.device)
        sequence = torch.searchsorted(cu_seqlens[1:].contiguous(), token.to(cu_seqlens.dtype), right=True).clamp(max=cu_seqlens.shape[0] - 2)
        rows = token - cu_seqlens[sequence] + (seqlen_offsets if offsets is None else offsets[sequence])
    rows = rows.clamp(max=cos.shape[0] - 1)  # of tokens after the last sequence, which nobody reads
    repeated = lambda table: (table.repeat_interleave(2, -1) if interleaved else torch.cat([table, table], -1))[rows][..., None, :]  # noqa: E731
    cos, sin = repeated(cos), repeated(sin)
    part, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    rotated = (part * cos + rotate_half(part, interleaved) * sin).to(x.dtype)
    if inplace:
        part.copy_(rotated)
        return x
    return torch.cat([rotated, rest], -1) if rest.shape[-1] else rotated


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(qkv, cos, sin, cos_k=None, sin_k=None, interleaved=False, seqlen_offsets=0, num_heads_q=None):
    """Rotates q and k of qkv [batch, seqlen, 3, heads, head_dim] in place, or of [batch, seqlen, heads_q + 2 heads_k, head_dim] with
    num_heads_q."""
    if num_heads_q is None:
        q, k = qkv[:, :, 0], qkv[:, :, 1]
    else:
        heads_k = (qkv.shape[2] - num_heads_q) // 2
        q, k = qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q : num_heads_q + heads_k]
    apply_rotary_emb(q, cos, sin, interleaved, True, seqlen_offsets)
    apply_rotary_emb(k, cos if cos_k is None else cos_k, sin if sin_k is None else sin_k, interleaved, True, seqlen_offsets)
    return qkv


def apply_rotary_emb_kv_(kv, cos, sin, interleaved=False, seqlen_offsets=0):
    """Rotates k of kv [batch, seqlen, 2, heads, head_dim] in place."""
    apply_rotary_emb(kv[:, :, 0], cos, sin, interleaved, True, seqlen_offsets)
    return kv
