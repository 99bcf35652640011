"""The options of attention(): what a caller gives, and the plain values that they are once checked."""

import inspect
from typing import NamedTuple, Optional

from . import _checks
from ._block_mask import BlockWords
from ._calls.code import NO_CODE
from ._errors import InvalidError
from ._names import refuse_name

_INT64_MAX = 2**63 - 1

# Places of batch, row (sequence position) and head in shapes and strides.
_PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}
_PLACES_PACKED = (None, 0, 1)


class Options(NamedTuple):
    """What attention() takes by name. tune() takes all of it, attention_backward() and KvCache.attend() most.

    causal: bottom-right aligned. window: keys seen on each side of the query's position: a number, or (left, right) with None
    for open. softmax_scale: default 1 / sqrt(head_dim). softcap: s = softcap * tanh(s / softcap). All are plain numbers:
    tensors are refused.
    return_lse: lse is returned too.
    layout: "bshd", or "bhsd" where heads come before seqlen.
    tf32: of float32 tensors, products may round their inputs to TF32 (10 bits of mantissa), which is faster.
    batch_invariant: the kernel is the same whatever the batch, so that a sequence's result has the same bits alone and among others.
    Does not go with block_mask. Gradients are not promised to be so.
    deterministic: equal gradients of equal calls have equal bits, which may cost some time; o and lse always have. Under
    torch.use_deterministic_algorithms() all calls with gradients are so.
    rope: (cos, sin), float32 [rows, rope_dim / 2] each: q and k are rotated first, their leading rope_dim elements in pairs
    (i, i + rope_dim / 2), or (2 i, 2 i + 1) with rope_interleaved. Key j takes row rope_offset + j, query i row
    rope_offset + i + seqlen_kv - seqlen_q.
    cu_seqlens: q, k and v are packed, [tokens, heads, head_dim], one sequence after another, o likewise, lse [heads_q, tokens].
    An int32 array [batch + 1] on the GPU, where each sequence begins, from 0, and the last ends, or a pair (of q, of k); rows
    after the end stay as they are. With max_seqlen, the most rows of a sequence (more is fine), a number or a pair (of q, of k).
    used_kv: q, k and v are padded and only the first used_kv[i] keys of sequence i count; an int32 array [batch] on the GPU, or a
    pair (used_q, used_kv), None for all rows; rows of o and lse that do not count stay as they are. Sequences may be empty.
    page_table: k and v are pools of pages, [pages, page_size, heads_kv, head_dim], with layout="bhsd" [pages, heads_kv, page_size,
    head_dim]: an int32 array [batch, columns] on the GPU, the page that has keys column * page_size and on of a sequence; -1: none,
    after the sequence's length alone. page_size is 1, 2, 4 or a multiple of 8. Goes with used_kv, and queries may be packed by cu_seqlens beside
    it (chunks of prompts and single tokens in one call); not with block_mask. append_kv() writes such caches, KvCache keeps one.
    Lengths are read on the GPU, when the kernels run: in a CUDA graph they may change between replays. Lengths that are negative,
    above max_seqlen or beyond the tensors are the caller's mistake, which nothing finds but ATTNFORGE_CHECK_INPUTS=1 in the
    environment, with which each call waits. They do not go with rope.
    block_mask: a BlockMask: a query sees a key only if its block is present, and in a partial block with bits only if its bit is set;
    causal and window hide keys as well. Uploaded at the first call on a GPU. Does not go with cu_seqlens.
    score, mask: C++ expressions, compiled into the kernel: what becomes of a score s after scaling, and whether query q sees key k
    among those that causal and window let it see. Both know batch, head (of q), q, k, seqlen_q, seqlen_kv, and what args names: a
    dict of contiguous arrays on the GPU (float32, float16, bfloat16, int32) and plain numbers. Arrays are read when the kernels
    run, and must hold an element wherever the texts look for positions inside the tensors. With block_mask, mask is asked in
    partial blocks only: full ones say that it is true of all their pairs. A block mask of a text (BlockMask.from_text) brings its
    mask and args where mask is not given.
    sinks: float32 [heads_q] on the GPU: the softmax of a row has one more score, the logit of its head, which has no value and is
    neither scaled nor capped: o = sum p v / (sum p + exp(sink)), and lse counts it. A row that sees no key gives o = 0 and its lse
    is the logit.
    k_scale, v_scale: k and v may be int8, float8_e4m3fn, float8_e5m2, or uint8 of two 4-bit integers (low half first), of half the
    last dimension; each its own, or in the dtype of q. Their values are these numbers times float32 scales on the GPU: of one element,
    [heads_kv] or [batch, heads_kv], of k's shape without the last dimension, or of k's with one for each 32, 64 or 128 columns
    there; both of one kind. Of 4 bits with zero points, [..., groups, 2]. Not with rope, nor with gradients. quantize_kv() makes both.
    q_scale: q may be float8_e4m3fn where k and v are; then o is bfloat16, or what out= is, and scales of q are not negative: of one
    element, [heads_kv] or [batch, heads_kv], or as k_scale of q's and k's shapes without the last dimension, where v_scale is of heads.
    quantize_qkv() makes all. fast_sums: of such, sums over keys may be those of tensor cores, of about 14 bits.
    """

    causal: bool = False
    window: object = None
    softmax_scale: Optional[float] = None
    softcap: Optional[float] = None
    return_lse: bool = False
    layout: str = "bshd"
    tf32: bool = False
    batch_invariant: bool = False
    fast_sums: bool = False
    deterministic: bool = False
    rope: object = None
    rope_interleaved: bool = False
    cu_seqlens: object = None
    max_seqlen: object = None
    used_kv: object = None
    page_table: object = None
    block_mask: object = None
    score: Optional[str] = None
    mask: Optional[str] = None
    args: Optional[dict] = None
    sinks: object = None
    k_scale: object = None
    v_scale: object = None
    q_scale: object = None

    def named(self):
        """Those that are not left out, by their names."""
        return {name: value for name, value in self._asdict().items() if value is not self._field_defaults[name]}

    def plain(self):
        """Those of no part, which stand first."""
        return self[:10]


