"""attention_backward(): the gradients of attention(), by a plan of a problem that begins with bwd."""

import ctypes
import warnings
from dataclasses import replace

from .. import _c, _checks, _graphs
from .._calls import native, parts as _parts
from .._calls.arguments import (
    alignment_of_all, check_inputs, check_rows, problem_of, problem_of_arrays, check_lse, shape_of_lse, view_inputs
)
from .._arrays import backend_of
from .._block_mask import by_number
from .backward_call import BackwardCall
from .._calls.code import check_dargs_apart, check_devices, code_of, dargs_of, may_be_whole, name_of
from .._errors import InvalidError, PerformanceWarning, UnsupportedError
from .._calls.fast import fast, find
from .._formats import FP32, ITEM_BYTES
from .._graphs import with_op
from .._calls.native import BACKWARD
from .._library import check, context, lib
from .._options import OF_FORWARD, check_options, options_of, takes_options
from .._calls.overlap import first_overlap, overlaps_itself
from .._calls.parts import check_of_heads
from .._calls.rest import clear_rest, end_of
from .._plans import plan_cache, plan_of
from .._problem import DTYPES

_NAMES = ("q", "k", "v", "o", "dout", "dq", "dk", "dv", "dsinks", "lse", "dlse", *_parts.NAMES)
_OUTPUTS = (5, 6, 7, 8)


@with_op
@takes_options(without=OF_FORWARD)
def attention_backward(
    q, k, v, o, lse, dout, *, out=None, stream=None, dlse=None, accumulate=False, fp32_gradients=False, dargs=None, **options
):
    """The gradients (dq, dk, dv) of attention() with the same arguments, from o and lse and the gradient dout of o.

    attention() calls this itself where a tensor of torch requires grad; it is public for what puts attention together by hand, as
    ring attention does. With p = exp(s - lse), delta = sum over columns of dout o, - dlse, and ds = p (dout v - delta), they are
    dv = p dout, dq = softmax_scale ds k, dk = softmax_scale ds q. Beside sinks there is a fourth, dsinks, float32 [heads_q]: of a head
    the sum over its rows of -exp(sink - lse) delta. This holds whatever o and lse are: those of all keys, say, beside
    the k and v of one step of a ring, whose gradients of q then add up over the steps.

    q, k, v and the options: as for attention(). Of a score the derivative with respect to s is taken, through operators and the
    functions of C. o and dout: like q with head_dim_v, of one dtype. lse: float32 [batch, heads_q, seqlen_q] (packed: [heads_q,
    tokens]), as return_lse=True gives it; -inf: the row has seen no key, and gives nothing. dlse: the gradient of lse, of its
    shape, or None. Any strides with a contiguous last dimension. sinks: as for attention(), if their gradients are wanted: the
    others do not depend on them. Head dims are multiples of 8 (tensor cores: up to 256). Nothing else that attention() takes has
    gradients.
    out: where the gradients go, (dq, dk, dv), beside sinks (dq, dk, dv, dsinks), with the shapes of q, k and v: of the dtypes of q, k
    and v, or all float32. They may not share memory with an input or with one another. Default: new arrays, float32 with
    fp32_gradients. Arrays of frameworks other than torch and cupy need it. dk and dv have heads_kv heads: those of a group of query
    heads add up, in float32.
    dargs: {"slope": array}, of arrays of floats in args that score reads: contiguous float32 arrays of the same shapes, whatever those'
    dtype, to which their gradients are added, with accumulate or without: zeros give the gradient alone. Each read of an element adds ds
    times the derivative of the score with respect to what was read, in any order: not with deterministic. Of an array of 16 bits that
    args calls "aligned bias", that is added to the score and of which each pair reads an element of its own, it may be an array of its
    dtype too, which is then written (docs/USER_CODE.md).
    accumulate: the gradients are added to what out holds.
    Rows that do not count (after the last of cu_seqlens, or beyond used_kv) stay as they are in out, and are 0 in new arrays.
    stream: a CUDA stream as a number; default: the framework's current one.

    Enqueues on the stream and returns at once; may be captured into a CUDA graph after a first call with the same shapes.
    Thread-safe. Memory beside the outputs is O(tokens). Has no derivative. Raises InvalidError (a ValueError) for what it cannot
    take, UnsupportedError, NotReadyError or CudaError as the library says. Warns with PerformanceWarning, once per problem, where
    dtypes, head dims or addresses keep it from the tensor cores.
    """
    if _graphs.waiting and _graphs.torch_is_there():
        own = dict(stream=stream, dlse=dlse, accumulate=accumulate, fp32_gradients=fp32_gradients, dargs=dargs)
        return attention_backward(q, k, v, o, lse, dout, out=out, **own, **options)
    found = told = None
    if out is None and stream is None and accumulate is False and fp32_gradients is False and dargs is None:
        named = by_number(options) if "block_mask" in options else options
        found = fast.native(*(told := (BACKWARD, None, q, k, v, o, lse, dout, dlse, named)))
        if found:
            return found
    told = told if found is False else None
    return by_plans(q, k, v, o, lse, dout, dlse, dargs, options, out, stream, accumulate, fp32_gradients, told=told)


