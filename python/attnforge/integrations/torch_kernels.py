"""The ops attnforge::* of torch: schemas, what runs, what is known of results without a run, derivatives and torch.vmap.

forward, decode (o alone, without a derivative) and backward make new tensors; *_out, append_kv write into what they are given. Ops have
the options of a call as options.py says: parts, numbers and options.
"""

import torch

from .._gradients import autograd
from .._caches.append import append_kv
from .._attention import attention
from .._gradients.backward import attention_backward
from .._errors import UnsupportedError
from .._merge import merge_states
from .._plans import plan_cache
from .options import decode, template
from .vmap import fold

_QKV = "Tensor q, Tensor k, Tensor v"
_OPTIONS = "Tensor[] parts, SymInt[] numbers, str options"
_OF_BACKWARD = f"{_QKV}, Tensor o, Tensor lse, Tensor? dout, Tensor? dlse, {_OPTIONS}"
_SCHEMAS = (
    f"forward({_QKV}, {_OPTIONS}) -> (Tensor, Tensor)",
    f"decode({_QKV}, {_OPTIONS}) -> Tensor",
    f"forward_out({_QKV}, {_OPTIONS}, Tensor(a!) o, Tensor(b!)? lse) -> ()",
    f"backward({_OF_BACKWARD}, bool[] needs) -> Tensor[]",
    f"backward_out({_OF_BACKWARD}, Tensor(a!)[] out, bool accumulate, Tensor(b!)[] dargs, str[] names) -> ()",
    "append_kv(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? used_kv, Tensor? page_table, Tensor? cu_seqlens, "
    "Tensor(c!)? used_kv_after, bool goes_on, Tensor? cos, Tensor? sin, bool rope_interleaved, SymInt rope_offset, Tensor? q, "
    "Tensor(d!)? q_out, str layout, Tensor(e!)? k_scale, Tensor(f!)? v_scale) -> ()",
    "merge_states(Tensor[] o, Tensor[] lse, str layout) -> (Tensor, Tensor)",
    "merge_states_out(Tensor[] o, Tensor[] lse, str layout, Tensor(a!) merged, Tensor(b!) merged_lse) -> ()",
)
_library = torch.library.Library("attnforge", "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def _runs(function):
    """Defines what an op does, on any device: attention() says which it takes."""
    _library.impl(function.__name__.rstrip("_"), function, "CompositeExplicitAutograd")
    return function


def _fake(name):
    return torch.library.register_fake(f"attnforge::{name}", lib=_library)


def _options(parts, numbers, text):
    if not parts:
        return decode(text, numbers)
    return autograd.with_tensors(decode(text, numbers), parts)


def _rows_may_not_count(text):
    return "cu_seqlens" in template(text) or "used_kv" in template(text)


def _places(text):
    """Of rows and heads in q, and whether there is a batch before them."""
    given = template(text)
    if "cu_seqlens" in given:
        return 0, 1, False
    return (2, 1, True) if given.get("layout") == "bhsd" else (1, 2, True)


def _shape_of_o(q, v):
    return (*q.shape[:-1], v.shape[-1] * (2 if v.dtype == torch.uint8 else 1))  # a byte has two numbers of 4 bits


def _dtype_of_o(q):
    return torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype


def _new_outputs(q, v, text, make="new_empty"):
    """(o, lse) as kernels write them: contiguous."""
    row, head, batched = _places(text)
    rows = q.shape[head], q.shape[row]
    o = getattr(q, make)(_shape_of_o(q, v), dtype=_dtype_of_o(q))
    return o, getattr(q, make)((q.shape[0], *rows) if batched else rows, dtype=torch.float32)


# ---- Forward ----


@_runs
def forward(q, k, v, parts, numbers, options):
    # Where rows do not count they are 0, lest something made of them is no number.
    out = _new_outputs(q, v, options, "new_zeros") if _rows_may_not_count(options) else None
    with torch.no_grad():
        return attention(q, k, v, out=out, return_lse=True, **_options(parts, numbers, options))


@_runs
def decode_(q, k, v, parts, numbers, options):
    if torch.is_grad_enabled():
        with torch.no_grad():
            return attention(q, k, v, **_options(parts, numbers, options))
    return attention(q, k, v, **_options(parts, numbers, options))


@_runs
def forward_out(q, k, v, parts, numbers, options, o, lse):
    of_lse = {} if lse is None else {"return_lse": True}
    attention(q, k, v, out=o if lse is None else (o, lse), **of_lse, **_options(parts, numbers, options))


@_fake("forward")
def _(q, k, v, parts, numbers, options):
    return _new_outputs(q, v, options)


@_fake("decode")
def _(q, k, v, parts, numbers, options):
    return q.new_empty(_shape_of_o(q, v), dtype=_dtype_of_o(q))


# ---- Backward ----


@_runs
def backward(q, k, v, o, lse, dout, dlse, parts, numbers, options, needs):
    always, saved = torch.are_deterministic_algorithms_enabled(), (q, k, v, o, lse)
    plain = None if parts or dlse is not None or dout is None else _plain(options, (tuple(numbers), always, q.shape, k.shape, v.shape))
    if plain is not None and (found := plain.gradients(saved, dout)):
        return list(found)
    given = dict(decode(options, numbers))
    given.pop("rope_offset", None)
    given["deterministic"] = given.get("deterministic", False) or always
    with torch.no_grad():
        found = autograd.gradients_of(torch, given, (*saved, *parts), (True,) * 3 + tuple(needs), dout, dlse)
        if plain is not None:
            plain.remember(saved, dout, autograd.of_backward(given))
    return found[:3] + [each for each, needed in zip(found[3:], needs) if needed]


_plains = {}


def _plain(options, of_call):
    """What is known of backward calls with these options, shapes and so on, and without other tensors; None of block masks, which it
    would keep."""
    if "'@" in options:
        return None
    key = options, *of_call
    plain = _plains.get(key)
    if plain is None or plain.epoch != plan_cache.epoch:
        if len(_plains) >= 4096:
            _plains.clear()
        plain = _plains[key] = autograd.Plain({}, plan_cache.epoch)
    return plain


@_fake("backward")
def _(q, k, v, o, lse, dout, dlse, parts, numbers, options, needs):
    of_parts = [each.new_empty(each.shape) for each, needed in zip(parts, needs) if needed]
    return [each.new_empty(each.shape) for each in (q, k, v)] + of_parts


@_runs
def backward_out(q, k, v, o, lse, dout, dlse, parts, numbers, options, out, accumulate, dargs, names):
    given = _options(parts, numbers, options)
    fp32 = {"fp32_gradients": True} if out[0].dtype == torch.float32 != q.dtype else {}
    own = {"out": tuple(out), "dlse": dlse, "accumulate": accumulate, "dargs": dict(zip(names, dargs))}
    attention_backward(q, k, v, o, lse, dout, **own, **fp32, **given)


def _keep(ctx, inputs, output):
    q, k, v, parts, ctx.numbers, ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output, *parts)
    ctx.set_materialize_grads(False)


