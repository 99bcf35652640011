"""The options of a call as plain values, and the words of a problem that they are."""

import math
from typing import NamedTuple, Optional

from . import _checks
from ._block_mask import BlockMask
from ._code import NO_CODE
from ._errors import InvalidError
from ._lengths import longest_of

_INT64_MAX = 2**63 - 1

# Places of batch, row (sequence position) and head in shapes and strides.
_PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}
_PLACES_PACKED = (None, 0, 1)


class BlockWords(NamedTuple):
    """What a problem says of a block mask."""

    block: tuple
    seqlen: tuple
    heads: int
    batch: int
    bits: bool
    density: float  # the nearest power of two: masks of about one density share a plan


def block_words_of(block_mask):
    """Of a BlockMask, or None. Raises InvalidError for anything else."""
    if block_mask is None:
        return None
    if not isinstance(block_mask, BlockMask):
        raise InvalidError(f"block_mask is a {type(block_mask).__name__}; it must be an attnforge.BlockMask")
    m = block_mask
    density = 2.0 ** round(math.log2(max(m.density, 2.0**-19)))
    return BlockWords(m.block, m.seqlen, m.heads, m.batch, m.has_bits, min(density, 1.0))


class Options(NamedTuple):
    """The options of a call as plain values; a key, and what the problem is made from."""

    causal: bool
    window_left: int  # -1: open
    window_right: int
    softmax_scale: Optional[float]
    softcap: float
    lse: bool
    layout: str
    tf32: bool
    rope_interleaved: bool
    lengths: str = "fixed"
    longest_q: int = 0  # of packed sequences
    longest_kv: int = 0
    code: tuple = ("", "", "")  # score, mask, args
    block_words: Optional[BlockWords] = None
    sinks: bool = False
    pages: int = 0  # of a row of the page table
    batch_invariant: bool = False

    def words(self):
        """Of a problem with these options, by the names of its fields."""
        words = {
            "causal": self.causal,
            "window_left": self.window_left,
            "window_right": self.window_right,
            "softmax_scale": self.softmax_scale or 0.0,
            "softcap": self.softcap,
            "lse": self.lse,
            "layout": self.layout,
            "tf32": self.tf32,
            "sinks": self.sinks,
            "batch_invariant": self.batch_invariant,
            "lengths": self.lengths,
            **dict(zip(("score", "mask", "args"), self.code)),
        }
        if self.block_words is not None:
            words["mask_block_q"], words["mask_block_kv"] = self.block_words.block
            words["mask_heads"], words["mask_batch"] = self.block_words.heads, self.block_words.batch
            words["mask_bits"], words["density"] = self.block_words.bits, self.block_words.density
        return words

    @property
    def places(self):
        """Of batch (None in packed tensors), row and head."""
        return _PLACES_PACKED if self.lengths == "packed" else _PLACES[self.layout]

    @property
    def places_kv(self):
        """The same in k and v, whose batch is the page where they lie in pages."""
        return _PLACES[self.layout] if self.pages else self.places


def options_of(
    causal=False,
    window=None,
    softmax_scale=None,
    softcap=None,
    return_lse=False,
    layout="bshd",
    tf32=False,
    rope_interleaved=False,
    lengths="fixed",
    max_seqlen=None,
    code=NO_CODE.texts,
    block_words=None,
    sinks=False,
    pages=0,
    batch_invariant=False,
):
    """Options from the arguments of attention(). Raises InvalidError, which names the argument."""
    causal = _checks.flag("causal", causal)
    left, right = window_of(window, causal)
    if softmax_scale is not None:
        softmax_scale = _checks.number("softmax_scale", softmax_scale)
        if softmax_scale <= 0:
            raise InvalidError(f"softmax_scale={softmax_scale} must be positive, or None for 1 / sqrt(head_dim)")
    layout = _checks.one_of("layout", layout, tuple(_PLACES))
    if lengths == "packed" and layout != "bshd":
        raise InvalidError(f"layout={layout!r} does not go with cu_seqlens; pass views [tokens, heads, head_dim] of any strides")
    return Options(
        causal,
        left,
        right,
        softmax_scale,
        0.0 if softcap is None else _checks.number("softcap", softcap),
        _checks.flag("return_lse", return_lse),
        layout,
        _checks.flag("tf32", tf32),
        _checks.flag("rope_interleaved", rope_interleaved),
        lengths,
        *longest_of(lengths, max_seqlen),
        code,
        block_words,
        sinks,
        pages,
        _checks.flag("batch_invariant", batch_invariant),
    )


# What options_of() takes as attention() does.
PLAIN = ("causal", "window", "softmax_scale", "softcap", "return_lse", "layout", "tf32", "rope_interleaved", "batch_invariant")


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
