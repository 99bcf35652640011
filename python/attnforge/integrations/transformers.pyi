from typing import Any, TypeVar

_T = TypeVar("_T")

def register(name: str = "attnforge", packed_under_compile: bool = True) -> None: ...
def attention_forward(
    module: Any,
    query: _T,
    key: _T,
    value: _T,
    attention_mask: _T | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: _T | None = None,
    position_bias: _T | None = None,
    cu_seq_lens_q: _T | None = None,
    cu_seq_lens_k: _T | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    **kwargs: Any,
) -> tuple[_T, None]: ...
def paged_attention_forward(
    module: Any,
    q: _T,
    k: _T,
    v: _T,
    attention_mask: _T | None,
    cache: Any = None,
    cu_seq_lens_q: _T | None = None,
    cu_seq_lens_k: Any = None,
    **kwargs: Any,
) -> tuple[_T, None]: ...
