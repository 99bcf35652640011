"""attention(): a call like an earlier one is one look-up and one call of the library."""

import ctypes

from . import _autograd, _checks, _parts
from ._arguments import check_inputs, check_outputs, shape_of_lse, shape_of_o, view_inputs, view_outputs
from ._arrays import FP32, backend_of
from ._call import Call
from ._code import code_of
from ._graphs import outside
from ._library import check, lib
from ._options import options_of
from ._plans import plan_cache


_STREAM_LIMIT = 2**64


class _Queues(dict):
    """Numbers of streams as ctypes passes them fastest."""

    def __missing__(self, number):
        if len(self) >= 4096:
            self.clear()
        queue = self[number] = ctypes.c_void_p(number)
        return queue


_queues = _Queues()
_NO_BYTES = ctypes.c_size_t(0)
_find = plan_cache.get_call

# Of torch, for the fast path; set when the first tensor comes.
_Tensor = type("_NoTensor", (), {})
_empty_like = _grad_enabled = _forward_ad = _current_stream = _scratch = _run = _autocasts = None


def _know_torch(backend):
    global _Tensor, _empty_like, _grad_enabled, _forward_ad, _current_stream, _scratch, _run, _autocasts
    torch = backend.torch
    _run = lib()["attnforge_run"]  # another object than lib().attnforge_run: without conversions, all arguments are ctypes'
    _empty_like, _grad_enabled, _forward_ad = torch.empty_like, torch.is_grad_enabled, torch.autograd.forward_ad
    _current_stream, _scratch = backend.stream, backend.current_scratch
    _autocasts = lambda: _autograd.is_autocast_enabled(torch)  # noqa: E731
    _Tensor = torch.Tensor  # the last: it opens the fast path


