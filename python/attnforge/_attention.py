"""attention(): a call like an earlier one is one look-up and one call of the library."""

from . import _checks, _graphs
from ._calls import native, parts as _parts
from ._calls.arguments import check_inputs, check_outputs, new_outputs, view_inputs, view_outputs
from ._arrays import backend_of
from ._block_mask import by_number
from ._calls.call import Call
from ._calls.code import check_devices, code_of
from ._calls.fast import fast, find
from ._calls.native import ATTENTION
from ._gradients import autograd
from ._graphs import with_op
from ._library import check
from ._options import check_options, options_of, takes_options
from ._plans import plan_cache


@with_op
@takes_options()
def attention(q, k, v, *, out=None, stream=None, rope_offset=0, attn_mask=None, **options):
    """softmax(softmax_scale * q k^T, masked) v on the GPU; returns o, or (o, lse) with return_lse.

    q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_kv, heads_kv, head_dim],
    v [batch, seqlen_kv, heads_kv, head_dim_v]; o is like q with head_dim_v; with layout="bhsd", heads come before seqlen.
    lse is [batch, heads_q, seqlen_q], float32, natural logarithm. Any strides with a contiguous last dimension. Head dims
    are multiples of 8 up to 512; heads_kv divides heads_q.

    out: where o goes, with return_lse a pair (o, lse); it may not share memory with an input. Arrays of frameworks other than
    torch and cupy need it.
    stream: a CUDA stream as a number; default: the framework's current one (for other arrays the default stream). Outputs are
    allocated for it; q, k and v must be ready on it, and must live until it has passed the run.
    attn_mask: of torch, booleans, True where a pair counts, or floats (the mask's dtype may be any) that are added to scores after
    softmax_scale, broadcast to [batch, heads_q, seqlen_q, seqlen_kv]; causal and window hide keys as well. Floats have a gradient. A
    row of keys that is no multiple of 16 bytes is padded in a copy. Not with cu_seqlens and page_table.
    rope_offset: with a rope, the row of its tables that key 0 takes; it may differ from call to call.

    Enqueues on the stream and returns at once; may be captured into a CUDA graph after a first call with the same shapes.
    Thread-safe. Where q, k, v, sinks or arrays in args of torch require grad, and grad is on, o and lse have a derivative with
    respect to them, once (attention_backward() says of what shapes): q, k, v, o and lse are kept for it. Rows of o and lse that do
    not count are then 0. Those of arrays that score reads are added up in float32, in any order: not with deterministic; arrays
    that mask alone reads have none. Calls that have none (with rope, page_table, out, or where no kernel computes them) are refused
    by UnsupportedError or InvalidError, unless grad is off; tensors with forward-mode tangents always. Under torch.autocast q, k
    and v are converted to its dtype if one of them is float32, unless out or tf32 is given. Raises InvalidError (a ValueError) for
    what it cannot take, UnsupportedError, NotReadyError or CudaError as the library says. Warns with PerformanceWarning, once per
    problem, where dtypes or addresses keep it from the tensor cores.
    """
    if _graphs.waiting and _graphs.torch_is_there():
        return attention(q, k, v, out=out, stream=stream, rope_offset=rope_offset, attn_mask=attn_mask, **options)
    # ---- A call like an earlier one, which has passed every check ----
    told = by_number(options) if "block_mask" in options else options
    found = fast.native(ATTENTION, out, q, k, v, stream, rope_offset, attn_mask, told)
    if found is not None and found is not False:
        if type(found) is not int:
            return found
        if (result := autograd.again(found, q, k, v, attn_mask, options)) is not None:
            return result
        found = False
    values = ATTENTION, out, q, k, v, stream, rope_offset, attn_mask, told
    if attn_mask is not None:
        from .integrations.masks import with_attn_mask

        options = with_attn_mask(attn_mask, q, k, options)
    key = ran = None
    try:  # fast.again(), written out: each line costs
        key = fast.key_of_attention(q, k, v, out, options)
        call = find(key)
        if call is not None:
            ran = call.run(q, k, v, out, stream, rope_offset, options)
    except Exception:  # whatever it is, the long way says it
        key = ran = None
    if ran is not None:
        status, result = ran
        if status:
            check(status)
        if found is False:
            native.remember_attention(key, values, result, options)
        return result
    given, backend = options_of(options), backend_of(q)
    if backend.torch is not None:
        if backend.is_traced(q, k, v):
            return attention._torchdynamo_inline(q, k, v, out=out, stream=stream, rope_offset=rope_offset, **options)
        converted = autograd.autocast(backend.torch, q, k, v) if out is None and not given.tf32 else None
        if converted is not None:
            return attention(*converted, stream=stream, rope_offset=rope_offset, **options)
    name = autograd.name_that_requires_grad(given.args, q=q, k=k, v=v, sinks=given.sinks)
    if name is not None:
        return autograd.attend(attention, name, q, k, v, given, out, stream, values if found is False and not rope_offset else None)
    result = _attend(key, q, k, v, given, out, stream, rope_offset)
    if found is False and key is not None and out is None and given.cu_seqlens is not None:  # calls of other numbers of rows are like it
        native.remember_attention(key, values, result, options, first=True)
    return result


