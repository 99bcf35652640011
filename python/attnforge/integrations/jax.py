"""attention() for arrays of JAX, with gradients, under jit, vmap, checkpoint and shard_map.

    from attnforge.integrations.jax import attention
    o = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))(q, k, v)

A foreign function of XLA's, which runs on XLA's stream with XLA's memory. A first call of a shape tunes, for 8 s at most, while the program
runs. Over several GPUs: inside of jax.shard_map, by batch or heads.
"""

import ctypes
import functools
import math
import os
import re

import jax
import jax.numpy as jnp

from .._arrays import _driver
from .._attention import attention as run_attention
from .._gradients.autograd import Leaf, with_tensors
from .._gradients.backward import attention_backward
from .._errors import InvalidError, UnsupportedError
from .._formats import ITEM_BYTES
from .options import decode, encode, template
from .vmap import fold
from .xla_ffi import handler_of, version_of

_FORWARD, _BACKWARD = "attnforge_forward", "attnforge_backward"
_handlers = []


def attention(q, k, v, *, frozen=(), **options):
    """As attnforge.attention(), of which options that say where (out, stream) and rope, page_table and block_mask are not there. Returns
    o, or (o, lse) with return_lse. frozen: names of arrays in args that need no gradient, which is faster: others that score reads get
    theirs."""
    for name in ("out", "stream", "rope", "page_table", "block_mask"):
        if options.pop(name, None) is not None:
            raise UnsupportedError(f"{name} does not go with arrays of JAX")
    return_lse = bool(options.pop("return_lse", False))
    register()
    parts, numbers = [], []
    text = encode(lambda value: isinstance(value, jax.Array), options, parts, numbers)
    o, lse = _attention((text, tuple(numbers), tuple(frozen)), q, k, v, parts)
    return (o, lse) if return_lse else o


def register(platform="CUDA", **of_handlers):
    """Makes the foreign functions known to XLA, once."""
    if _handlers:
        return
    with open(os.path.join(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")) as file:
        version = version_of(file.read())
    for name, function in ((_FORWARD, _forward), (_BACKWARD, _backward)):
        handler = handler_of(function, version, **of_handlers)
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=platform)
        _handlers.append(handler)


# ---- What XLA calls ----


def _options(options, numbers, parts):
    given = decode(options, [int(each) for each in numbers.split(",") if each])
    return given, with_tensors(given, parts)


def _clear(buffers, stream):
    """Zeros, where kernels leave something out or add to what is there."""
    for each in buffers:
        size = math.prod(each.shape) * ITEM_BYTES[each.array.code]
        at, count, queue = ctypes.c_uint64(each.array.address), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        status = _driver().cuMemsetD8Async(at, 0, count, queue) if size else 0
        if status:
            raise InvalidError(f"memory of {size} bytes could not be cleared (error {status})")


def _forward(arguments, results, stream, options, numbers):
    q, k, v, *parts = arguments
    given, named = _options(options, numbers, parts)
    if "cu_seqlens" in given or "used_kv" in given:
        _clear(results, stream)
    run_attention(q, k, v, out=tuple(results), return_lse=True, stream=stream, **named)


def _backward(arguments, results, stream, options, numbers, trained):
    q, k, v, o, lse, dout, dlse, *parts = arguments
    given, named = _options(options, numbers, parts)
    if "cu_seqlens" in given or "used_kv" in given:
        _clear(results, stream)
    out, dargs = results[: 4 if "sinks" in given else 3], results[4 if "sinks" in given else 3 :]
    _clear(dargs, stream)
    named["dargs"] = dict(zip(filter(None, trained.split(",")), dargs))
    attention_backward(q, k, v, o, lse, dout, out=tuple(out), dlse=dlse, stream=stream, **named)


# ---- What JAX sees ----


def _rows(q, text):
    given = template(text)
    if "cu_seqlens" in given:
        return q.shape[1], q.shape[0]
    row, head = (2, 1) if given.get("layout") == "bhsd" else (1, 2)
    return q.shape[0], q.shape[head], q.shape[row]


def _repeated(array, size):
    return jnp.broadcast_to(array[None], (size, *array.shape))


def _mapped(name, attributes, results):
    """A foreign function, under vmap of more sequences. results: of arrays, their shapes."""

    @jax.custom_batching.custom_vmap
    def call(*arrays):
        return jax.ffi.ffi_call(name, tuple(results(*arrays)), vmap_method="sequential")(*arrays, **attributes)

    @call.def_vmap
    def rule(size, batched, *arrays):
        count = 3 if name == _FORWARD else 7
        if name == _BACKWARD and len(results(*arrays)) > 3:
            raise UnsupportedError("vmap of gradients of sinks and arrays: these add up over the batch; call it for each instead")
        dims = [0 if each else None for each in batched]
        of_inputs, parts, unfold = fold(size, dims[:count], arrays[:count], dims[count:], arrays[count:], attributes["options"], _repeated)
        found = call(*of_inputs, *parts)
        return tuple(unfold(each) for each in found), (True,) * len(found)

    return call


def _run_forward(static, q, k, v, parts):
    text, numbers, _ = static

    def results(q, k, v, *_):
        return jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype), jax.ShapeDtypeStruct(_rows(q, text), jnp.float32)

    return _mapped(_FORWARD, {"options": text, "numbers": ",".join(map(str, numbers))}, results)(q, k, v, *parts)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(static, q, k, v, parts):
    return _run_forward(static, q, k, v, parts)


def _keep(static, q, k, v, parts):
    o, lse = _run_forward(static, q, k, v, parts)
    return (o, lse), (q, k, v, o, lse, parts)


def _trained(static, parts):
    """Names of arrays in args that score reads and that get a gradient, and which of parts they are."""
    text, _, frozen = static
    given = template(text)
    for name, leaf in (given.get("args") or {}).items():
        read = isinstance(leaf, Leaf) and re.search(rf"\b{re.escape(name)}\b", given.get("score", ""))
        if read and name not in frozen and jnp.issubdtype(parts[leaf.index].dtype, jnp.floating):
            yield name, leaf.index


def _gradients(static, kept, given):
    q, k, v, o, lse, parts = kept
    text, numbers, _ = static
    trained, sinks = dict(_trained(static, parts)), template(text).get("sinks")
    dout, dlse = given

    def results(q, k, v, o, lse, dout, dlse, *parts):
        wide = [parts[i] for i in ([] if sinks is None else [sinks.index]) + list(trained.values())]
        of_inputs = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (q, k, v)]
        return of_inputs + [jax.ShapeDtypeStruct(each.shape, jnp.float32) for each in wide]

    attributes = {"options": text, "numbers": ",".join(map(str, numbers)), "trained": ",".join(trained)}
    dq, dk, dv, *more = _mapped(_BACKWARD, attributes, results)(q, k, v, o, lse, dout.astype(o.dtype), dlse, *parts)
    of_parts = [jax.numpy.zeros_like(each) if jnp.issubdtype(each.dtype, jnp.floating) else _nothing(each) for each in parts]
    for index, gradient in zip(([] if sinks is None else [sinks.index]) + list(trained.values()), more):
        of_parts[index] = gradient.astype(parts[index].dtype)
    return dq, dk, dv, of_parts


def _nothing(array):
    """The gradient of integers."""
    import numpy

    return numpy.zeros(array.shape, dtype=jax.dtypes.float0)


_attention.defvjp(_keep, _gradients)
