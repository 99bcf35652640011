"""Tensors are torch's."""

from typing import TypeVar

_T = TypeVar("_T")

def rotate_half(x: _T, interleaved: bool = False) -> _T: ...
def apply_rotary_emb(
    x: _T,
    cos: _T,
    sin: _T,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | _T = 0,
    cu_seqlens: _T | None = None,
    max_seqlen: int | _T | None = None,
) -> _T: ...
def apply_rotary_emb_qkv_(
    qkv: _T,
    cos: _T,
    sin: _T,
    cos_k: _T | None = None,
    sin_k: _T | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | _T = 0,
    num_heads_q: int | None = None,
) -> _T: ...
def apply_rotary_emb_kv_(kv: _T, cos: _T, sin: _T, interleaved: bool = False, seqlen_offsets: int | _T = 0) -> _T: ...
