from collections.abc import Collection
from typing import Any, Literal, TypeVar, overload

from typing_extensions import Unpack

from .. import _OfBoth

_T = TypeVar("_T")

@overload
def attention(
    q: _T, k: _T, v: _T, *, frozen: Collection[str] = (), return_lse: Literal[False] = False, **options: Unpack[_OfBoth]
) -> _T: ...
@overload
def attention(
    q: _T, k: _T, v: _T, *, frozen: Collection[str] = (), return_lse: Literal[True], **options: Unpack[_OfBoth]
) -> tuple[_T, _T]: ...
def register(platform: str = "CUDA", **of_handlers: Any) -> None: ...
