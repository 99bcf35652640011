"""Python functions of FlexAttention (score_mod, mask_mod) as texts of attention(): they are called once, with symbols.

A symbol is a text of C++ and its type. Operators and functions of torch make longer texts of it; a read of a captured tensor by symbols
is an element of an array of args, so that its gradient is there too. What has no text raises where it stands in the function.
"""

import math

import torch

from .._errors import UnsupportedError

_FLOAT, _INT, _BOOL = "float", "int", "bool"
_LOWEST = "-1e38f"  # in the place of -inf: scores below -1e30 count as masked
_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNARY = "exp exp2 log log2 log1p expm1 tanh sqrt rsqrt sin cos tan atan sinh cosh erf floor ceil trunc round".split()
_OTHER_NAMES = {
    "__and__": "logical_and", "__rand__": "logical_and", "bitwise_and": "logical_and",
    "__or__": "logical_or", "__ror__": "logical_or", "bitwise_or": "logical_or",
    "__invert__": "logical_not", "bitwise_not": "logical_not", "__xor__": "logical_xor", "bitwise_xor": "logical_xor",
    "absolute": "abs", "negative": "neg", "true_divide": "div", "divide": "div", "truediv": "div", "multiply": "mul", "subtract": "sub",
    "rsub": "rsub", "floordiv": "floor_divide", "mod": "remainder", "clip": "clamp", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne",
}  # fmt: skip


class Trace:
    """The arrays that texts read, by their names."""

    def __init__(self, prefix="captured"):
        self.arrays, self.prefix = {}, prefix

    def name_of(self, tensor):
        for name, known in self.arrays.items():
            if known is tensor:
                return name
        name = f"{self.prefix}{len(self.arrays)}"
        self.arrays[name] = tensor
        return name

    def symbol(self, text, kind, natural=False):
        return Symbol(self, text, kind, natural)


class Symbol:
    """natural: an int that is not negative."""

    def __init__(self, trace, text, kind, natural=False):
        self.trace, self.text, self.kind, self.natural = trace, text, kind, natural
        self.shape, self.ndim = torch.Size(()), 0

    @property
    def dtype(self):
        return {_FLOAT: torch.float32, _INT: torch.int32, _BOOL: torch.bool}[self.kind]

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        trace = next(each.trace for each in _flat(args, kwargs) if isinstance(each, Symbol))
        return apply(trace, getattr(function, "__name__", str(function)), args, kwargs or {})

    def __getattr__(self, name):
        if name.startswith("_") and not name.startswith("__"):
            raise AttributeError(name)
        if _canonical(name) not in _FUNCTIONS:
            raise AttributeError(f"a score_mod or mask_mod has no text for .{name}")
        return lambda *args, **kwargs: apply(self.trace, name, (self, *args), kwargs)

    def __bool__(self):
        raise UnsupportedError(
            f"a decision by a value that only the kernel knows ({self.text}): use torch.where(), &, | and ~ instead of if, and, or"
        )

    def _no_value(self, *_):
        raise UnsupportedError(f"the value of {self.text} is asked for, which only the kernel knows")

    __int__ = __float__ = __index__ = item = tolist = _no_value
    __hash__ = object.__hash__


def _flat(args, kwargs):
    for each in (*args, *(kwargs or {}).values()):
        yield from _flat(each, None) if isinstance(each, (tuple, list)) else (each,)


class _Reads(torch.overrides.TorchFunctionMode):
    """Sees reads of captured tensors by symbols, which are no tensors."""

    def __init__(self, trace):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if any(isinstance(each, Symbol) for each in _flat(args, kwargs)):
            return apply(self.trace, getattr(function, "__name__", str(function)), args, kwargs or {})
        return function(*args, **(kwargs or {}))


def call(function, trace, *symbols):
    """What a function gives for symbols, as a symbol. Raises UnsupportedError from the line of it that has no text."""
    with _Reads(trace):
        return _symbol(trace, function(*symbols))


# ---- Texts of operators and functions ----


def _canonical(name):
    name = _OTHER_NAMES.get(name, name)
    bare = name.strip("_")
    return _OTHER_NAMES.get(bare, bare)


def apply(trace, name, args, kwargs):
    if name == "__getitem__" and isinstance(args[0], torch.Tensor):
        return _element(trace, *args)
    reverse = name.startswith("__r") and name.strip("_")[1:] in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
    canonical = _canonical(f"__{name.strip('_')[1:]}__" if reverse else name)
    function = _FUNCTIONS.get(canonical)
    if function is None:
        raise UnsupportedError(f"torch's {name} has no text in a score_mod or mask_mod; there are {', '.join(sorted(_FUNCTIONS))}")
    if reverse:
        args = args[::-1]
    return function(trace, *args, **kwargs)


