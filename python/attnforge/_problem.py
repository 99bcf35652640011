"""Problems as Python objects and as text."""

import ctypes
from dataclasses import dataclass

from . import _checks
from ._library import ProblemStruct, check, lib

DTYPES = ("fp32", "fp16", "bf16")
LAYOUTS = ("bshd", "bhsd", "packed_qkv")
ROPES = ("none", "interleaved", "half")
_NOT_FIELDS = ("struct_size", "op", "reserved")


_NAMES = {
    **dict.fromkeys(("dtype_q", "dtype_k", "dtype_v", "dtype_o"), DTYPES),
    "layout": LAYOUTS,
    "rope": ROPES,
}
_FLAGS = ("causal", "lse", "tf32")


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
        check(lib().attnforge_problem_parse(_checks.text("problem", text).encode(), ctypes.byref(struct)))
        values = {name: getattr(struct, name) for name, _ in ProblemStruct._fields_ if name not in _NOT_FIELDS}
        for name, names in _NAMES.items():
            values[name] = names[values[name]]
        for name in _FLAGS:
            values[name] = bool(values[name])
        return Problem(**values)

    def struct(self):
        """As the C API takes it. Raises InvalidError for what its fields cannot hold."""
        struct = ProblemStruct(struct_size=ctypes.sizeof(ProblemStruct))
        for name, kind in ProblemStruct._fields_:
            if name in _NOT_FIELDS:
                continue
            value = getattr(self, name)
            if name in _NAMES:
                value = _NAMES[name].index(_checks.one_of(name, value, _NAMES[name]))
            elif name in _FLAGS:
                value = int(_checks.flag(name, value))
            elif kind is ctypes.c_float:
                value = _checks.float32(name, value)
            else:
                most = 2 ** (8 * ctypes.sizeof(kind) - 1) - 1
                value = _checks.integer(name, value, -most - 1, most)
            setattr(struct, name, value)
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
