#!/usr/bin/env python3
"""attnforge for arrays of JAX, against plain operators. On a GPU with the kernels themselves; elsewhere, where python3 has torch too, with those of
cpu_kernels.py and JAX's CPU platform.

usage: ATTNFORGE_LIBRARY=libattnforge.so jax_test.py PACKAGE_FOLDER [unittest arguments]
Ends with 77, which ctest takes for skipped, where there is no jax.
"""

import ctypes
import math
import os
import sys
import unittest
from unittest import mock

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
import attnforge  # noqa: E402
from attnforge import _arrays  # noqa: E402
from attnforge.integrations import jax as ours  # noqa: E402
from attnforge.integrations import xla_ffi  # noqa: E402

GPU = jax.default_backend() == "gpu"
if not GPU:
    try:
        import cpu_kernels
    except ImportError as error:
        print(f"skipped: jax sees no GPU, and for the CPU {error}")
        sys.exit(77)
DTYPE, ROWS, DIM = (jnp.bfloat16, 256, 64) if GPU else (jnp.float32, 20, 16)


def inputs(seed=0, heads=(4, 2), rows=ROWS):
    keys = jax.random.split(jax.random.key(seed), 3)
    return [jax.random.normal(key, (2, rows, count, DIM)).astype(DTYPE) for key, count in zip(keys, (heads[0], heads[1], heads[1]))]


def plain(q, k, v, causal=False, score=None, sinks=None, used=None):
    q, k, v = (x.astype(jnp.float32).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest") / math.sqrt(q.shape[-1])
    at = jnp.arange(s.shape[-1])
    s = s if score is None else score(s, at[None, :] - at[:, None])
    s = jnp.where(at[None, :] <= at[:, None], s, -jnp.inf) if causal else s
    s = s if used is None else jnp.where(at < used[:, None, None, None], s, -jnp.inf)
    t = s if sinks is None else jnp.concatenate([s, jnp.broadcast_to(sinks[None, :, None, None], (*s.shape[:3], 1))], -1)
    lse = jax.nn.logsumexp(t, -1)
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.exp(s - lse[..., None]), v, precision="highest").transpose(0, 2, 1, 3), lse


def memset(buffers, stream):
    for each in buffers:
        ctypes.memset(each.array.address, 0, math.prod(each.shape) * ours.ITEM_BYTES[each.array.code])


