"""torch.vmap over ops: where a mapped dimension and the batch are one, and what cannot be mapped so."""

import re

from .._errors import UnsupportedError
from .options import template

_HOW = "; call attention() for each, or pass tensors with all of them in the batch"


def _repeated(tensor, size):
    return tensor.unsqueeze(0).expand(size, *tensor.shape)


def fold(size, dims, tensors, dims_of_parts, parts, options, repeated=_repeated):
    """(tensors, parts, unfold) of one call for all `size`: the first dimension of each tensor is size * batch, and unfold() makes two of
    it again. dims: the mapped dimension of each, None where it is the same for all, which `repeated` makes so many of. Raises
    UnsupportedError where this is another call."""
    given = template(options)
    for name in ("cu_seqlens", "page_table"):
        if name in given:
            raise UnsupportedError(f"torch.vmap of a call with {name}, which has no batch{_HOW}")
    if any(re.search(r"\bbatch\b", given.get(name) or "") for name in ("score", "mask")):
        raise UnsupportedError(f"torch.vmap of a call whose text names batch{_HOW}")
    of_lengths = {leaf.index for leaf in _tuple(given.get("used_kv")) if leaf is not None}

    def folded(tensor, dim):
        if tensor is None:
            return None
        tensor = repeated(tensor, size) if dim is None else tensor.movedim(dim, 0) if dim else tensor
        return tensor.reshape(size * tensor.shape[1], *tensor.shape[2:])

    parts_folded = []
    for i, (part, dim) in enumerate(zip(parts, dims_of_parts or [None] * len(parts))):
        if i not in of_lengths and dim is not None:
            raise UnsupportedError(f"torch.vmap of a call over tables, sinks or arrays of args{_HOW}")
        parts_folded.append(folded(part, dim) if i in of_lengths else part)

    def unfold(tensor):
        return tensor.reshape(size, tensor.shape[0] // size, *tensor.shape[1:])

    return tuple(map(folded, tensors, dims)), parts_folded, unfold


def _tuple(value):
    return value if type(value) is tuple else () if value is None else (value,)
