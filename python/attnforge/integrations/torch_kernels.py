"""The ops attnforge::* of torch: schemas, what runs, what is known of results without a run, derivatives and torch.vmap.

forward, decode (o alone, without a derivative) and backward make new tensors; *_out, append_kv write into what they are given. Ops have
the options of a call as options.py says: parts, numbers and options. Derivatives are steps of Python; graphs without them have
run_forward and run_backward, and of those that end with _cold see torch_shim.py.
"""

import torch

from .._gradients import autograd
from .._caches.append import append_kv
from .._calls.rest import clear_rest_of_tensors
from .._attention import attention
from .._gradients.backward import attention_backward
from .._errors import UnsupportedError
from .._merge import merge_states
from .._plans import plan_cache
from . import torch_shim
from .options import decode, template
from .vmap import fold

_QKV = "Tensor q, Tensor k, Tensor v"
_OPTIONS = "Tensor[] parts, SymInt[] numbers, str options"
_OF_BACKWARD = f"{_QKV}, Tensor o, Tensor lse, Tensor? dout, Tensor? dlse, {_OPTIONS}"
_OF_KERNELS = {
    "run_forward": f"({_QKV}, {_OPTIONS}) -> (Tensor, Tensor)",
    "decode": f"({_QKV}, {_OPTIONS}) -> Tensor",
    "forward_out": f"({_QKV}, {_OPTIONS}, Tensor(a!) o, Tensor(b!)? lse) -> ()",
    "run_backward": f"({_OF_BACKWARD}, bool[] needs) -> Tensor[]",
}
_SCHEMAS = (
    *(f"{name}{schema}" for name, schema in _OF_KERNELS.items()),
    *(f"{name}_cold{schema}" for name, schema in _OF_KERNELS.items()),
    f"forward{_OF_KERNELS['run_forward']}",
    f"backward{_OF_KERNELS['run_backward']}",
    f"backward_out({_OF_BACKWARD}, Tensor(a!)[] out, bool accumulate, bool new, Tensor(b!)[] dargs, str[] names) -> ()",
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


def _runs_cold(results):
    """The same, and what the op that ends with _cold does. results: as of torch_shim.cold()."""

    def define(function):
        _runs(function)
        name = function.__name__.rstrip("_")
        _library.impl(f"{name}_cold", torch_shim.cold(results)(function), "CompositeExplicitAutograd")
        return function

    return define


def _fake(name):
    return torch.library.register_fake(f"attnforge::{name}", lib=_library)


def _options(parts, numbers, text):
    if not parts:
        return decode(text, numbers)
    return autograd.with_tensors(decode(text, numbers), parts)


def _places(text):
    """Of rows and heads in q, and whether there is a batch before them."""
    given = template(text)
    if "cu_seqlens" in given:
        return 0, 1, False
    return (2, 1, True) if given.get("layout") == "bhsd" else (1, 2, True)


def _new_outputs(q, v, text):
    """(o, lse) as kernels write them: contiguous."""
    row, head, batched = _places(text)
    rows = q.shape[head], q.shape[row]
    o = q.new_empty(autograd.shape_of_o(q, v), dtype=autograd.dtype_of_o(q))
    return o, q.new_empty((q.shape[0], *rows) if batched else rows, dtype=torch.float32)


# ---- Forward ----


@_runs_cold(2)
def run_forward(q, k, v, parts, numbers, options):
    # Where rows do not count they are 0, lest something made of them is no number.
    given = {"return_lse": True, **decode(options, numbers)}
    with torch.no_grad():
        with_parts = autograd.with_tensors(given, parts)
        if autograd.rows_may_not_count(with_parts):
            return autograd.attend_to_rows(attention, q, k, v, with_parts)
        made = attention(q, k, v, **with_parts)
        if torch_shim.is_cold():
            torch_shim.remember_forward(q, k, v, parts, given, made, None)
    return made


@_runs_cold(1)
def decode_(q, k, v, parts, numbers, options):
    if torch.is_grad_enabled():
        with torch.no_grad():
            return decode_(q, k, v, parts, numbers, options)
    made = attention(q, k, v, **_options(parts, numbers, options))
    if torch_shim.is_cold():
        torch_shim.remember_forward(q, k, v, parts, decode(options, numbers), (made,), None)
    return made


@_runs_cold(0)
def forward_out(q, k, v, parts, numbers, options, o, lse):
    of_lse = {} if lse is None else {"return_lse": True}
    out = o if lse is None else (o, lse)
    attention(q, k, v, out=out, **of_lse, **_options(parts, numbers, options))
    if torch_shim.is_cold():
        with torch.no_grad():
            torch_shim.remember_forward(q, k, v, parts, {**of_lse, **decode(options, numbers)}, (o, lse), out)


@_fake("forward")
@_fake("run_forward")
def _(q, k, v, parts, numbers, options):
    return _new_outputs(q, v, options)


@_fake("decode")
def _(q, k, v, parts, numbers, options):
    return q.new_empty(autograd.shape_of_o(q, v), dtype=autograd.dtype_of_o(q))


# ---- Backward ----


@_runs_cold(None)
def run_backward(q, k, v, o, lse, dout, dlse, parts, numbers, options, needs):
    always, saved = torch.are_deterministic_algorithms_enabled(), (q, k, v, o, lse)
    plain = None if parts or dlse is not None or dout is None else _plain(options, (tuple(numbers), always, q.shape, k.shape, v.shape))
    given = dict(decode(options, numbers))
    given.pop("rope_offset", None)
    given["deterministic"] = given.get("deterministic", False) or always
    of_backward = autograd.of_backward(given)
    if plain is not None and (found := plain.gradients(saved, dout, of_backward)):
        return list(found)
    with torch.no_grad():
        found = autograd.gradients_of(torch, given, (*saved, *parts), (True,) * 3 + tuple(needs), dout, dlse)
        if plain is not None:
            plain.remember(saved, dout, of_backward)
        if not parts and dout is not None and torch_shim.is_cold():
            torch_shim.remember_backward(saved, dout, dlse, of_backward, found[:3])
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
        plain = _plains[key] = autograd.Given({}, plan_cache.epoch)
    return plain


@_fake("backward")
@_fake("run_backward")
def _(q, k, v, o, lse, dout, dlse, parts, numbers, options, needs):
    of_parts = [each.new_empty(each.shape) for each, needed in zip(parts, needs) if needed]
    return [each.new_empty(each.shape) for each in (q, k, v)] + of_parts


@_runs
def backward_out(q, k, v, o, lse, dout, dlse, parts, numbers, options, out, accumulate, new, dargs, names):
    given = _options(parts, numbers, options)
    fp32 = {"fp32_gradients": True} if out[0].dtype == torch.float32 != q.dtype else {}
    own = {"out": tuple(out), "dlse": dlse, "accumulate": accumulate, "dargs": dict(zip(names, dargs))}
    attention_backward(q, k, v, o, lse, dout, **own, **fp32, **given)
    if new and "cu_seqlens" in given:
        clear_rest_of_tensors(given["cu_seqlens"], out[:1], out[1:3])


# ---- Derivatives: of Python, and none of them in the graphs that AOTAutograd makes ----


def _with_derivative(name, function):
    """Defines what an op does that calls another one, or a torch.autograd.Function if a tensor requires grad."""
    for key in ("Autograd", "CompositeExplicitAutograd"):
        _library.impl(name, function, key)


def _below(op, *arguments):
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)