class JaxTest(unittest.TestCase):
    def setUp(self):
        if GPU:
            return
        cpu_kernels.install(self)
        ours.register("cpu", stream_of=lambda call: 0)
        memory = ctypes.create_string_buffer(1 << 22)
        address = -(-ctypes.addressof(memory) // 256) * 256

        def ask(call, name, kind, **fields):
            self.assertLessEqual(fields.get("alignment", 1), 16)  # XLA refuses more
            return mock.Mock(data=address + 16, ordinal=0)

        for patch in (
            mock.patch.object(ours, "_clear", memset),
            mock.patch.dict(_arrays._by_type, {xla_ffi.Buffer: xla_ffi.BACKEND}),
            mock.patch.object(xla_ffi.Call, "ask", ask),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(jax.effects_barrier)

    def close(self, got, wanted, what=""):
        for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            self.assertEqual(x.shape, y.shape, what)
            error, size = (float(jnp.abs(z).max()) for z in (x.astype(jnp.float32) - y.astype(jnp.float32), y.astype(jnp.float32)))
            self.assertLessEqual(error, (2e-2 if GPU else 1e-4) * (size + 1e-2), what)

    def test_values_and_gradients(self):
        slope, sinks, used = jnp.linspace(0.1, 0.4, 4), jnp.linspace(-1, 1, 4), jnp.array([ROWS // 2, ROWS], jnp.int32)
        text = "s + slope[head] * (k - q)"

        def alibi(slope):
            return lambda s, apart: s + slope[:, None, None] * apart

        cases = (
            (lambda *x: ours.attention(*x, causal=True), lambda *x: plain(*x, causal=True)[0], ()),
            (lambda *x: ours.attention(*x, return_lse=True), plain, ()),
            (lambda *x: ours.attention(*x[:3], causal=True, sinks=x[3]), lambda *x: plain(*x[:3], causal=True, sinks=x[3])[0], (sinks,)),
            (
                lambda *x: ours.attention(*x[:3], causal=True, score=text, args={"slope": x[3]}),
                lambda *x: plain(*x[:3], causal=True, score=alibi(x[3]))[0],
                (slope,),
            ),
            (lambda *x: ours.attention(*x, used_kv=used), lambda *x: plain(*x, used=used)[0], ()),
            (lambda *x: ours.attention(*(y.transpose(0, 2, 1, 3) for y in x), layout="bhsd").transpose(0, 2, 1, 3), lambda *x: plain(*x)[0], ()),
        )
        for i, (function, wanted, more) in enumerate(cases):
            leaves = [*inputs(), *more]

            def loss(function, *leaves):
                return sum((x.astype(jnp.float32) ** 2).sum() for x in jax.tree.leaves(function(*leaves)))

            for wrap in (lambda f: f, jax.jit, jax.checkpoint):
                self.close(wrap(function)(*leaves), wanted(*leaves), i)
                which = tuple(range(len(leaves)))
                got = wrap(jax.grad(lambda *x: loss(function, *x), which))(*leaves)  # noqa: B023
                self.close(got, jax.grad(lambda *x: loss(wanted, *x), which)(*leaves), i)  # noqa: B023

    def test_frozen_arrays_get_no_gradient(self):
        q, k, v = inputs()
        slope = jnp.linspace(0.1, 0.4, 4)

        def loss(slope):
            return ours.attention(q, k, v, score="s + slope[head] * (k - q)", args={"slope": slope}, frozen=("slope",)).sum()

        self.assertEqual(float(jnp.abs(jax.grad(loss)(slope)).max()), 0)

    def test_vmap(self):
        many = [jnp.stack([x, x[::-1], x * 0.5]) for x in inputs()]
        for dims in ((0, 0, 0), (0, None, None)):
            given = [x if dim == 0 else x[0] for x, dim in zip(many, dims)]
            got = jax.vmap(lambda *x: ours.attention(*x, causal=True), dims)(*given)
            for i in range(3):
                self.close(got[i], plain(*(x[i] if dim == 0 else x for x, dim in zip(given, dims)), causal=True)[0])
        got = jax.vmap(jax.grad(lambda q, k, v: (ours.attention(q, k, v, causal=True).astype(jnp.float32) ** 2).sum()))(*many)
        self.close(got[1], jax.grad(lambda q: (plain(q, many[1][1], many[2][1], causal=True)[0] ** 2).sum())(many[0][1]))

    def test_packed(self):
        q, k, v = (x[0] for x in inputs(heads=(4, 4)))
        ends = jnp.array([0, ROWS // 3, ROWS], jnp.int32)
        o, lse = ours.attention(q, k, v, causal=True, cu_seqlens=ends, max_seqlen=ROWS, return_lse=True)
        for first, last in ((0, ROWS // 3), (ROWS // 3, ROWS)):
            wanted = plain(*(x[None, first:last] for x in (q, k, v)), causal=True)
            self.close((o[None, first:last], lse[None, :, first:last]), wanted)

    def test_errors_are_exceptions(self):
        q, k, v = inputs()
        with self.assertRaisesRegex(Exception, "InvalidError: softmax_scale=-1.0 must be positive"):
            ours.attention(q, k, v, softmax_scale=-1.0).block_until_ready()
        with self.assertRaisesRegex(attnforge.UnsupportedError, "block_mask does not go with arrays of JAX"):
            ours.attention(q, k, v, block_mask=3)

    @unittest.skipUnless(GPU and len(jax.devices()) > 1, "needs two GPUs")
    def test_over_two_gpus(self):
        mesh = jax.make_mesh((2,), ("batch",))
        place = jax.sharding.PartitionSpec("batch")
        call = jax.jit(jax.shard_map(lambda *x: ours.attention(*x, causal=True), mesh=mesh, in_specs=place, out_specs=place))
        given = inputs()
        self.close(call(*given), plain(*given, causal=True)[0])


if __name__ == "__main__":
    unittest.main()