@outside
def attention(
    q,
    k,
    v,
    causal=False,
    window=None,
    softmax_scale=None,
    softcap=None,
    return_lse=False,
    layout="bshd",
    out=None,
    stream=None,
    tf32=False,
    rope=None,
    rope_interleaved=False,
    rope_offset=0,
    cu_seqlens=None,
    max_seqlen=None,
    used_kv=None,
    block_mask=None,
    score=None,
    mask=None,
    args=None,
    sinks=None,
    page_table=None,
    batch_invariant=False,
    deterministic=False,
):
    """softmax(softmax_scale * q k^T, masked) v on the GPU; returns o, or (o, lse) with return_lse.

    q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_kv, heads_kv, head_dim],
    v [batch, seqlen_kv, heads_kv, head_dim_v]; o is like q with head_dim_v; with layout="bhsd", heads come before seqlen.
    lse is [batch, heads_q, seqlen_q], float32, natural logarithm. Any strides with a contiguous last dimension. Head dims
    are multiples of 8 up to 512; heads_kv divides heads_q.

    causal: bottom-right aligned. window: keys seen on each side of the query's position: a number, or (left, right) with None
    for open. softmax_scale: default 1 / sqrt(head_dim). softcap: s = softcap * tanh(s / softcap). All are plain numbers:
    tensors are refused.
    rope: (cos, sin), float32 [rows, rope_dim / 2] each: q and k are rotated first, their leading rope_dim elements in pairs
    (i, i + rope_dim / 2), or (2 i, 2 i + 1) with rope_interleaved. Key j takes row rope_offset + j, query i row
    rope_offset + i + seqlen_kv - seqlen_q.
    cu_seqlens: q, k and v are packed, [tokens, heads, head_dim], one sequence after another, o likewise, lse [heads_q, tokens].
    An int32 array [batch + 1] on the GPU, where each sequence begins, from 0, and the last ends, or a pair (of q, of k); rows
    after the end stay as they are. With max_seqlen, the most rows of a sequence (more is fine), a number or a pair (of q, of k).
    used_kv: q, k and v are padded and only the first used_kv[i] keys of sequence i count; an int32 array [batch] on the GPU, or a
    pair (used_q, used_kv), None for all rows; rows of o and lse that do not count stay as they are. Sequences may be empty.
    page_table: k and v are pools of pages, [pages, page_size, heads_kv, head_dim], with layout="bhsd" [pages, heads_kv, page_size,
    head_dim]: an int32 array [batch, columns] on the GPU, the page that has keys column * page_size and on of a sequence; -1: none,
    after the sequence's length alone. page_size is a multiple of 8. Goes with used_kv, and queries may be packed by cu_seqlens beside
    it (chunks of prompts and single tokens in one call); not with block_mask. append_kv() writes such caches, KvCache keeps one.
    Lengths are read on the GPU, when the kernels run: in a CUDA graph they may change between replays. Lengths that are negative,
    above max_seqlen or beyond the tensors are the caller's mistake, which nothing finds but ATTNFORGE_CHECK_INPUTS=1 in the
    environment, with which each call waits. They do not go with rope.
    block_mask: a BlockMask: a query sees a key only if its block is present, and in a partial block with bits only if its bit is set;
    causal and window hide keys as well. Uploaded at the first call on a GPU. Does not go with cu_seqlens.
    score, mask: C++ expressions, compiled into the kernel: what becomes of a score s after scaling, and whether query q sees key k
    among those that causal and window let it see. Both know batch, head (of q), q, k, seqlen_q, seqlen_kv, and what args names: a
    dict of contiguous arrays on the GPU (float32, float16, bfloat16, int32) and plain numbers. Arrays are read when the kernels
    run, and must hold an element wherever the texts look for positions inside the tensors. With block_mask, mask is asked in
    partial blocks only: full ones say that it is true of all their pairs. A block mask of a text (BlockMask.from_text) brings its
    mask and args where mask is not given.
    sinks: float32 [heads_q] on the GPU: the softmax of a row has one more score, the logit of its head, which has no value and is
    neither scaled nor capped: o = sum p v / (sum p + exp(sink)), and lse counts it. A row that sees no key gives o = 0 and its lse
    is the logit.
    batch_invariant: the kernel is the same whatever the batch, so that a sequence's result has the same bits alone and among others.
    Does not go with block_mask. Gradients are not promised to be so.
    deterministic: equal gradients of equal calls have equal bits; o and lse always have. So has
    torch.use_deterministic_algorithms().
    out: where o goes, with return_lse a pair (o, lse); it may not share memory with an input. Arrays of frameworks other than
    torch and cupy need it.
    stream: a CUDA stream as a number; default: the framework's current one (for other arrays the default stream). Outputs are
    allocated for it; q, k and v must be ready on it, and must live until it has passed the run.
    tf32: of float32 tensors, products may round their inputs to TF32 (10 bits of mantissa), which is faster.

    Enqueues on the stream and returns at once; may be captured into a CUDA graph after a first call with the same shapes.
    Thread-safe. Where q, k, v, sinks or arrays in args of torch require grad, and grad is on, o and lse have a derivative with respect to them, once
    (attention_backward() says of what shapes): q, k, v, o and lse are kept for it. Rows of o and lse that do not count are then 0.
    Those of arrays that score reads are added up in float32, in any order: not with deterministic; arrays that mask alone reads have
    none. Calls that have none (with rope, page_table, out, or where no kernel computes them) are
    refused by UnsupportedError or InvalidError, unless grad is off; tensors with forward-mode tangents always. Under torch.autocast
    q, k and v are converted to its dtype if one of them is float32, unless out or tf32 is given. Raises InvalidError (a ValueError) for what it cannot take, UnsupportedError, NotReadyError or CudaError as the
    library says. Warns with PerformanceWarning, once per problem, where dtypes or addresses keep it from the tensor cores.
    """
    # A call of plain tensors like an earlier one; what differs, or is wrong, is left to _attend(). Each line here costs.
    key = plan = None
    if type(q) is _Tensor and type(k) is _Tensor and type(v) is _Tensor:
        try:
            grad = _grad_enabled()
            plain = not (
                q.is_neg()
                or k.is_neg()
                or v.is_neg()
                or _forward_ad._current_level >= 0
                or grad
                and (q.requires_grad or k.requires_grad or v.requires_grad)
            )
            # Strides of contiguous tensors follow from their shapes, and True is found faster.
            key = (
                q.shape,
                q.is_contiguous() or q.stride(),
                q.dtype,
                q.get_device(),
                k.shape,
                k.is_contiguous() or k.stride(),
                k.dtype,
                k.get_device(),
                v.shape,
                v.is_contiguous() or v.stride(),
                v.dtype,
                v.get_device(),
                causal,
                window,
                softmax_scale,
                softcap,
                return_lse,
                layout,
                tf32,
            )
            # Keys of calls with out=, with a pair, with a rope and with lengths differ in length or in a word.
            lse = parts = None
            if out is not None:
                o, lse = out if return_lse else (out, None)
                key += (o.shape, o.is_contiguous() or o.stride(), o.dtype, o.get_device())
                if type(o) is not _Tensor or o.is_neg() or grad and o.requires_grad:
                    plain = False
            # What most calls do not have.
            if (
                lse is not None
                or rope is not None
                or cu_seqlens is not None
                or used_kv is not None
                or max_seqlen is not None
                or rope_offset
                or block_mask is not None
                or score is not None
                or mask is not None
                or args is not None
                or sinks is not None
                or page_table is not None
                or batch_invariant
            ):
                if block_mask is not None or score is not None or mask is not None or args is not None:
                    raise LookupError  # not among the calls that are remembered here
                others = () if lse is None else (lse,)
                cos = sin = of_q = of_kv = None
                if sinks is not None:
                    others += (sinks,)
                    key += ("sinks",)
                if batch_invariant:
                    key += ("batch_invariant", batch_invariant)
                if page_table is not None:
                    others += (page_table,)
                    key += ("pages",)
                if rope is not None:
                    cos, sin = rope
                    others += (cos, sin)
                    key += (rope_interleaved,)
                elif rope_offset:
                    plain = False
                if cu_seqlens is not None or used_kv is not None:
                    kind, of_q, of_kv = _parts.lengths_beside(page_table, cu_seqlens, used_kv)
                    key += (kind, max_seqlen, of_q is None, of_kv is None, of_q is of_kv)
                    others += () if of_q is None else (of_q,)
                    others += () if of_kv is None or of_kv is of_q else (of_kv,)
                elif max_seqlen is not None:
                    plain = False
                for other in others:
                    key += (other.shape, other.is_contiguous() or other.stride(), other.dtype, other.get_device())
                    if type(other) is not _Tensor or other.is_neg() or grad and other.requires_grad:
                        plain = False
                if len(others) > (lse is not None):
                    parts = [0 if x is None else x.data_ptr() for x in (cos, sin, of_q, of_kv, sinks, page_table)]
            call = _find(key)
            if plain and call is not None and not (call.has_fp32 and out is None and not tf32 and _autocasts()):
                queue = _current_stream(call.device)
                if stream is not None and stream != queue:
                    # Outputs for another stream than the current one are allocated with more care.
                    queue = stream if type(stream) is int and 0 <= stream < _STREAM_LIMIT and out is not None else None
                if queue is not None:
                    if out is None:
                        o = _empty_like(q) if call.like_q else call.new_o()
                        if return_lse:
                            lse = call.new_lse()
                    plan, tensors, kept = call.launch(
                        q.data_ptr(),
                        k.data_ptr(),
                        v.data_ptr(),
                        o.data_ptr(),
                        0 if lse is None else lse.data_ptr(),
                        parts,
                        rope_offset,
                    )
        except Exception:
            key = plan = None
    if plan is None or plan.workspace_bytes and stream is not None and stream != _current_stream(call.device):
        converted = _autograd.autocast(q, k, v) if out is None and not tf32 else None
        if converted is not None:
            return attention(
                *converted,
                causal,
                window,
                softmax_scale,
                softcap,
                return_lse,
                layout,
                out,
                stream,
                tf32,
                rope,
                rope_interleaved,
                rope_offset,
                cu_seqlens,
                max_seqlen,
                used_kv,
                block_mask,
                score,
                mask,
                args,
                sinks,
                page_table,
                batch_invariant,
                deterministic,
            )
        name = _autograd.name_that_requires_grad(args, q=q, k=k, v=v, sinks=sinks)
        if name is not None:
            given = dict(
                causal=causal,
                window=window,
                softmax_scale=softmax_scale,
                softcap=softcap,
                return_lse=return_lse,
                layout=layout,
                tf32=tf32,
                cu_seqlens=cu_seqlens,
                max_seqlen=max_seqlen,
                used_kv=used_kv,
                block_mask=block_mask,
                score=score,
                mask=mask,
                args=args,
                sinks=sinks,
                batch_invariant=batch_invariant,
                deterministic=deterministic,
            )
            without = (
                ("rope", rope is not None, "rotate q and k before it"),
                ("page_table", page_table is not None, "pass k and v in one piece"),
            )
            return _autograd.attend(attention, name, q, k, v, given, out, stream, without)
        _checks.flag("deterministic", deterministic)
        arguments = causal, window, softmax_scale, softcap, return_lse, layout, tf32, batch_invariant
        code = code_of(score, mask, args, stream, block_mask)
        given = rope, rope_interleaved, rope_offset, cu_seqlens, max_seqlen, used_kv, block_mask, code, sinks, page_table
        return _attend(key, q, k, v, arguments, _parts.Given(*given), out, stream)
    if plan.workspace_bytes:
        memory, workspace, size = _scratch(plan.workspace_bytes, call.device)
        status = _run(plan.handle, tensors, workspace, size, _queues[queue])
    else:
        status = _run(plan.handle, tensors, None, _NO_BYTES, _queues[queue])
    if status:
        check(status)
    return (o, lse) if return_lse else o


