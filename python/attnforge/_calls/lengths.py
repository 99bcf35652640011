"""Sequences of different lengths: packed one after another (cu_seqlens), or padded, of which the first rows count (used_kv).

The lengths are in arrays on the GPU, which no call reads on the host; what the host knows is how many sequences and rows there may be.
"""

from .. import _checks
from .._arrays import backend_of
from .._errors import InvalidError
from .._formats import INTEGERS

_MOST_ROWS = 2**27  # of a sequence
PACKED_SHAPE = "[tokens, heads, head_dim] with cu_seqlens"


def lengths_of(cu_seqlens, used_kv):
    """(kind, of q, of k and v): what the problem calls them, and an array or None of each."""
    if cu_seqlens is None:
        if used_kv is None:
            return "fixed", None, None
        if not isinstance(used_kv, (tuple, list)):
            return "used", None, used_kv
        of_q, of_kv = _checks.pair("used_kv", used_kv, "an int32 array [batch] on the GPU, or a pair (used_q, used_kv)")
        if of_q is None and of_kv is None:
            raise InvalidError("used_kv is a pair without an array; leave it out where all rows count")
        return "used", of_q, of_kv
    if used_kv is not None:
        raise InvalidError("cu_seqlens and used_kv were both passed; tensors are packed, or padded, and have one of them")
    if not isinstance(cu_seqlens, (tuple, list)):
        return "packed", cu_seqlens, cu_seqlens
    wanted = "an int32 array [batch + 1] on the GPU, or a pair (cu_seqlens_q, cu_seqlens_k)"
    return "packed", *_checks.pair("cu_seqlens", cu_seqlens, wanted)


def longest_of(kind, max_seqlen):
    """(of q, of k and v): the most rows that a packed sequence has; zeros where the tensors say it."""
    if kind != "packed":
        if max_seqlen is not None:
            raise InvalidError("max_seqlen goes with cu_seqlens; tensors that are not packed have it in their shapes")
        return 0, 0
    if max_seqlen is None:
        raise InvalidError(
            "cu_seqlens needs max_seqlen, the most rows of a sequence or more, as a number or a pair (of q, of k): the lengths are "
            "on the GPU and are not read on the host"
        )
    if not isinstance(max_seqlen, (tuple, list)):
        max_seqlen = max_seqlen, max_seqlen
    of_q, of_kv = _checks.pair("max_seqlen", max_seqlen, "a number, or a pair (of q, of k)")
    return _checks.integer("max_seqlen", of_q, 0, _MOST_ROWS), _checks.integer("max_seqlen", of_kv, 0, _MOST_ROWS)


def view_lengths(kind, of_q, of_kv, stream, paged=False):
    """Arrays of both, None where there is none."""
    packed, name = kind == "packed", "cu_seqlens" if kind == "packed" else "used_kv"
    names = f"{name}[0]", f"{name}[1]"
    if of_q is of_kv or of_q is None and not packed:
        names = name, name
    elif packed and paged:
        names = "cu_seqlens", "used_kv"

    def view(name, array):
        return None if array is None and not packed else backend_of(array).view(name, array, stream, allowed=INTEGERS)

    array = view(names[0], of_q)
    return array, array if of_q is of_kv else view(names[1], of_kv)


def check_lengths(kind, of_q, of_kv, batch, device, paged=False):
    """The number of sequences. Raises InvalidError unless the arrays fit to it; batch: of padded tensors, None of packed ones."""
    for array, packed in ((of_q, kind == "packed"), (of_kv, kind == "packed" and not paged)):
        if array is None:
            continue
        name = "cu_seqlens" if packed else "used_kv"
        if batch is None and len(array.shape) == 1:
            batch = array.shape[0] - 1
        count = None if batch is None else batch + 1 if packed else batch
        contiguous = len(array.shape) == 1 and (array.strides[0] == 1 or array.shape[0] == 1)
        if not contiguous or array.shape[0] != count or batch == 0 and packed or array.device != device:
            wanted = "[batch + 1], the same for q and k" if packed else f"[batch], here ({batch},)"
            raise InvalidError(
                f"{name} has shape {tuple(array.shape)} with strides {tuple(array.strides)} on GPU {array.device}; it must be "
                f"contiguous int32 {wanted}, on GPU {device}"
            )
    return batch


def rounded(length):
    """The least of 1, 16, 64, 128, ..., 1024, and then four steps to each power of two, that is not below: the grid of the tuner."""
    if length <= 1:
        return length
    if length <= 1024:
        return max(16 if length <= 16 else 64, 1 << (length - 1).bit_length())
    step = (1 << length.bit_length() - 1) // 4
    return -(-length // step) * step


def packed_bounds(batch, longest, rows):
    """(seqlen, tokens) of the problem for packed sequences: bounds, so rounded that batches of like sizes share a plan."""
    seqlen = rounded(longest)
    return seqlen, min(rounded(packed_rows(batch, longest, rows)), batch * seqlen)


def packed_rows(batch, longest, rows):
    """How many of a packed tensor's rows can belong to sequences; 1 where it has none, as 0 would mean all that there may be."""
    return min(max(rows, 1), batch * longest)
