"""attention_weights() and key_mass(): what queries of an attention() gave to its keys, from lse."""

import ctypes
import math
from array import array

from . import _c, _checks
from ._arrays import backend_of
from ._calls import parts as _parts
from ._calls.arguments import alignment_of_all, check_inputs, check_lse, problem_of_arrays, shape_of_lse, view_inputs
from ._calls.code import check_devices, code_of
from ._calls.lengths import packed_rows
from ._calls.overlap import overlaps_itself
from ._errors import InvalidError
from ._formats import DTYPES, FP32, INTEGERS
from ._library import check, context, lib
from ._options import check_options, options_of, takes_options
from ._ops import tensor

NOT_OF_WEIGHTS = (
    "return_lse", "tf32", "batch_invariant", "fast_sums", "deterministic", "rope", "rope_interleaved", "k_scale", "v_scale", "q_scale"
)


@takes_options(without=NOT_OF_WEIGHTS)
def attention_weights(q, k, lse, *, rows=None, out=None, stream=None, attn_mask=None, **options):
    """The weights of attention() for some queries, from its lse: float32 [batch, heads_q, rows, seqlen_kv].

    q, k and the options: as attention(..., return_lse=True) had them, which gave lse; what it returned for o is not changed by this,
    nor was it by asking for lse. A weight is exp(s - lse), 0 where a query does not see a key, and nothing of rows that are not asked
    for is stored. With sinks, which lse counts, the weights of a row add up to less than 1. With cu_seqlens, used_kv and page_table
    too the result has a batch, and 0 after a sequence's last key: seqlen_kv is max_seqlen, the padded length, or what the columns of
    the table may hold.
    rows: which queries of each sequence, an int32 array on the GPU, or numbers, which are uploaded; below 0 from its end: [-1] is the
    last. 0 where a sequence has no such query. None: all of them.
    out: a float32 array of that shape, contiguous in its last dimension. Arrays of frameworks other than torch and cupy need it.
    stream: a CUDA stream as a number; default: the framework's current one.

    q and k are of one dtype, float32, float16 or bfloat16; rotate them before it where a rope did. Enqueues one kernel and returns at
    once; may be captured into a CUDA graph after a first call of the same problem, where rows is None or an array. Has no derivative.
    Raises InvalidError (a ValueError) for what it cannot take, UnsupportedError, NotReadyError, CompileError or CudaError as the library says.
    """
    call = _Call(q, k, lse, stream, attn_mask, options)
    call.view_rows(rows)
    return call.run("attnforge_attention_weights", out, call.rows)


@takes_options(without=NOT_OF_WEIGHTS)
def key_mass(q, k, lse, *, out=None, stream=None, attn_mask=None, **options):
    """attention_weights() of all queries, summed over them: float32 [batch, heads_q, seqlen_kv], what each key was given.

    Costs about as much as the first product of a forward run, and no memory but that of the result. Sums are in the same order in
    every call: equal calls give equal bits. Arguments, and what is raised, as for attention_weights().
    """
    return _Call(q, k, lse, stream, attn_mask, options).run("attnforge_key_mass", out)


attention_weights._torchdynamo_disable = key_mass._torchdynamo_disable = True  # no ops of a graph