def _require_grad(*tensors):
    return torch.is_grad_enabled() and any([each is not None and each.requires_grad for each in tensors])


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, numbers, options, q, k, v, *parts):
        o, lse = _below(torch.ops.attnforge.run_forward.default, q, k, v, parts, numbers, options)
        ctx.numbers, ctx.options = numbers, options
        ctx.save_for_backward(q, k, v, o, lse, *parts)
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        if dout is None and dlse is None:
            return (None,) * len(ctx.needs_input_grad)
        q, k, v, o, lse, *parts = ctx.saved_tensors
        needs = [bool(each) for each in ctx.needs_input_grad[5:]]
        found = torch.ops.attnforge.backward(q, k, v, o, lse, dout, dlse, parts, ctx.numbers, ctx.options, needs)
        of_parts = iter(found[3:])
        of_inputs = [each if needed else None for each, needed in zip(found, ctx.needs_input_grad[2:5])]
        return (None, None, *of_inputs, *[next(of_parts) if needed else None for needed in needs])


def _forward(q, k, v, parts, numbers, options):
    if _require_grad(q, k, v, *parts):
        return _Forward.apply(numbers, options, q, k, v, *parts)
    return _below(torch.ops.attnforge.run_forward.default, q, k, v, parts, numbers, options)


class _Backward(torch.autograd.Function):
    """Gradients as they are, of which no derivative is taken without a word."""

    @staticmethod
    def forward(ctx, counts, numbers, options, needs, *tensors):
        tensors = iter(tensors)
        saved = [next(tensors) if there else None for there in counts]
        return tuple(_below(torch.ops.attnforge.run_backward.default, *saved, list(tensors), numbers, options, needs))

    @staticmethod
    def backward(ctx, *_):
        raise UnsupportedError("attention has a first derivative, but no second one: its gradients were differentiated again")