def _attend(key, q, k, v, given, out, stream, rope_offset):
    """attention() for any arrays, with every check. Remembers the call by `key`, or by one of its own without one."""
    epoch = plan_cache.epoch
    # ---- 1. Arguments ----
    if stream is not None:
        wanted = "a CUDA stream as a number (of torch: stream.cuda_stream, of cupy: stream.ptr)"
        stream = _checks.integer("stream", stream, 0, 2**64 - 1, wanted)
    rope_offset = _checks.integer("rope_offset", rope_offset, -(2**63), 2**63 - 1)
    code = code_of(given.score, given.mask, given.args, stream, given.block_mask)
    kind, parts = _parts.view(given, stream)
    words = _parts.words_of(given, code, kind, parts)
    options = None if type(given.return_lse) is bool else check_options(given, words)
    return_lse = given.return_lse if options is None else options.lse

    # ---- 2. What is known of such a call ----
    backend = backend_of(q)
    inputs, outputs = view_inputs(q, k, v, stream, given, words), (None, None)
    if out is not None:
        o, lse = _checks.pair("out", out, "a pair (o, lse), for return_lse") if return_lse else (out, None)
        outputs = view_outputs(o, lse, stream)
    if key is None:
        key = given.plain(), words, *(array and array[1:5] for array in (*inputs, *outputs, *parts))
    try:
        call = plan_cache.get_call(key)
    except TypeError:  # a list: as a window it is fine, but not remembered
        call = key = None
    if call is None:
        options = options or check_options(given, words)
        check_inputs(*inputs, options)
        batch = _parts.check(parts, options, *inputs)
        if out is not None:
            check_outputs(*outputs, inputs[0], inputs[2], options.places)
    else:
        options = call.options

    # ---- 3. Outputs and plan ----
    device = inputs[0].device
    check_devices(code, device)
    queue = backend.stream(device) if stream is None else stream
    if out is None:
        o, lse = new_outputs(backend, inputs, options.places, options.lse, queue)
        outputs = view_outputs(o, lse, stream)
    result = (o, lse) if return_lse else o
    arrays = (*inputs, *outputs, *parts)
    addresses = tuple(0 if array is None else array.address for array in arrays)
    if options.parts.packed:
        if inputs[0].shape[0] == 0:
            return result
        if inputs[1].shape[0] == 0:  # nothing is read of k and v, but a run needs addresses
            addresses = (*addresses[:1] * 3, *addresses[3:])
    if call is None:
        call = Call(arrays, options, batch, backend if out is None else None)
        if key is not None:
            plan_cache.put_call(key, call, epoch)
    call.check_apart(addresses)
    plan = call.plan(addresses)
    fast.open(backend)

    # ---- 4. The run ----
    of_run = _parts.of_run(given, code, backend, device, queue)
    tensors, kept = call.argument(*addresses[:5], addresses[5:], rope_offset, **of_run)
    plan.run(tensors, backend, device, queue)
    # Owners kept memory alive until here, as `kept` what the argument points to; frameworks free it in the stream's order.
    del arrays, inputs, outputs, parts, kept, code, of_run
    return result
