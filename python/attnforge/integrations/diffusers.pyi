from typing import Any, TypeVar

_T = TypeVar("_T")

def enable(replace: str = "flash") -> None: ...
def attention(
    query: _T,
    key: _T,
    value: _T,
    attn_mask: _T | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    _parallel_config: object = None,
) -> Any: ...