def _symbol(trace, value):
    if isinstance(value, Symbol):
        return value
    if isinstance(value, torch.Tensor):
        if value.dim():
            raise UnsupportedError(f"a captured tensor of shape {tuple(value.shape)} is not read by an index; index all of its dimensions")
        return _element(trace, value, ())
    if isinstance(value, bool):
        return trace.symbol("true" if value else "false", _BOOL)
    if isinstance(value, int):
        return trace.symbol(str(value) if value >= 0 else f"({value})", _INT, value >= 0)
    if isinstance(value, float):
        text = _LOWEST if value == -math.inf else "1e38f" if value == math.inf else f"{value!r}f"
        return trace.symbol(text if value >= 0 else f"({text})", _FLOAT)
    raise UnsupportedError(f"a {type(value).__name__} has no text in a score_mod or mask_mod")


def _element(trace, tensor, index):
    """tensor[index] with symbols and numbers in the index, of all dimensions."""
    index = index if isinstance(index, tuple) else (index,)
    if len(index) != tensor.dim() or any(each is None or isinstance(each, slice) or each is Ellipsis for each in index):
        raise UnsupportedError(
            f"a captured tensor of {tensor.dim()} dimensions is read by {len(index)} indices; an element of it has a text, a row has none"
        )
    texts, step = [], tensor.numel()
    for each, size in zip(index, tensor.shape):
        step //= max(size, 1)
        symbol = _symbol(trace, each + size if type(each) is int and each < 0 else each)
        text = symbol.text if _natural(symbol) or symbol.kind == _BOOL else f"({symbol.text} < 0 ? {symbol.text} + {size} : {symbol.text})"
        texts.append(text if step == 1 else f"{text} * {step}")
    kind = _FLOAT if tensor.dtype.is_floating_point else _BOOL if tensor.dtype == torch.bool else _INT
    return trace.symbol(f"{trace.name_of(tensor)}[{' + '.join(texts) or '0'}]", kind)


def _as_float(symbol):
    return symbol.text if symbol.kind == _FLOAT else f"float({symbol.text})"


def _number(symbol):
    """A bool as a number."""
    return f"int({symbol.text})" if symbol.kind == _BOOL else symbol.text


def _both(trace, a, b):
    """(text, text, type) of two operands of one type, no bool."""
    a, b = _symbol(trace, a), _symbol(trace, b)
    if _FLOAT in (a.kind, b.kind):
        return _as_float(a), _as_float(b), _FLOAT
    return _number(a), _number(b), _INT


def _natural(*values):
    return all(isinstance(each, Symbol) and each.natural or type(each) is int and each >= 0 for each in values)


def _arithmetic(sign):
    def function(trace, a, b, alpha=1):
        if alpha != 1:
            b = _arithmetic("*")(trace, b, alpha)
        if sign in "+*" and _symbol(trace, a).kind == _symbol(trace, b).kind == _BOOL:  # as torch has it
            return _logical("||" if sign == "+" else "&&")(trace, a, b)
        first, second, kind = _both(trace, a, b)
        return trace.symbol(f"({first} {sign} {second})", kind, sign != "-" and _natural(a, b))

    return function


def _comparison(sign):
    def function(trace, a, b):
        first, second, _ = _both(trace, a, b)
        return trace.symbol(f"({first} {sign} {second})", _BOOL)

    return function


def _logical(sign):
    def function(trace, a, b):
        a, b = _symbol(trace, a), _symbol(trace, b)
        if _BOOL not in (a.kind, b.kind):
            raise UnsupportedError("&, | and ^ are of conditions; bits of numbers have no text")
        neutral = {"&&": "true", "||": "false"}.get(sign)  # torch's and_masks() and or_masks() begin with it
        for one, other in ((a, b), (b, a)):
            if one.text == neutral and other.kind == _BOOL:
                return other
        return trace.symbol(f"({a.text} {sign} {b.text})", _BOOL)

    return function


def _not(trace, a):
    a = _symbol(trace, a)
    return trace.symbol(f"(!{a.text})" if a.kind == _BOOL else f"({a.text} == 0)", _BOOL)


def _div(trace, a, b, rounding_mode=None):
    if rounding_mode == "floor":
        return _floor_divide(trace, a, b)
    first, second = (_symbol(trace, each) for each in (a, b))
    if rounding_mode == "trunc" and _FLOAT not in (first.kind, second.kind):
        return trace.symbol(f"({first.text} / {second.text})", _INT, _natural(a, b))
    return trace.symbol(f"({_as_float(first)} / {_as_float(second)})", _FLOAT)


def _ints(trace, a, b, what):
    a, b, kind = _both(trace, a, b)
    if kind != _INT:
        raise UnsupportedError(f"{what} of floats has no text")
    return a, b


def _remainder(trace, a, b):
    """Of the sign of the divisor, as torch has it; C's is of the sign of the dividend."""
    first, second = _ints(trace, a, b, "%")
    text = f"({first} % {second})" if _natural(a, b) else f"(({first} % {second} + {second}) % {second})"
    return trace.symbol(text, _INT, isinstance(b, int) and b > 0 or _natural(a, b))