def by_plans(
    q, k, v, o, lse, dout, dlse, dargs, options, out=None, stream=None, accumulate=False, fp32_gradients=False, dargs_are_new=False, told=None
):
    """attention_backward() by Python. dargs_are_new: they share memory with no other array. told: what fast.native() is to remember."""
    epoch = plan_cache.epoch
    key = ran = None
    if dargs is None or type(dargs) is dict and (dargs_are_new or not dargs):
        values = q, k, v, o, lse, dout, dlse, out, accumulate, fp32_gradients, *options.values(), *(dargs or {}).values()
        names = ("backward", *options, "dargs", *dargs) if dargs else ("backward", *options)
        key, ran = fast.again(names, values, q, k, v, o, lse, dout, dlse, out, stream, options, dargs)
    if ran is not None:
        status, result = ran
        if status:
            check(status)
        if told is not None:
            since = native.epoch()
            native.remember_backward(find(key), since, told, (*result, *(dargs or {}).values()))
        return result
    given = options_of(options, OF_FORWARD)
    result = _run(key, epoch, (q, k, v), o, lse, dout, given, out, stream, dlse, accumulate, fp32_gradients, dargs)
    if told is not None and given.cu_seqlens is not None:  # calls of other numbers of rows are like it
        since = native.epoch()
        native.remember_backward(find(key), since, told, (*result, *(dargs or {}).values()), first=True)
    return result


def _run(key, epoch, inputs, o, lse, dout, given, out, stream, dlse, accumulate, fp32_gradients, dargs):
    """attention_backward() for any arrays, with every check. Remembers the call by `key`, if there is one. given: its Options."""
    # ---- 1. Arguments ----
    if stream is not None:
        stream = _checks.integer("stream", stream, 0, 2**64 - 1, "a CUDA stream as a number")
    words = {
        "accumulate": _checks.flag("accumulate", accumulate),
        "dlse": dlse is not None,
        "deterministic": _checks.flag("deterministic", given.deterministic),
        "sinks": given.sinks is not None,
    }
    fp32_gradients = _checks.flag("fp32_gradients", fp32_gradients)
    if words["accumulate"] and out is None:
        raise InvalidError(f"accumulate=True adds to out, which is None; pass out={_out_of(words['sinks'])}")
    code = code_of(given.score, given.mask, given.args, stream, given.block_mask)
    kind, parts = _parts.view(given, stream)
    words_of_parts = _parts.words_of(given, code, kind, parts)
    options = check_options(given, words_of_parts)

    # ---- 2. Arrays that fit together ----
    backend = backend_of(inputs[0])
    inputs = view_inputs(*inputs, stream, given, words_of_parts)
    o, dout = (backend_of(each).view(name, each, stream) for name, each in (("o", o), ("dout", dout)))
    lse = backend_of(lse).view("lse", lse, stream)
    dlse = None if dlse is None else backend_of(dlse).view("dlse", dlse, stream)
    check_inputs(*inputs, options)
    batch = _parts.check(parts, options, *inputs)
    _check_outputs_of_forward(o, dout, (lse, dlse), inputs, options)
    device = inputs[0].device
    check_devices(code, device)
    dargs = dargs_of(dargs, given.args, device, stream)
    check_dargs_apart(dargs, (*inputs, o, dout, lse, dlse, *parts, *code.arrays))
    queue = backend.stream(device) if stream is None else stream
    allocator = backend if out is None else None
    if out is None:
        out = _new_gradients(backend, inputs, parts.sinks, fp32_gradients, options, queue)
        *gradients, dsinks = _view_gradients(out, stream)
        if options.parts.packed:
            begins = parts.of_q, parts.of_kv, parts.of_kv
            clear_rest(device, queue, [(x.address, x.shape, ITEM_BYTES[x.code], end_of(of)) for x, of in zip(gradients, begins)])
    else:
        out, (*gradients, dsinks) = _given_gradients(out, inputs, parts.sinks, fp32_gradients, options, stream)
        _check_apart((*inputs, o, dout, *gradients, dsinks, lse, dlse, *parts))
    check_dargs_apart(dargs, (*gradients, dsinks))

    # ---- 3. Plan and run ----
    tensors = (*inputs, o, dout, *gradients)
    words.update(dargs=dargs.word, gradients="fp32" if gradients[0].code == FP32 else "same")
    words = {**_parts.words_of_arrays(parts, options, batch, *inputs[:2]), **words}
    known = plan_cache.get_call(key)  # before the plan, which a call that was made after a clear() must not get
    problem = _problem(inputs, o.code, options, batch, words, alignment_of_all(tensors))
    plan = plan_of(problem, device, _warn_of_cliffs, epoch)
    of_run = _parts.of_run(given, code, backend, device, queue, dargs.addresses())
    tail = _parts.Tail(parts, options, batch, *inputs[:2])
    argument = _argument(tensors, lse, dlse, dsinks, parts, tail, options, of_run)
    if key is not None and (allocator is not None or not any(each is not None for each in parts)):
        call = known or BackwardCall((*tensors, lse, dlse, dsinks), options, allocator, tail, batch)
        call.add([array.address for array in tensors], plan)
        plan_cache.put_call(key, call, epoch)
    fast.open(backend)
    plan.run(ctypes.byref(argument[0]), backend, device, queue)
    # Owners kept memory alive until here; frameworks free it in the stream's order.
    del inputs, o, dout, lse, dlse, dsinks, parts, gradients, tensors, argument, of_run, code, dargs
    return out


