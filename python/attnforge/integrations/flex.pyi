from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

_T = TypeVar("_T")

@overload
def flex_attention(
    query: _T,
    key: _T,
    value: _T,
    score_mod: Callable[..., _T] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: Literal[False] = False,
    kernel_options: object = None,
    *,
    return_aux: None = None,
) -> _T: ...
@overload
def flex_attention(
    query: _T,
    key: _T,
    value: _T,
    score_mod: Callable[..., _T] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: Literal[True],
    kernel_options: object = None,
    return_aux: None = None,
) -> tuple[_T, _T]: ...
def options_of(
    score_mod: Callable[..., Any] | None = None, block_mask: Any = None, seqlen_q: int | None = None, seqlen_kv: int | None = None
) -> dict[str, Any]: ...
