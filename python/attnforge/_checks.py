"""Arguments as plain values, or an InvalidError that names them.

ctypes cuts integers to the width of a field and text at its first NUL without a word, and a tensor in a key is found by identity:
nothing of a caller goes into a key or a struct before it has passed here.
"""

import sys

from ._errors import InvalidError


def plain(value):
    """A scalar of numpy as Python's own; anything else as it is."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def type_name(value):
    """What messages call a value: "a str", "a numpy.ndarray"."""
    if value is None:
        return "None"
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    article = "an" if (module or kind.__qualname__)[0] in "aeiou" else "a"
    return f"{article} {module}{kind.__qualname__}"


def refuse_type(name, value, wanted):
    """Raises the InvalidError for a value of a type that is not taken."""
    text = f"{name} is {type_name(value)}; it must be {wanted}"
    if hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        text += f": read its value with .item(); no gradient goes through {name}"
    raise InvalidError(text)


def integer(name, value, least, most, wanted=None):
    """An int from least to most; wanted: what it is, for messages."""
    value = plain(value)
    if not isinstance(value, int) or isinstance(value, bool):
        refuse_type(name, value, wanted or f"an integer from {least} to {most}")
    if not least <= value <= most:
        raise InvalidError(f"{name}={_digits(value)} must be from {least} to {most}")
    return int(value)


def number(name, value):
    """A finite float."""
    value = plain(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        refuse_type(name, value, "a number")
    try:
        value = float(value)
    except OverflowError:
        raise InvalidError(f"{name}={_digits(value)} is too large for a float") from None
    if value - value != 0:  # inf and nan
        raise InvalidError(f"{name}={value} must be finite")
    return value


def seconds(name, value):
    """A time of 0 or more."""
    value = number(name, value)
    if value < 0:
        raise InvalidError(f"{name}={value} must not be negative; 0 is no limit")
    return value


def flag(name, value):
    """A bool from True, False, 1 or 0."""
    value = plain(value)
    if not isinstance(value, int) or value not in (0, 1):
        if isinstance(value, int):
            raise InvalidError(f"{name}={_digits(value)} must be True or False")
        refuse_type(name, value, "True or False")
    return bool(value)


def text(name, value):
    """A str that C can take."""
    if not isinstance(value, str):
        refuse_type(name, value, "a str")
    if "\0" in value or not value.isascii():
        raise InvalidError(f"{name}={value[:100]!r} has characters that are not ASCII, or a NUL")
    return value


def one_of(name, value, allowed):
    """A str out of `allowed`."""
    if not isinstance(value, str):
        refuse_type(name, value, f"one of {', '.join(allowed)}")
    if value not in allowed:
        raise InvalidError(f"{name}={value[:100]!r} must be one of {', '.join(allowed)}")
    return value


def pair(name, value, wanted):
    """Both elements of a tuple or list of two."""
    if not isinstance(value, (tuple, list)):
        refuse_type(name, value, wanted)
    if len(value) != 2:
        raise InvalidError(f"{name} has {len(value)} elements; it must be {wanted}")
    return value[0], value[1]


def _digits(value):
    """An int, short enough for a message; str() refuses very long ones."""
    return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"