def _floor_divide(trace, a, b):
    first, second = _ints(trace, a, b, "//")
    if _natural(a, b):
        return trace.symbol(f"({first} / {second})", _INT, True)
    return trace.symbol(f"(({first} - {_remainder(trace, a, b).text}) / {second})", _INT)


def _extreme(name):
    def function(trace, a, b):
        first, second, kind = _both(trace, a, b)
        text = f"f{name}f({first}, {second})" if kind == _FLOAT else f"{name}({first}, {second})"
        return trace.symbol(text, kind, _natural(a, b))

    return function


def _clamp(trace, a, min=None, max=None):  # noqa: A002
    a = a if min is None else _extreme("max")(trace, a, min)
    natural = isinstance(min, int) and min >= 0
    a = a if max is None else _extreme("min")(trace, a, max)
    return trace.symbol(a.text, a.kind, natural and (max is None or isinstance(max, int)))


def _where(trace, condition, a, b):
    condition = _symbol(trace, condition)
    if all(_symbol(trace, each).kind == _BOOL for each in (a, b)):
        a, b = _symbol(trace, a), _symbol(trace, b)
        return trace.symbol(f"({condition.text} ? {a.text} : {b.text})", _BOOL)
    first, second, kind = _both(trace, a, b)
    return trace.symbol(f"({condition.text} ? {first} : {second})", kind, _natural(a, b))


def _absolute(trace, a):
    a = _symbol(trace, a)
    return trace.symbol(f"fabsf({a.text})" if a.kind == _FLOAT else f"abs({_number(a)})", a.kind, a.kind == _INT)


def _to(trace, a, *args, **kwargs):
    wanted = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.dtype)]
    kind = a.kind if not wanted else _FLOAT if wanted[0].is_floating_point else _BOOL if wanted[0] == torch.bool else _INT
    if kind == a.kind:
        return a
    return trace.symbol(f"{kind}({a.text})", kind, a.natural and kind == _INT)


def _power(trace, a, b):
    if isinstance(b, int) and 1 <= b <= 4:
        a = _symbol(trace, a)
        return trace.symbol("(" + " * ".join([_number(a)] * b) + ")", _INT if a.kind != _FLOAT else _FLOAT)
    return trace.symbol(f"powf({_as_float(_symbol(trace, a))}, {_as_float(_symbol(trace, b))})", _FLOAT)


def _constant(value):
    """new_zeros() and its like: a number of the dtype that is asked for."""

    def function(trace, a, *args, dtype=None, **_):
        kind = a.kind if dtype is None else _to(trace, a, dtype).kind
        filled = args[-1] if value is None else value
        return _symbol(trace, {_BOOL: bool, _INT: int, _FLOAT: float}[kind](filled))

    return function


def _unary(name):
    return lambda trace, a: trace.symbol(f"{name}f({_as_float(_symbol(trace, a))})", _FLOAT)


def _negative(trace, a):
    a = _symbol(trace, a)
    return trace.symbol(f"(-{_number(a)})", _FLOAT if a.kind == _FLOAT else _INT)


_FUNCTIONS = {
    **{name: _comparison(sign) for name, sign in _OPERATORS.items()},
    **{name: _unary(name) for name in _UNARY},
    "add": _arithmetic("+"), "sub": _arithmetic("-"), "mul": _arithmetic("*"), "div": _div, "floor_divide": _floor_divide,
    "rsub": lambda trace, a, b, alpha=1: _arithmetic("-")(trace, b, a, alpha), "remainder": _remainder, "pow": _power, "neg": _negative,
    "abs": _absolute, "minimum": _extreme("min"), "maximum": _extreme("max"), "clamp": _clamp, "where": _where,
    "logical_and": _logical("&&"), "logical_or": _logical("||"), "logical_xor": _logical("!="), "logical_not": _not,
    "sigmoid": lambda trace, a: trace.symbol(f"(1.0f / (1.0f + expf(-{_as_float(_symbol(trace, a))})))", _FLOAT),
    "relu": lambda trace, a: _extreme("max")(trace, a, 0.0), "square": lambda trace, a: _power(trace, a, 2),
    "reciprocal": lambda trace, a: _div(trace, 1.0, a), "to": _to, "type": _to, "float": lambda trace, a: _to(trace, a, torch.float32),
    "int": lambda trace, a: _to(trace, a, torch.int32), "long": lambda trace, a: _to(trace, a, torch.int64),
    "bool": lambda trace, a: _to(trace, a, torch.bool), "detach": lambda trace, a: a, "clone": lambda trace, a: a,
    "contiguous": lambda trace, a: a, "new_zeros": _constant(0), "new_ones": _constant(1), "zeros_like": _constant(0),
    "ones_like": _constant(1), "new_full": _constant(None), "full_like": _constant(None),
}  # fmt: skip


def _method(name):
    return lambda self, *args: apply(self.trace, name, (self, *args), {})


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor invert neg abs eq ne lt le gt ge"
).split():
    setattr(Symbol, f"__{_name}__", _method(f"__{_name}__"))