_served = {}


def why_not_served(q, k, v, options, parts, **words):
    """Why no kernel computes the gradients of a call with these arrays; "" where one does. parts: PartArrays. words: of the problem,
    beside those of options."""
    key = tuple((x and (x.shape, x.code, x.device)) for x in (q, k, v, *parts)), options, tuple(words.items())
    reason = _served.get(key)
    if reason is None:
        batch = _parts.check(parts, options, q, k, v)
        words = {**_parts.words_of_arrays(parts, options, batch, q, k), **words}
        problem = _problem((q, k, v), q.code, options, batch, words, alignment_of_all((q, k, v)))
        reason = ""
        try:
            with problem.handle() as handle:
                check(lib().attnforge_query(context(q.device), handle))
        except (InvalidError, UnsupportedError) as error:
            reason = str(error) or "the library does not say why"
        if len(_served) >= 4096:
            _served.clear()
        _served[key] = reason
    return reason


def problem_of_backward(q, k, v, deterministic=False, **options):
    """(problem, device) of the gradients of a call of attention() with these arguments; of sinks where these may require grad, and of
    arrays in args that do."""
    forward, device = problem_of(q, k, v, **options)
    sinks = getattr(options.get("sinks"), "requires_grad", forward.sinks)
    words = {"lse": False, "dlse": forward.lse, "sinks": sinks, "deterministic": deterministic, "batch_invariant": False}
    trained = {name: x for name, x in (options.get("args") or {}).items() if getattr(x, "requires_grad", False)}
    problem = replace(forward, op="bwd", dargs=", ".join(map(name_of, trained)), **words)
    if len(trained) == 1 and may_be_whole(*next(iter(trained.items()))):
        whole = replace(problem, dargs=f"whole {problem.dargs}")
        try:
            with whole.handle() as handle:
                check(lib().attnforge_query(context(device), handle))
            return whole, device
        except (InvalidError, UnsupportedError):
            pass
    return problem, device


# ---- What the arrays must be ----


def _check_outputs_of_forward(o, dout, rows, inputs, options):
    """Raises InvalidError unless o, dout, and those of (lse, dlse) that are there, are of the call with these inputs."""
    q, _, v = inputs
    wanted = (*q.shape[:-1], v.shape[-1])
    for name, array in (("o", o), ("dout", dout)):
        check_rows(name, array, options.places)
        if tuple(array.shape) != wanted or array.device != q.device:
            raise InvalidError(f"{name} has shape {tuple(array.shape)} on GPU {array.device}; it must be {wanted} on GPU {q.device}")
    if dout.code != o.code:
        raise InvalidError(f"dout is {DTYPES[dout.code]} and o is {DTYPES[o.code]}; they must be of one dtype")
    wanted = shape_of_lse(q, options.places)
    for name, array in zip(("lse", "dlse"), rows):
        if array is not None:
            check_lse(name, array, wanted, q.device)


def _out_of(sinks):
    return "(dq, dk, dv, dsinks)" if sinks else "(dq, dk, dv)"