# Those that are float32 [heads_q], and what a problem says where one is there.
OF_HEADS = {"sinks": {"sinks": True}}
# What calls with gradients do not have, and what to do instead.
NO_GRADIENTS = {
    "rope": "rotate q and k before it",
    "page_table": "pass k and v in one piece",
    "k_scale": "pass k in 16 bits",
    "v_scale": "pass v in 16 bits",
    "q_scale": "pass q in 16 bits",
}
# What attention_backward() does not take.
OF_FORWARD = ("return_lse", "batch_invariant", "fast_sums", "rope", "rope_interleaved", "page_table", "k_scale", "v_scale", "q_scale")


def options_of(named, without=()):
    """Options from keyword arguments. Raises TypeError for names that are none, or are in `without`."""
    try:
        if without and not named.keys().isdisjoint(without):
            raise TypeError
        return Options(**named)
    except TypeError:
        pass
    for name in named:
        if name not in Options._fields or name in without:
            refuse_name(name, [each for each in Options._fields if each not in without])


def takes_options(without=()):
    """A function's **options, by their names in its signature and with their texts after its own."""

    def decorated(function):
        of_function = inspect.signature(function)
        kept = [each for each in of_function.parameters.values() if each.kind is not each.VAR_KEYWORD]
        names = [name for name in Options._fields if name not in without]
        by_name = inspect.Parameter.KEYWORD_ONLY
        kept += [inspect.Parameter(name, by_name, default=Options._field_defaults[name]) for name in names]
        function.__signature__ = of_function.replace(parameters=kept)
        if function.__doc__ and not without:
            function.__doc__ = f"{inspect.getdoc(function)}\n\n{inspect.getdoc(Options)}"
        return function

    return decorated


class Words(NamedTuple):
    """What calls share that are one problem but for sizes; plain values, a key."""

    rope_interleaved: bool = False
    lengths: str = "fixed"
    longest_q: int = 0  # of packed sequences
    longest_kv: int = 0
    code: tuple = NO_CODE.texts  # score, mask, args
    blocks: Optional[BlockWords] = None
    of_heads: tuple = ()  # names of OF_HEADS
    pages: int = 0  # of a row of the page table

    @property
    def packed(self):
        """Whether q, and k and v unless they lie in pages, have no batch."""
        return self.lengths == "packed"

    @property
    def rows_may_not_count(self):
        return self.lengths != "fixed"

    def check_layout(self, layout):
        if self.packed and layout != "bshd":
            raise InvalidError(f"layout={layout!r} does not go with cu_seqlens; pass views [tokens, heads, head_dim] of any strides")


NO_WORDS = Words()


class CheckedOptions(NamedTuple):
    """Options as plain values; a key, and what the problem is made from."""

    causal: bool
    window_left: int  # -1: open
    window_right: int
    softmax_scale: Optional[float]
    softcap: float
    lse: bool
    layout: str
    tf32: bool
    batch_invariant: bool = False
    fast_sums: bool = False
    parts: Words = NO_WORDS

    def words(self):
        """Of a problem with these options, by the names of its fields; without those of its parts."""
        words = self._asdict()
        del words["parts"]
        words["softmax_scale"] = self.softmax_scale or 0.0
        return words

    @property
    def places(self):
        """Of batch (None in packed tensors), row and head."""
        return _PLACES_PACKED if self.parts.packed else _PLACES[self.layout]

    @property
    def places_kv(self):
        """The same in k and v, whose batch is the page where they lie in pages."""
        return _PLACES[self.layout] if self.parts.pages else self.places

    @property
    def shares_batch(self):
        """Whether k and v have the batch of q."""
        return not self.parts.packed and not self.parts.pages


def check_options(given, words=NO_WORDS):
    """CheckedOptions of Options, and of the Words that their parts are. Raises InvalidError, which names the argument."""
    causal = _checks.flag("causal", given.causal)
    left, right = window_of(given.window, causal)
    scale = given.softmax_scale
    if scale is not None:
        scale = _checks.number("softmax_scale", scale)
        if scale <= 0:
            raise InvalidError(f"softmax_scale={scale} must be positive, or None for 1 / sqrt(head_dim)")
    layout = _checks.one_of("layout", given.layout, tuple(_PLACES))
    words.check_layout(layout)
    _checks.flag("deterministic", given.deterministic)
    return CheckedOptions(
        causal,
        left,
        right,
        scale,
        0.0 if given.softcap is None else _checks.number("softcap", given.softcap),
        _checks.flag("return_lse", given.return_lse),
        layout,
        _checks.flag("tf32", given.tf32),
        _checks.flag("batch_invariant", given.batch_invariant),
        _checks.flag("fast_sums", given.fast_sums),
        words,
    )


def window_of(window, causal):
    """(left, right) with -1 for open, from None, a number of keys or a pair."""
    if window is None:
        return -1, -1
    if isinstance(window, (tuple, list)):
        wanted = "a number of keys, or a pair (left, right) of numbers or None"
        left, right = _checks.pair("window", window, wanted)
        return tuple(
            -1 if side is None else _checks.integer(f"window[{i}]", side, -1, _INT64_MAX) for i, side in enumerate((left, right))
        )
    keys = _checks.integer("window", window, -1, _INT64_MAX)
    return keys, 0 if causal else keys
