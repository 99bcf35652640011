"""Problems as Python objects and as text."""

import ctypes
from dataclasses import dataclass

from ._errors import InvalidError
from ._library import ProblemStruct, check, lib

DTYPES = ("fp32", "fp16", "bf16")
LAYOUTS = ("bshd", "bhsd", "packed_qkv")
ROPES = ("none", "interleaved", "half")
_NOT_FIELDS = ("struct_size", "op", "reserved")


def _index(names, value, what):
    try:
        return names.index(value)
    except ValueError:
        raise InvalidError(f"{what}={value!r} must be one of {', '.join(names)}") from None


@dataclass(frozen=True)
class Problem:
    """An attention problem; str(problem) is its canonical text and Problem.parse reads it.

    num_heads_kv, seqlen_kv, head_dim_v: None is the same as for queries. window_left, window_right: -1 is open.
    tf32: fp32 only, products may round their inputs to TF32.
    rope_dim: leading elements that rotate with a rope, 0 for all.
    """

    batch: int = 1
    num_heads_q: int = 1
    num_heads_kv: int = None
    seqlen_q: int = 1
    seqlen_kv: int = None
    head_dim: int = 64
    head_dim_v: int = None
    dtype_q: str = "bf16"
    dtype_k: str = None
    dtype_v: str = None
    dtype_o: str = None
    layout: str = "bshd"
    causal: bool = False
    lse: bool = False
    alignment_bytes: int = 16
    window_left: int = -1
    window_right: int = -1
    softcap: float = 0.0
    softmax_scale: float = 0.0
    tf32: bool = False
    rope: str = "none"
    rope_dim: int = 0

    def __post_init__(self):
        follow = {
            "num_heads_kv": self.num_heads_q,
            "seqlen_kv": self.seqlen_q,
            "head_dim_v": self.head_dim,
            "dtype_k": self.dtype_q,
            "dtype_v": self.dtype_q,
            "dtype_o": self.dtype_q,
        }
        for name, value in follow.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @staticmethod
    def parse(text):
        """Reads the text form. Raises InvalidError naming the word, its value and what is allowed."""
        struct = ProblemStruct(struct_size=ctypes.sizeof(ProblemStruct))
        check(lib().attnforge_problem_parse(text.encode(), ctypes.byref(struct)))
        values = {name: getattr(struct, name) for name, _ in ProblemStruct._fields_ if name not in _NOT_FIELDS}
        for name in ("dtype_q", "dtype_k", "dtype_v", "dtype_o"):
            values[name] = DTYPES[values[name]]
        values["layout"] = LAYOUTS[values["layout"]]
        values["rope"] = ROPES[values["rope"]]
        for name in ("causal", "lse", "tf32"):
            values[name] = bool(values[name])
        return Problem(**values)

    def struct(self):
        """As the C API takes it."""
        struct = ProblemStruct(struct_size=ctypes.sizeof(ProblemStruct))
        for name, kind in ProblemStruct._fields_:
            if name in _NOT_FIELDS:
                continue
            value = getattr(self, name)
            if name.startswith("dtype"):
                value = _index(DTYPES, value, name)
            elif name == "layout":
                value = _index(LAYOUTS, value, name)
            elif name == "rope":
                value = _index(ROPES, value, name)
            setattr(struct, name, float(value) if kind is ctypes.c_float else int(value))
        return struct

    def __str__(self):
        struct = self.struct()
        length = ctypes.c_size_t()
        check(lib().attnforge_problem_format(ctypes.byref(struct), None, 0, ctypes.byref(length)))
        buffer = ctypes.create_string_buffer(length.value + 1)
        check(lib().attnforge_problem_format(ctypes.byref(struct), buffer, len(buffer), None))
        return buffer.value.decode()


def as_problem(problem):
    """A Problem from a Problem or its text."""
    return problem if isinstance(problem, Problem) else Problem.parse(problem)