def _new_gradients(backend, inputs, sinks, fp32_gradients, options, queue):
    """Arrays of the framework for the gradients of inputs and of sinks, or None; of padded tensors rows that do not count are 0."""

    def new(array, code):
        zeros = options.parts.rows_may_not_count and not options.parts.packed
        return backend.empty(tuple(array.shape), code, inputs[0].device, queue, zeros)

    out = tuple(new(x, FP32 if fp32_gradients else x.code) for x in inputs)
    return out if sinks is None else (*out, new(sinks, FP32))


def _given_gradients(out, inputs, sinks, fp32_gradients, options, stream):
    """The caller's arrays for the same, and how they are read and written."""
    if not isinstance(out, (tuple, list)) or len(out) != (3 if sinks is None else 4):
        raise InvalidError(f"out must be {'three' if sinks is None else 'four'} arrays, {_out_of(sinks is not None)}")
    views = _view_gradients(out, stream)
    _check_gradients(views[:3], inputs, fp32_gradients)
    check_of_heads("dsinks of out", views[3], inputs[0], options.places)
    return tuple(out), views


def _view_gradients(out, stream):
    """Those of q, k, v and sinks; None where there is none."""
    views = [backend_of(each).view(f"{name} of out", each, stream) for name, each in zip(("dq", "dk", "dv", "dsinks"), out)]
    return views + [None] * (4 - len(views))


def _check_gradients(gradients, inputs, fp32_gradients):
    """Raises InvalidError unless arrays can hold the gradients of inputs."""
    wide = fp32_gradients or all(each.code == FP32 for each in gradients)
    for name, array, of in zip(("dq", "dk", "dv"), gradients, inputs):
        wanted = FP32 if wide else of.code
        if tuple(array.shape) != tuple(of.shape) or array.device != of.device or array.code != wanted:
            both = "" if wide else ", or all three fp32"
            raise InvalidError(
                f"{name} of out is {DTYPES[array.code]} {tuple(array.shape)} on GPU {array.device}; it must be {DTYPES[wanted]} "
                f"{tuple(of.shape)} on GPU {of.device}{both}"
            )
        if array.strides[-1] != 1 and array.shape[-1] > 1:
            raise InvalidError(f"the last dimension of {name} of out has stride {array.strides[-1]}; it must be contiguous, of stride 1")
        if overlaps_itself(array.shape, array.strides):
            raise InvalidError(f"{name} of out has strides {tuple(array.strides)}: elements of it lie at one place")


def _check_apart(arrays):
    """Raises InvalidError if a gradient shares memory with another array; arrays as in _NAMES, None where there is none."""
    found = first_overlap(arrays, _OUTPUTS)
    if found is not None:
        name, other = (_NAMES[i] for i in found)
        raise InvalidError(f"{name} of out shares memory with {other}, but kernels read and write in any order; give it memory of its own")


# ---- The problem, its plan and the argument of a run ----


def _problem(inputs, code_o, options, batch, words, alignment):
    return replace(problem_of_arrays(*inputs, code_o, options, alignment, batch, words), op="bwd")


def _warn_of_cliffs(plan):
    if plan.family == "bwd_naive":
        warnings.warn(
            f'gradients run bwd_naive for "{plan.problem}": no tensor-core kernel takes these dtypes, head dims or addresses, and it may be '
            "100 times slower; use float16 or bfloat16 for all of q, k and v, head dims up to 256, and multiples of 16 bytes as addresses",
            PerformanceWarning,
            stacklevel=5,
        )


def _argument(tensors, lse, dlse, dsinks, parts, tail, options, of_run):
    """(_c.Tensors, what it points to). of_run: _parts.of_run()."""

    def of(array):
        return _c.Tensor(array.address, *(0 if i is None else array.strides[i] for i in options.places))

    def rows(array):
        return _c.Rows() if array is None else _c.Rows(array.address, *(0, *array.strides)[-3:-1])

    q, k, v, o, dout, dq, dk, dv = tensors
    gradients = _c.Gradients(ctypes.sizeof(_c.Gradients), of(dout), of(dq), of(dk), of(dv), rows(dlse))
    if dsinks is not None:
        gradients.dsinks = dsinks.address
    addresses = [0 if array is None else array.address for array in parts]
    end, kept = tail.pack(addresses, gradients=ctypes.addressof(gradients), **of_run)
    argument = _c.Tensors(ctypes.sizeof(_c.Tensors), of(q), of(k), of(v), of(o), rows(lse), **dict(zip(_parts.Tail.MEMBERS, end)))
    return argument, (gradients, kept)
