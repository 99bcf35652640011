"""Options of a call as an op has them: a text, and beside it the tensors and the numbers that the text counts.

The text is a Python literal, a dict from names of options. In it a string begins with '=' and is one, or is '$i' for tensor i, '#i'
for number i, '@i' for the block mask of number i. Numbers stand beside the text since under torch.compile they may be symbols, by
which nothing is compiled anew. torch.compile traces encode().
"""

import ast
import functools
from typing import NamedTuple

from .._gradients.autograd import Leaf
from .._block_mask import BlockMask, of_number
from .._names import refuse_name
from .._options import Options


class _Number(NamedTuple):
    index: int


class _Mask(NamedTuple):
    index: int


NAMES = Options._fields


def encode(is_tensor, options, tensors, numbers):
    """The text of options by their names; what it counts is added to tensors and numbers, which are lists. Raises TypeError for a name
    that is none."""
    parts = []
    for name, value in options.items():
        if name not in NAMES and name != "rope_offset":
            refuse_name(name, NAMES)
        if value is None or value is False:
            continue
        parts.append(f"{name!r}:{_text(is_tensor, value, tensors, numbers)}")
    return "{" + ",".join(parts) + "}"


def _text(is_tensor, value, tensors, numbers):
    if is_tensor(value):
        tensors.append(value)
        return f"'${len(tensors) - 1}'"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return repr("=" + value)
    if isinstance(value, int):
        numbers.append(value)
        return f"'#{len(numbers) - 1}'"
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, BlockMask):
        numbers.append(value.number)
        return f"'@{len(numbers) - 1}'"
    if isinstance(value, dict):
        return "{" + ",".join([f"{name!r}:{_text(is_tensor, each, tensors, numbers)}" for name, each in value.items()]) + "}"
    if isinstance(value, (tuple, list)):
        return "(" + "".join([_text(is_tensor, each, tensors, numbers) + "," for each in value]) + ")"
    raise TypeError(f"a {type(value).__name__} among the options of a call cannot be part of a graph")


@functools.lru_cache(maxsize=4096)
def template(text):
    """The options of a text by their names, with a Leaf for each tensor and a mark for what stands beside it."""

    def marked(value):
        if isinstance(value, str):
            kind, rest = value[0], value[1:]
            return rest if kind == "=" else {"$": Leaf, "#": _Number, "@": _Mask}[kind](int(rest))
        if isinstance(value, tuple):
            return tuple(marked(each) for each in value)
        if isinstance(value, dict):
            return {name: marked(each) for name, each in value.items()}
        return value

    return marked(ast.literal_eval(text))


def decode(text, numbers):
    """The options by their names, not to be changed, a Leaf in the place of each tensor. Raises InvalidError for a block mask that is
    gone."""
    # Each line costs in a step of decode. What is kept must not hold a block mask.
    return _filled(template(text), numbers) if "'@" in text else _decoded(text, tuple(numbers))


@functools.lru_cache(maxsize=4096)
def _decoded(text, numbers):
    return _filled(template(text), numbers)


def _filled(value, numbers):
    kind = type(value)
    if kind is _Number:
        return numbers[value.index]
    if kind is _Mask:
        return of_number(numbers[value.index])
    if kind is tuple:
        return tuple([_filled(each, numbers) for each in value])
    if kind is dict:
        return {name: _filled(each, numbers) for name, each in value.items()}
    return value