def _gradients(ctx, dout, dlse):
    q, k, v, o, lse, *parts = ctx.saved_tensors
    numbers = None if ctx.numbers else []
    needs = [bool(each) for each in ctx.needs_input_grad[3]] if parts else []
    if dout is None and dlse is None:
        return None, None, None, [None] * len(parts), numbers, None
    found = torch.ops.attnforge.backward(q, k, v, o, lse, dout, dlse, parts, ctx.numbers, ctx.options, needs)
    of_parts = iter(found[3:])
    of_inputs = [each if needed else None for each, needed in zip(found, ctx.needs_input_grad[:3])]
    return (*of_inputs, [next(of_parts) if needed else None for needed in needs], numbers, None)


torch.library.register_autograd("attnforge::forward", _gradients, setup_context=_keep, lib=_library)


def _refuse(what):
    def refuse(ctx, *_):
        raise UnsupportedError(what)

    return refuse


# Nothing of decode: a step of Python would cost, and attention() takes forward where a tensor requires grad. torch warns.
for _name, _what in (
    ("backward", "attention has a first derivative, but no second one: its gradients were differentiated again"),
    ("merge_states", "merge_states() has no derivative"),
):
    torch.library.register_autograd(f"attnforge::{_name}", _refuse(_what), lib=_library)


# ---- Caches and parts ----


@_runs
def append_kv_(
    k, v, k_cache, v_cache, used_kv, page_table, cu_seqlens, used_kv_after, goes_on, cos, sin, interleaved, offset, q, q_out, layout, *scales
):
    used_kv = used_kv_after if goes_on else used_kv
    rope = None if cos is None else (cos, sin)
    q = q_out if q is None else q
    arrays = k, v, k_cache, v_cache, used_kv, page_table, cu_seqlens, used_kv_after
    append_kv(*arrays, rope, interleaved, offset, q, q_out, layout, None, *scales)


@_runs
def merge_states_(o, lse, layout):
    with torch.no_grad():
        return merge_states(o, lse, layout)


@_runs
def merge_states_out(o, lse, layout, merged, merged_lse):
    merge_states(o, lse, layout, (merged, merged_lse))


@_fake("merge_states")
def _(o, lse, layout):
    return o[0].new_empty(o[0].shape), lse[0].new_empty(lse[0].shape)


for _name in ("forward_out", "backward_out", "append_kv", "merge_states_out"):
    _fake(_name)(lambda *_: None)


# ---- torch.vmap: the mapped dimension becomes one with the batch ----


def _vmap(name):
    return torch.library.register_vmap(f"attnforge::{name}", lib=_library)


@_vmap("forward")
def _(info, in_dims, q, k, v, parts, numbers, options):
    (q, k, v), parts, unfold = fold(info.batch_size, in_dims[:3], (q, k, v), in_dims[3], parts, options)
    o, lse = torch.ops.attnforge.forward(q, k, v, parts, numbers, options)
    return (unfold(o), unfold(lse)), (0, 0)


@_vmap("decode")
def _(info, in_dims, q, k, v, parts, numbers, options):
    (q, k, v), parts, unfold = fold(info.batch_size, in_dims[:3], (q, k, v), in_dims[3], parts, options)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v, *parts)):  # which only shows in here
        return unfold(torch.ops.attnforge.forward(q, k, v, parts, numbers, options)[0]), 0
    return unfold(torch.ops.attnforge.decode(q, k, v, parts, numbers, options)), 0


@_vmap("backward")
def _(info, in_dims, q, k, v, o, lse, dout, dlse, parts, numbers, options, needs):
    if any(needs):
        raise UnsupportedError("torch.vmap of gradients of sinks and arrays: these add up over the batch; call it for each instead")
    tensors, parts, unfold = fold(info.batch_size, in_dims[:7], (q, k, v, o, lse, dout, dlse), in_dims[7], parts, options)
    found = torch.ops.attnforge.backward(*tensors, parts, numbers, options, needs)
    return [unfold(each) for each in found], [0] * len(found)