class _Call:
    """Of arrays that fit together."""

    def __init__(self, q, k, lse, stream, attn_mask, options):
        if attn_mask is not None:
            from .integrations.masks import with_attn_mask

            options = with_attn_mask(attn_mask, q, k, options)
        given = options_of(options, NOT_OF_WEIGHTS)
        if stream is not None:
            stream = _checks.integer("stream", stream, 0, 2**64 - 1, "a CUDA stream as a number")
        code = code_of(given.score, given.mask, given.args, stream, given.block_mask)
        kind, parts = _parts.view(given, stream)
        words = _parts.words_of(given, code, kind, parts)
        self.options = options = check_options(given, words)
        self.backend, self.given, self.code, self.parts = backend_of(q), given, code, parts
        inputs = view_inputs(q, k, k, stream, given, words)
        check_inputs(*inputs, options)
        self.q, self.k = inputs[:2]
        if self.q.code != self.k.code:
            raise InvalidError(f"q is {DTYPES[self.q.code]} and k is {DTYPES[self.k.code]}; weights are of one dtype")
        self.batch = _parts.check(parts, options, *inputs)
        self.device = self.q.device
        check_devices(code, self.device)
        self.lse = backend_of(lse).view("lse", lse, stream)
        check_lse("lse", self.lse, shape_of_lse(self.q, options.places), self.device)
        self.words = _parts.words_of_arrays(parts, options, self.batch, *inputs)
        if options.parts.packed:  # lengths that are not rounded: the result has them
            self._set_longest("q", options.parts.longest_q)
            if not options.parts.pages:
                self._set_longest("kv", options.parts.longest_kv)
        self.stream, self.queue = stream, self.backend.stream(self.device) if stream is None else stream
        self.rows = None

    def _set_longest(self, name, longest):
        of = self.q if name == "q" else self.k
        self.words[f"seqlen_{name}"], self.words[f"tokens_{name}"] = longest, packed_rows(self.batch, longest, of.shape[0])

    def view_rows(self, rows):
        """Sets `rows`: (address, count, owner)."""
        if rows is None:
            self.rows = None, self.words["seqlen_q"], None
        elif hasattr(rows, "shape"):
            view = backend_of(rows).view("rows", rows, self.stream, allowed=INTEGERS)
            if len(view.shape) != 1 or view.device != self.device or view.strides[0] != 1 and view.shape[0] > 1:
                raise InvalidError(
                    f"rows has shape {tuple(view.shape)} with strides {tuple(view.strides)} on GPU {view.device}; it must be contiguous "
                    f"int32 [rows] on GPU {self.device}"
                )
            self.rows = view.address, view.shape[0], view
        else:
            try:
                numbers = [_checks.integer(f"rows[{i}]", row, -(2**31), 2**31 - 1) for i, row in enumerate(rows)]
            except TypeError:
                _checks.refuse_type("rows", rows, "an int32 array on the GPU, or a list of numbers")
            address, owner = self.backend.upload(array("i", numbers).tobytes(), self.device, self.queue) if numbers else (None, None)
            self.rows = address, len(numbers), owner

    def run(self, function, out, rows=None):
        """The output of a function of the library. rows: as view_rows() sets them, where it has some."""
        q, k, options = self.q, self.k, self.options
        shape = self.batch, q.shape[options.places[2]], *(() if rows is None else rows[1:2]), self.words["seqlen_kv"]
        if out is None:
            out = self.backend.empty(shape, FP32, self.device, self.queue)
        view = backend_of(out).view("out", out, self.stream)
        wrong = tuple(view.shape) != shape or view.code != FP32 or view.device != self.device or overlaps_itself(view.shape, view.strides)
        if wrong or view.strides[-1] != 1 and view.shape[-1] > 1:
            raise InvalidError(
                f"out is {DTYPES[view.code]} {tuple(view.shape)} with strides {tuple(view.strides)} on GPU {view.device}; it must be fp32 "
                f"{shape} on GPU {self.device} with a contiguous last dimension"
            )
        if math.prod(shape) == 0:
            return out
        problem = problem_of_arrays(q, k, k, q.code, options, alignment_of_all((q, k)), self.batch, self.words)
        tail = _parts.Tail(self.parts, options, self.batch, q, k)
        of_run = _parts.of_run(self.given, self.code, self.backend, self.device, self.queue)
        end, kept = tail.pack([0 if each is None else each.address for each in self.parts], **of_run)
        of_q, of_k = tensor(q, options.places), tensor(k, options.places_kv)
        of_q.data, of_k.data = q.address, k.address
        of_lse = _c.Rows(self.lse.address, *(0, *self.lse.strides)[-3:-1])
        members = dict(zip(_parts.Tail.MEMBERS, end))
        tensors = _c.Tensors(ctypes.sizeof(_c.Tensors), of_q, of_k, lse=of_lse, **members)
        if rows is None:
            to = _c.Rows(view.address, *view.strides[:2])
            arguments = ctypes.byref(tensors), ctypes.byref(to)
        else:
            to = _c.Tensor(view.address, view.strides[0], view.strides[2], view.strides[1])
            arguments = ctypes.byref(tensors), rows[0], rows[1], ctypes.byref(to)
        with problem.handle() as handle:
            check(getattr(lib(), function)(context(self.device), handle, *arguments, self.queue))
        del kept, of_run  # what the arguments point to
        return out