def _backward(*arguments):
    *saved, parts, numbers, options, needs = arguments
    if _require_grad(*saved, *parts):
        there = [each is not None for each in saved]
        return list(_Backward.apply(there, numbers, options, needs, *[each for each in saved if each is not None], *parts))
    return _below(torch.ops.attnforge.run_backward.default, *arguments)


_with_derivative("forward", _forward)
_with_derivative("backward", _backward)


def _refuse(ctx, *_):
    raise UnsupportedError("merge_states() has no derivative")


# Nothing of decode: a step of Python would cost, and attention() takes forward where a tensor requires grad. torch warns.
torch.library.register_autograd("attnforge::merge_states", _refuse, lib=_library)


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


def _vmap_forward(info, in_dims, q, k, v, parts, numbers, options):
    (q, k, v), parts, unfold = fold(info.batch_size, in_dims[:3], (q, k, v), in_dims[3], parts, options)
    o, lse = torch.ops.attnforge.forward(q, k, v, parts, numbers, options)
    return (unfold(o), unfold(lse)), (0, 0)


@_vmap("decode")
def _(info, in_dims, q, k, v, parts, numbers, options):
    (q, k, v), parts, unfold = fold(info.batch_size, in_dims[:3], (q, k, v), in_dims[3], parts, options)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v, *parts)):  # which only shows in here
        return unfold(torch.ops.attnforge.forward(q, k, v, parts, numbers, options)[0]), 0
    return unfold(torch.ops.attnforge.decode(q, k, v, parts, numbers, options)), 0


def _vmap_backward(info, in_dims, q, k, v, o, lse, dout, dlse, parts, numbers, options, needs):
    if any(needs):
        raise UnsupportedError("torch.vmap of gradients of sinks and arrays: these add up over the batch; call it for each instead")
    tensors, parts, unfold = fold(info.batch_size, in_dims[:7], (q, k, v, o, lse, dout, dlse), in_dims[7], parts, options)
    found = torch.ops.attnforge.backward(*tensors, parts, numbers, options, needs)
    return [unfold(each) for each in found], [0] * len(found)


for _op, _rule in (("forward", _vmap_forward), ("backward", _vmap_backward)):
    for _name in (_op, f"run_{_op}"):
        _vmap(_name)(_rule)

torch_shim.open_shim()
