from typing import TypeVar

_T = TypeVar("_T")

def scaled_dot_product_attention(
    query: _T,
    key: _T,
    value: _T,
    attn_mask: _T | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> _T: ...
def register(name: str = "ATTNFORGE", strict: bool = False) -> None: ...
