"""Types of all that attnforge has by its name; a test compares them with what is there, and mypy --strict a program that uses all.

Tensors may be of any framework, so what goes in decides what comes out.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from typing_extensions import TypedDict, Unpack

from . import flash_attn as flash_attn, integrations as integrations, texts as texts

__version__: str
__all__ = [
    "AttnforgeError",
    "BlockMask",
    "CompileError",
    "CudaError",
    "InvalidError",
    "KvCache",
    "NoDriverError",
    "NotReadyError",
    "PerformanceWarning",
    "Problem",
    "UnsupportedError",
    "WorkspaceError",
    "append_kv",
    "attention",
    "attention_backward",
    "attention_weights",
    "configure",
    "inspect",
    "key_mass",
    "library_path",
    "merge_states",
    "plan_cache",
    "prepare_append_kv",
    "quantize_kv",
    "quantize_qkv",
    "reference",
    "stats",
    "supported",
    "texts",
    "tune",
    "version",
]

_T = TypeVar("_T")
_Layout = Literal["bshd", "bhsd"]
_Window = int | tuple[int | None, int | None] | list[int | None] | None
_Pair = Any  # an array, or a pair of such
_Size = int | tuple[int, int]
_Rigor = Literal["quick", "full", "exhaustive"]
_Progress = Callable[[dict[str, Any]], object]

class _QkvScales(TypedDict):
    q_scale: Any
    k_scale: Any
    v_scale: Any

class _OfScores(TypedDict, total=False):
    causal: bool
    window: _Window
    softmax_scale: float | None
    softcap: float | None
    layout: _Layout
    cu_seqlens: _Pair | None
    max_seqlen: _Size | None
    used_kv: _Pair | None
    block_mask: BlockMask | None
    score: str | None
    mask: str | None
    args: Mapping[str, Any] | None
    sinks: Any | None

class _OfWeights(_OfScores, total=False):
    page_table: Any | None

class _OfBoth(_OfScores, total=False):
    tf32: bool
    deterministic: bool

class _Options(_OfBoth, total=False):
    batch_invariant: bool
    fast_sums: bool
    rope: tuple[Any, Any] | None
    rope_interleaved: bool
    page_table: Any | None
    k_scale: Any | None
    v_scale: Any | None
    q_scale: Any | None

class _OfCache(TypedDict, total=False):
    window: _Window
    softmax_scale: float | None
    softcap: float | None
    sinks: Any | None
    score: str | None
    mask: str | None
    args: Mapping[str, Any] | None

class _OfTune(TypedDict, total=False):
    device: int | None
    rigor: _Rigor
    time_limit_s: float
    family: str | None
    compile_threads: int
    retune: bool
    seed: int
    progress: _Progress | None

@overload
def attention(
    q: _T,
    k: _T,
    v: _T,
    *,
    out: _T | None = None,
    stream: int | None = None,
    rope_offset: int = 0,
    attn_mask: _T | None = None,
    return_lse: Literal[False] = False,
    **options: Unpack[_Options],
) -> _T: ...
@overload
def attention(
    q: _T,
    k: _T,
    v: _T,
    *,
    out: tuple[_T, _T] | None = None,
    stream: int | None = None,
    rope_offset: int = 0,
    attn_mask: _T | None = None,
    return_lse: Literal[True],
    **options: Unpack[_Options],
) -> tuple[_T, _T]: ...
def attention_backward(
    q: _T,
    k: _T,
    v: _T,
    o: _T,
    lse: _T,
    dout: _T,
    *,
    out: Sequence[_T] | None = None,
    stream: int | None = None,
    dlse: _T | None = None,
    accumulate: bool = False,
    fp32_gradients: bool = False,
    dargs: Mapping[str, _T] | None = None,
    **options: Unpack[_OfBoth],
) -> tuple[_T, ...]: ...
def attention_weights(
    q: _T, k: _T, lse: _T, *, rows: _T | Sequence[int] | None = None, out: _T | None = None, stream: int | None = None,
    attn_mask: _T | None = None, **options: Unpack[_OfWeights]
) -> _T: ...
def key_mass(
    q: _T, k: _T, lse: _T, *, out: _T | None = None, stream: int | None = None, attn_mask: _T | None = None,
    **options: Unpack[_OfWeights]
) -> _T: ...
@overload
def append_kv(
    k: _T, v: _T, k_cache: _T, v_cache: _T, used_kv: _T | None = None, page_table: _T | None = None,
    cu_seqlens: _T | None = None, used_kv_after: _T | None = None, rope: tuple[_T, _T] | None = None,
    rope_interleaved: bool = False, rope_offset: int = 0, q: None = None, q_out: None = None, layout: _Layout = "bshd",
    stream: int | None = None, k_scale: _T | None = None, v_scale: _T | None = None
) -> None: ...
@overload
def append_kv(
    k: _T, v: _T, k_cache: _T, v_cache: _T, used_kv: _T | None = None, page_table: _T | None = None,
    cu_seqlens: _T | None = None, used_kv_after: _T | None = None, rope: tuple[_T, _T] | None = None,
    rope_interleaved: bool = False, rope_offset: int = 0, *, q: _T, q_out: _T | None = None, layout: _Layout = "bshd",
    stream: int | None = None, k_scale: _T | None = None, v_scale: _T | None = None
) -> _T: ...
def prepare_append_kv(
    k: _T, v: _T, k_cache: _T, v_cache: _T, used_kv: _T | None = None, page_table: _T | None = None,
    cu_seqlens: _T | None = None, used_kv_after: _T | None = None, rope: tuple[_T, _T] | None = None,
    rope_interleaved: bool = False, rope_offset: int = 0, q: _T | None = None, q_out: _T | None = None,
    layout: _Layout = "bshd", stream: int | None = None, k_scale: _T | None = None, v_scale: _T | None = None
) -> None: ...
@overload
def merge_states(
    o: Sequence[_T],
    lse: Sequence[_T],
    layout: _Layout = "bshd",
    out: tuple[_T, _T] | None = None,
    stream: int | None = None,
) -> tuple[_T, _T]: ...
@overload
def merge_states(
    o: _T,
    lse: _T,
    layout: _Layout = "bshd",
    out: tuple[_T, _T] | None = None,
    stream: int | None = None,
) -> tuple[_T, _T]: ...
def quantize_kv(
    x: _T,
    dtype: Literal["int8", "int4", "e4m3", "e5m2"] = "int8",
    scale: Literal["token", "group32", "group64", "group128"] = "token",
    zero: bool = False,
) -> tuple[_T, _T]: ...
def quantize_qkv(
    q: _T, k: _T, v: _T, smooth_k: bool = False, rotate: bool = False, layout: _Layout = "bshd",
    scale: Literal["head", "token"] = "head",
) -> tuple[_T, _T, _T, _QkvScales, _T | None]: ...
@overload
def reference(
    q: _T,
    k: _T,
    v: _T,
    *,
    rope_offset: int = 0,
    attn_mask: _T | None = None,
    return_lse: Literal[False] = False,
    **options: Unpack[_Options],
) -> _T: ...
@overload
def reference(
    q: _T,
    k: _T,
    v: _T,
    *,
    rope_offset: int = 0,
    attn_mask: _T | None = None,
    return_lse: Literal[True],
    **options: Unpack[_Options],
) -> tuple[_T, _T]: ...
def configure(
    policy: Literal["estimate", "first_run", "cached_only"] | None = None,
    time_limit_s: float | None = None,
    no_jit: bool | None = None,
    family: str | None = None,
    config: str | None = None,
) -> None: ...
def inspect(
    problem: Problem | str,
    arch: str | None = None,
    device: int = 0,
    config: str | None = None,
    family: str | None = None,
    compile: bool = True,
    ptx: bool = False,
    sass: bool = False,
    max_candidates: int = 0,
) -> dict[str, Any]: ...
def supported(problem: Problem | str, arch: str | None = None, device: int = 0) -> tuple[bool, str]: ...
def stats(device: int | None = None) -> dict[str, int]: ...
@overload
def tune(problem: Problem | str, /, **search: Unpack[_OfTune]) -> dict[str, Any]: ...
@overload
def tune(
    q: _T,
    k: _T,
    v: _T,
    /,
    *,
    device: int | None = None,
    rigor: _Rigor = "full",
    time_limit_s: float = 0.0,
    family: str | None = None,
    compile_threads: int = 0,
    retune: bool = False,
    seed: int = 1,
    progress: _Progress | None = None,
    backward: bool = False,
    return_lse: bool = False,
    **options: Unpack[_Options],
) -> dict[str, Any]: ...
def library_path() -> str: ...
def version() -> str: ...
@dataclass(frozen=True)
class Problem:
    batch: int = 1
    num_heads_q: int = 1
    num_heads_kv: int = ...
    seqlen_q: int = 1
    seqlen_kv: int = ...
    head_dim: int = 64
    head_dim_v: int = ...
    dtype_q: str = "bf16"
    dtype_k: str = ...
    dtype_v: str = ...
    dtype_o: str = ...
    layout: str = "bshd"
    causal: bool = False
    lse: bool = False
    alignment_bytes: int = 16
    window_left: int = -1
    window_right: int = -1
    softcap: float = 0.0
    softmax_scale: float = 0.0
    tf32: bool = False
    sinks: bool = False
    batch_invariant: bool = False
    fast_sums: bool = False
    rope: str = "none"
    rope_dim: int = 0
    lengths: str = "fixed"
    tokens_q: int = 0
    tokens_kv: int = ...
    page_size: int = 0
    kv_scale: str = "none"
    kv_zero: bool = False
    mask_block_q: int = 0
    mask_block_kv: int = ...
    mask_heads: int = 1
    mask_batch: int = 1
    mask_bits: bool = False
    density: float = 0.0
    args: str = ""
    score: str = ""
    mask: str = ""
    op: str = "fwd"
    deterministic: bool = False
    accumulate: bool = False
    dlse: bool = False
    gradients: str = "same"
    dargs: str = ""
    parts: int = 0
    queries: bool = False
    lengths_after: bool = False
    @staticmethod
    def parse(text: str) -> Problem: ...
    def words(self) -> str: ...
    def handle(self) -> AbstractContextManager[Any]: ...
    def bucket(self) -> str: ...

class Plan:
    problem: Problem
    workspace_bytes: int
    @property
    def config(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def provenance(self) -> str: ...
    @property
    def layer(self) -> str: ...

class PlanCache:
    limit: int
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Plan]: ...

plan_cache: PlanCache

class BlockMask:
    device: int | None
    mask: str | None
    args: Mapping[str, Any] | None
    words: str
    seqlen: tuple[int, int]
    block: tuple[int, int]
    heads: int
    batch: int
    number: int
    @classmethod
    def from_bsr(
        cls,
        row_begin: Sequence[int],
        columns: Sequence[int],
        block: _Size,
        seqlen: _Size,
        heads: int = 1,
        batch: int = 1,
        partial: Sequence[int] | None = None,
        bits: Sequence[int] | None = None,
        bit_blocks: Sequence[int] | None = None,
    ) -> BlockMask: ...
    @classmethod
    def from_dense(cls, mask: Any, block: _Size) -> BlockMask: ...
    @classmethod
    def random(
        cls, density: float, block: _Size, seqlen: _Size, heads: int = 1, batch: int = 1, seed: int = 0
    ) -> BlockMask: ...
    @classmethod
    def sliding_window(
        cls, left: int, right: int, block: _Size, seqlen: _Size, heads: int = 1, batch: int = 1
    ) -> BlockMask: ...
    @classmethod
    def global_window(
        cls, global_keys: int, left: int, right: int, block: _Size, seqlen: _Size, heads: int = 1, batch: int = 1
    ) -> BlockMask: ...
    @classmethod
    def strided(
        cls, local: int, stride: int, block: _Size, seqlen: _Size, heads: int = 1, batch: int = 1
    ) -> BlockMask: ...
    @classmethod
    def documents(cls, lengths: Sequence[int], block: _Size, heads: int = 1, batch: int = 1) -> BlockMask: ...
    @classmethod
    def from_text(
        cls,
        mask: str,
        seqlen_q: int,
        seqlen_kv: int | None = None,
        args: Mapping[str, Any] | None = None,
        block: _Size = 128,
        heads: int | None = None,
        batch: int | None = None,
        bits: bool = False,
        device: int | None = None,
        stream: int | None = None,
    ) -> BlockMask: ...
    def to_host(self) -> BlockMask: ...
    def transposed(self) -> BlockMask: ...
    @property
    def blocks(self) -> int: ...
    @property
    def full(self) -> int: ...
    @property
    def partial(self) -> int: ...
    @property
    def density(self) -> float: ...
    @property
    def has_bits(self) -> bool: ...
    def to_text(self, head: int = 0, sequence: int = 0) -> str: ...
    def to_svg(self, head: int = 0, sequence: int = 0) -> str: ...
    def lists(self) -> tuple[bytes, ...]: ...

class KvCache:
    k: Any
    v: Any
    max_len: int
    page_size: int
    layers: int
    def __init__(
        self,
        max_sequences: int,
        max_len: int,
        heads_kv: int,
        head_dim: int,
        page_size: int = 64,
        head_dim_v: int | None = None,
        layers: int = 1,
        num_pages: int | None = None,
        dtype: Any = None,
        device: Any = None,
        dtype_v: Any = None,
        scale: str = "token",
        zero: bool = False,
    ) -> None: ...
    @property
    def free_pages(self) -> int: ...
    def length(self, sequence: Hashable) -> int: ...
    def begin(self, new_rows: int | Sequence[int], sequences: Sequence[Hashable] | None = None) -> None: ...
    @overload
    def append(
        self,
        k: _T,
        v: _T,
        sequences: Sequence[Hashable] | None = None,
        layer: int = 0,
        new_rows: Sequence[int] | None = None,
        q: None = None,
        rope: tuple[_T, _T] | None = None,
        rope_interleaved: bool = False,
        rope_offset: int = 0,
    ) -> None: ...
    @overload
    def append(
        self,
        k: _T,
        v: _T,
        sequences: Sequence[Hashable] | None = None,
        layer: int = 0,
        new_rows: Sequence[int] | None = None,
        *,
        q: _T,
        rope: tuple[_T, _T] | None = None,
        rope_interleaved: bool = False,
        rope_offset: int = 0,
    ) -> _T: ...
    @overload
    def attend(
        self,
        q: _T,
        layer: int = 0,
        causal: bool = True,
        *,
        return_lse: Literal[False] = False,
        out: _T | None = None,
        **options: Unpack[_OfCache],
    ) -> _T: ...
    @overload
    def attend(
        self,
        q: _T,
        layer: int = 0,
        causal: bool = True,
        *,
        return_lse: Literal[True],
        out: tuple[_T, _T] | None = None,
        **options: Unpack[_OfCache],
    ) -> tuple[_T, _T]: ...
    def trim(self, sequence: Hashable, length: int) -> None: ...
    def release(self, sequence: Hashable) -> None: ...

class AttnforgeError(RuntimeError): ...
class InvalidError(AttnforgeError, ValueError): ...
class UnsupportedError(AttnforgeError, NotImplementedError): ...
class WorkspaceError(AttnforgeError): ...
class CompileError(AttnforgeError): ...
class CudaError(AttnforgeError): ...
class NotReadyError(AttnforgeError): ...
class NoDriverError(AttnforgeError): ...
class PerformanceWarning(UserWarning): ...
