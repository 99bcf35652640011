"""The options of a call as plain values, and the words of a problem that they are."""

from typing import NamedTuple, Optional

from . import _checks
from ._errors import InvalidError
from ._parts import NO_WORDS, Words

_INT64_MAX = 2**63 - 1

# Places of batch, row (sequence position) and head in shapes and strides.
_PLACES = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}
_PLACES_PACKED = (None, 0, 1)


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
    batch_invariant: bool = False
    parts: Words = NO_WORDS

    def words(self):
        """Of a problem with these options, by the names of its fields; without those of its parts."""
        return {
            "causal": self.causal,
            "window_left": self.window_left,
            "window_right": self.window_right,
            "softmax_scale": self.softmax_scale or 0.0,
            "softcap": self.softcap,
            "lse": self.lse,
            "layout": self.layout,
            "tf32": self.tf32,
            "batch_invariant": self.batch_invariant,
        }

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


def options_of(
    causal=False,
    window=None,
    softmax_scale=None,
    softcap=None,
    return_lse=False,
    layout="bshd",
    tf32=False,
    batch_invariant=False,
    parts=NO_WORDS,
):
    """Options from the arguments of attention(). Raises InvalidError, which names the argument."""
    causal = _checks.flag("causal", causal)
    left, right = window_of(window, causal)
    if softmax_scale is not None:
        softmax_scale = _checks.number("softmax_scale", softmax_scale)
        if softmax_scale <= 0:
            raise InvalidError(f"softmax_scale={softmax_scale} must be positive, or None for 1 / sqrt(head_dim)")
    layout = _checks.one_of("layout", layout, tuple(_PLACES))
    parts.check_layout(layout)
    return Options(
        causal,
        left,
        right,
        softmax_scale,
        0.0 if softcap is None else _checks.number("softcap", softcap),
        _checks.flag("return_lse", return_lse),
        layout,
        _checks.flag("tf32", tf32),
        _checks.flag("batch_invariant", batch_invariant),
        parts,
    )


# What options_of() takes as attention() does.
PLAIN = ("causal", "window", "softmax_scale", "softcap", "return_lse", "layout", "tf32", "batch_invariant")


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
