"""Problems as Python objects, as text, and as handles of the C API, which are made from the text."""

import contextlib
import ctypes
import re
from dataclasses import dataclass, fields

from . import _checks
from ._errors import InvalidError
from ._formats import DTYPES
from ._library import check, lib

# Fields that the text calls otherwise.
_WORDS = {"dtype_q": "q", "dtype_k": "k", "dtype_v": "v", "dtype_o": "o", "alignment_bytes": "alignment"}
# Texts in quotes, in which blanks do not end a word.
_TEXTS = ("args", "score", "mask", "dargs")
_WORD = re.compile(r'(?:[^\s"]|"(?:\\.|[^"\\])*")+')
_FIELDS = {word: name for name, word in _WORDS.items()}


@dataclass(frozen=True)
class Problem:
    """An attention problem; str(problem) is its canonical text and Problem.parse reads it.

    num_heads_kv, seqlen_kv, tokens_kv, head_dim_v: None is the same as for queries. window_left, window_right: -1 is open.
    tf32: fp32 only, products may round their inputs to TF32.
    sinks: the softmax of a row counts a logit of its query head.
    batch_invariant: the bits of a sequence's result do not depend on what else is in the batch.
    rope: "none", "interleaved" or "half"; rope_dim: leading elements that rotate, 0 for all.
    lengths: "fixed", "packed" or "used"; tokens_q, tokens_kv: of packed tensors, the most rows; 0: batch times seqlen.
    page_size: rows of a page of k and v, with lengths="used"; 0: they do not lie in pages.
    fast_sums: with q, k and v of "e4m3", sums over keys may be those of tensor cores.
    kv_scale: of k and v of "int8", "int4", "e4m3" or "e5m2", what shares a scale: "tensor", "head", "token", "group32", ...
    kv_zero: of "int4", after each scale of a row lies a zero point.
    mask_block_q, mask_block_kv: blocks of a block mask, 0: none; mask_heads, mask_batch: how many have one of their own; mask_bits:
    partial blocks have bits; density: about the share of blocks present, for estimates and tuning.
    score, mask: C++ of the caller's; args: what they may name, "float* slope, int window".
    op: "fwd", or "bwd", its gradients, which has words of its own. deterministic: equal runs give equal bits. accumulate: gradients
    are added to what dq, dk and dv hold. dlse: a gradient of lse comes in. gradients: dtype of dq, dk and dv, "same" or "fp32".
    dargs: arrays of args that get a gradient, "slope, bias". With op="merge" o and lse of so many parts become those of all.
    With op="append" new rows go to caches; queries: q is rotated too; lengths_after: new lengths are written.
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
    sinks: bool = False
    batch_invariant: bool = False
    fast_sums: bool = False
    rope: str = "none"
    rope_dim: int = 0
    lengths: str = "fixed"
    tokens_q: int = 0
    tokens_kv: int = None
    page_size: int = 0
    kv_scale: str = "none"
    kv_zero: bool = False
    mask_block_q: int = 0
    mask_block_kv: int = None
    mask_heads: int = 1
    mask_batch: int = 1
    mask_bits: bool = False
    density: float = 0.0
    args: str = ""
    score: str = ""
    mask: str = ""
    op: str = "fwd"
    deterministic: bool = False
    accumulate: bool = False
    dlse: bool = False
    gradients: str = "same"
    dargs: str = ""
    parts: int = 0
    queries: bool = False
    lengths_after: bool = False

    def __post_init__(self):
        if isinstance(self.batch, str):
            raise InvalidError(f"Problem({self.batch[:100]!r}): its arguments are fields by their names; a text is read by Problem.parse()")
        follow = {
            "num_heads_kv": self.num_heads_q,
            "seqlen_kv": self.seqlen_q,
            "tokens_kv": self.tokens_q,
            "head_dim_v": self.head_dim,
            "mask_block_kv": self.mask_block_q,
            "dtype_k": self.dtype_q,
            "dtype_v": self.dtype_q,
            "dtype_o": "bf16" if self.dtype_q == "e4m3" else self.dtype_q,
        }
        for name, value in follow.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @staticmethod
    def parse(text):
        """Reads the text form. Raises InvalidError naming the word, its value and what is allowed."""
        kinds = {field.name: field.type for field in fields(Problem)}
        values = {}
        with _handle_of(_checks.text("problem", text)) as handle:
            words = _WORD.findall(_text_of(handle))
        values["op"] = words[0]
        for word in words[1:]:
            word, equals, value = word.partition("=")
            if word == "blocks":
                values["mask_block_q"], values["mask_block_kv"] = map(int, value.split(":"))
            elif equals:
                name = _FIELDS.get(word, word)
                values[name] = _unquoted(value) if name in _TEXTS else kinds[name](value)
            else:
                values["dtype_q" if word in DTYPES else word] = word if word in DTYPES else True
        return Problem(**values)

    def words(self):
        """Text that says this problem, not the canonical one. Raises InvalidError for what a word cannot hold."""
        words = [_one_word("op", self.op)]
        for field in fields(self):
            if field.name == "op":
                continue
            value = getattr(self, field.name)
            value = _quoted(field.name, value) if field.name in _TEXTS else _CHECKED[field.type](field.name, value)
            if value != field.default:
                word = _WORDS.get(field.name, field.name)
                words.append(word if value is True else f"{word}={value}")
        return " ".join(words)

    def handle(self):
        """A context manager: the address of an attnforge_problem, destroyed at its end."""
        return _handle_of(self.words())

    def bucket(self):
        """Text of the problem with lengths and batch rounded, as the database has it: all that round to it share a winner."""
        with self.handle() as handle:
            check(lib().attnforge_problem_round(handle))
            return _text_of(handle)

    def __str__(self):
        with self.handle() as handle:
            return _text_of(handle)


def _quoted(name, value):
    value = _checks.text(name, value)
    return value and '"%s"' % value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unquoted(text):
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text[1:-1])


def _one_word(name, value):
    if len(_checks.text(name, value).split()) != 1 or value != value.strip():
        raise InvalidError(f"{name}={value[:100]!r} must be one word")
    return value


_CHECKED = {
    bool: _checks.flag,
    int: lambda name, value: _checks.integer(name, value, -(2**63), 2**63 - 1),
    float: _checks.number,
    str: _one_word,
}


@contextlib.contextmanager
def _handle_of(text):
    made = ctypes.c_void_p()
    check(lib().attnforge_problem_create(text.encode(), ctypes.byref(made)))
    try:
        yield made
    finally:
        lib().attnforge_problem_destroy(made)


def _text_of(handle):
    length = ctypes.c_size_t()
    check(lib().attnforge_problem_format(handle, None, 0, ctypes.byref(length)))
    buffer = ctypes.create_string_buffer(length.value + 1)
    check(lib().attnforge_problem_format(handle, buffer, len(buffer), None))
    return buffer.value.decode()


def as_problem(problem):
    """A Problem from a Problem or its text."""
    return problem if isinstance(problem, Problem) else Problem.parse(problem)