def _attend(key, q, k, v, arguments, given, out, stream):
    """attention() for any arrays, with every check. Remembers the call by `key`, or by one of its own without one."""
    epoch = plan_cache.epoch
    # ---- 1. Arguments ----
    if stream is not None:
        wanted = "a CUDA stream as a number (of torch: stream.cuda_stream, of cupy: stream.ptr)"
        stream = _checks.integer("stream", stream, 0, _STREAM_LIMIT - 1, wanted)
    given = _parts.checked(given)
    kind, parts = _parts.view(given, stream)
    arguments += (_parts.words_of(given, kind, parts),)
    options = None
    return_lse = arguments[4]
    if return_lse is not True and return_lse is not False:
        options = options_of(*arguments)
        return_lse = options.lse
    lse = None
    if out is None:
        o = None
    elif return_lse:
        o, lse = _checks.pair("out", out, "a pair (o, lse), for return_lse")
    else:
        o = out

    # ---- 2. What is known of such a call ----
    backend = backend_of(q)
    inputs = view_inputs(q, k, v, stream)
    outputs = (None, None) if out is None else view_outputs(o, lse, stream)
    if key is None:
        key = arguments, *(array and array[1:5] for array in (*inputs, *outputs, *parts))
    try:
        call = _find(key)
    except TypeError:  # a list: as a window it is fine, but not remembered
        call = key = None
    if call is None:
        options = options or options_of(*arguments)
        check_inputs(*inputs, options)
        batch = _parts.check(parts, options, *inputs)
        if out is not None:
            check_outputs(*outputs, inputs[0], inputs[2], options.places)
    else:
        options = call.options

    # ---- 3. Outputs and plan ----
    device = inputs[0].device
    _parts.check_device(given, device)
    queue = backend.stream(device) if stream is None else stream
    if out is None:
        o = backend.empty(shape_of_o(inputs[0], inputs[2]), inputs[0].code, device, queue)
        if return_lse:
            lse = backend.empty(shape_of_lse(inputs[0], options.places), FP32, device, queue)
        outputs = view_outputs(o, lse, stream)
    arrays = (*inputs, *outputs, *parts)
    addresses = tuple(0 if array is None else array.address for array in arrays)
    if options.parts.packed:
        if inputs[0].shape[0] == 0:
            return (o, lse) if return_lse else o
        if inputs[1].shape[0] == 0:  # nothing is read of k and v, but a run needs addresses
            addresses = (*addresses[:1] * 3, *addresses[3:])
    if call is None:
        call = Call(arrays, options, batch, backend if out is None else None)
        if key is not None:
            plan_cache.put_call(key, call, epoch)
    call.check_apart(addresses)
    plan = call.plan(addresses)
    if backend.torch is not None and _Tensor is not backend.torch.Tensor:
        _know_torch(backend)

    # ---- 4. The run ----
    tensors, kept = call.argument(*addresses[:5], addresses[5:], **_parts.of_run(given, backend, device, queue))
    if plan.workspace_bytes == 0:
        check(lib().attnforge_run(plan.handle, tensors, None, 0, queue))
    else:
        with backend.scratch(plan.workspace_bytes + 255, device, queue) as address:
            workspace = -(-address // 256) * 256
            check(lib().attnforge_run(plan.handle, tensors, workspace, plan.workspace_bytes, queue))
    # Owners kept memory alive until here, as `kept` what the argument points to; frameworks free it in the stream's order.
    del arrays, inputs, outputs, parts, kept, given
    return (o, lse) if return_lse else o
