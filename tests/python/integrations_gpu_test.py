#!/usr/bin/env python3
"""attnforge under torch.compile and under the names of others, on a GPU: results against fp64, launches counted so that what falls back
fails.

usage: ATTNFORGE_LIBRARY=libattnforge.so integrations_gpu_test.py PACKAGE_FOLDER [unittest arguments]
Ends with 77, which ctest takes for skipped, where there is no torch or no GPU.
"""

import math
import os
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    torch = None
if torch is None or not torch.cuda.is_available():
    print("skipped: this python3 has no torch, or torch sees no GPU")
    sys.exit(77)

if not os.path.isdir(sys.argv[1] if sys.argv[1:] else ""):  # else a test's name would be taken for it, and all tests run
    sys.exit("the first word is the folder of the package: integrations_gpu_test.py python [TEST...]")
sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
import attnforge  # noqa: E402
from attnforge import flash_attn  # noqa: E402
from attnforge.flash_attn import v3  # noqa: E402
import flex_programs  # noqa: E402
from attnforge.integrations import flex, sdpa, torch_ops  # noqa: E402,F401
from torch._dynamo.utils import counters  # noqa: E402

ops = torch.ops.attnforge
F = torch.nn.functional


def inputs(q=(2, 512, 8, 64), kv=None, dtype=torch.bfloat16, grad=False):
    kv = kv or q
    return [torch.randn(shape, device="cuda").to(dtype).requires_grad_(grad) for shape in (q, kv, kv)]


def plain(q, k, v, causal=False, left=-1, right=-1, softcap=0.0, bias=None, scale=None, sinks=None):
    """(o, lse) of [batch, seqlen, heads, head_dim] by plain operators in fp64."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = softcap * torch.tanh(s / softcap) if softcap else s
    s = s if bias is None else s + bias
    at = torch.arange(s.shape[2], device=q.device)[:, None] + s.shape[3] - s.shape[2]
    key = torch.arange(s.shape[3], device=q.device)
    seen = (key <= at) if causal else torch.ones_like(key <= at)
    if left >= 0:
        seen = seen & (key >= at - left)
    if right >= 0:
        seen = seen & (key <= at + right)
    s = s.masked_fill(~seen, -math.inf)
    t = s if sinks is None else torch.cat([s, sinks.double()[None, :, None, None].expand(*s.shape[:3], 1)], -1)
    lse = torch.logsumexp(t, -1)
    return (torch.exp(s - lse[..., None]).nan_to_num(0.0) @ v).transpose(1, 2), lse


def launches(function):
    """Names of the kernels that a call launches."""
    function()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        function()
        torch.cuda.synchronize()
    return [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]


def ours(names, op="fwd_"):
    return [name for name in names if name.startswith(op)]


class OnGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()
        counters.clear()

    def close(self, got, wanted, what="", limit=2e-2):
        self.assertEqual(got.shape, wanted.shape, what)
        error, size = (got.double() - wanted.double()).abs().max().item(), wanted.double().abs().max().item()
        self.assertLessEqual(error, limit * (size + 1e-3), (what, error, size))

    def gradients_close(self, function, wanted_function, leaves, limit=2e-2):
        """Of a loss of o, with the same gradient of o."""
        o, wanted = function(*leaves), wanted_function(*leaves)
        self.close(o, wanted, "o", limit)
        dout = torch.randn_like(o)
        got = torch.autograd.grad(o, leaves, dout)
        for name, x, y in zip("dq dk dv".split(), got, torch.autograd.grad(wanted, leaves, dout.double())):
            self.close(x, y, name, limit)


class TorchOpsTest(OnGpu):
    """Proof T2's part of the ops."""

    def test_compiled_is_eager_for_all_sizes_and_modes(self):
        def block(q, k, v):
            return attnforge.attention(q * 1.0, k, v, causal=True, window=300, deterministic=True) * 2

        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            compiled = torch.compile(block, mode=mode, fullgraph=True, dynamic=mode == "default")
            for rows in (512, 384, 1000) if mode == "default" else (512, 512, 512, 512):
                leaves = inputs((2, rows, 8, 64), (2, rows, 2, 64), grad=True)
                torch.compiler.cudagraph_mark_step_begin()
                results = []
                for function in (compiled, block):
                    o = function(*leaves)
                    results.append([o.detach().clone(), *(x.clone() for x in torch.autograd.grad(o.float().square().sum(), leaves))])
                for x, y in zip(*results):
                    self.close(x, y, (mode, rows), 1e-2)
        self.assertEqual(sum(counters["graph_break"].values()), 0)

    def test_against_fp64(self):
        cases = ({}, {"causal": True}, {"causal": True, "softcap": 20.0}, {"window": (100, 50)})
        for options in cases:
            for dtype in (torch.bfloat16, torch.float16):
                for q, kv in (((2, 300, 8, 64), None), ((1, 257, 6, 80), (1, 400, 2, 80)), ((2, 256, 4, 128), None)):
                    torch._dynamo.reset()  # or all count as compiles of one function
                    wanted = {name: options[name] for name in ("causal", "softcap") if name in options}
                    if "window" in options:
                        wanted["left"], wanted["right"] = options["window"]
                    function = torch.compile(lambda q, k, v: attnforge.attention(q, k, v, **options), fullgraph=True)  # noqa: B023
                    self.gradients_close(function, lambda q, k, v: plain(q, k, v, **wanted)[0], inputs(q, kv, dtype, True))  # noqa: B023

    def test_lengths_compile_nothing(self):
        def packed(q, k, v, ends, longest):
            return attnforge.attention(q, k, v, causal=True, cu_seqlens=ends, max_seqlen=longest)

        compiled = torch.compile(packed, fullgraph=True, dynamic=True)
        for lengths in ((100, 300, 57), (512, 1, 90), (40, 40, 700)):
            ends = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
            leaves = inputs((sum(lengths), 4, 64), grad=True)
            o = compiled(*leaves, ends, max(lengths))
            got = torch.autograd.grad(o.float().square().sum(), leaves)
            for i, length in enumerate(lengths):
                at = slice(sum(lengths[:i]), sum(lengths[: i + 1]))
                one = [x.detach()[None, at].double().requires_grad_() for x in leaves]
                wanted = plain(*one, causal=True)[0]
                self.close(o[None, at], wanted)
                for x, y in zip(got, torch.autograd.grad(wanted.square().sum(), one)):
                    self.close(x[None, at], y, length, 4e-2)
        self.assertEqual(counters["stats"]["unique_graphs"], 1)

    def test_rows_after_packed_sequences_are_0_whatever_a_graph_finds_there(self):
        ends, leaves = torch.tensor([0, 90, 90, 300], device="cuda").int(), inputs((512, 4, 64), grad=True)

        def step():
            o, lse = attnforge.attention(*leaves, causal=True, cu_seqlens=ends, max_seqlen=512, return_lse=True)
            return (o, lse.T, *torch.autograd.grad(o.float().square().sum(), leaves))

        with torch.cuda.stream(torch.cuda.Stream()):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = [x.detach() for x in step()]
        for last in (300, 512, 0, 171):
            ends.copy_(torch.tensor([0, last // 3, last // 2, last]))
            for x in found:
                x.fill_(float("nan"))
            graph.replay()
            for i, x in enumerate(found):
                self.assertTrue((x[last:] == 0).all() and not x[:last].isnan().any(), (last, i))

    def test_opcheck(self):
        base = torch.randn(2, 64, 3, 4, 64, device="cuda").to(torch.bfloat16)
        for tensors in (base.unbind(2), [x.transpose(1, 2).contiguous().transpose(1, 2) for x in base.unbind(2)]):
            for options in ("{}", "{'layout':'=bhsd','causal':True,'deterministic':True}"):
                leaves = [x.detach().requires_grad_() for x in tensors]
                torch.library.opcheck(ops.forward.default, (*leaves, [], [], options), rtol=2e-2, atol=2e-2)
            torch.library.opcheck(ops.decode.default, (*tensors, [], [], "{}"))

    def test_vmap_and_export_and_checkpoints(self):
        q, k, v = (torch.randn(3, 2, 128, 4, 64, device="cuda").to(torch.bfloat16) for _ in range(3))
        got = torch.vmap(lambda q, k, v: attnforge.attention(q, k, v, causal=True))(q, k, v)
        for i in range(3):
            self.close(got[i], plain(q[i], k[i], v[i], causal=True)[0])

        class Block(torch.nn.Module):
            def forward(self, q, k, v):
                return attnforge.attention(q, k, v, causal=True)

        program = torch.export.export(Block(), (q[0], k[0], v[0]))
        self.close(program.module()(q[1], k[1], v[1]), plain(q[1], k[1], v[1], causal=True)[0])
        from torch.utils.checkpoint import checkpoint

        def block(q, k, v):
            return checkpoint(lambda *x: attnforge.attention(*x, causal=True), q, k, v, use_reentrant=False)

        for function in (block, torch.compile(block, fullgraph=True)):
            self.gradients_close(function, lambda *x: plain(*x, causal=True)[0], inputs((2, 128, 4, 64), grad=True))

    def test_a_cache_in_a_compiled_model(self):
        def model(cache, x):
            for layer in range(2):
                cache.append(x, x, layer=layer)
                x = x + cache.attend(x * (layer + 1), layer=layer)
            return x

        results = []
        for function in (model, torch.compile(model, fullgraph=True)):
            cache, outputs = attnforge.KvCache(4, 256, 2, 64, layers=2), []
            for i, rows in enumerate((100, 1, 1, 1, 5)):
                torch.manual_seed(i)
                cache.begin(rows, ["a", "b"])
                outputs.append(function(cache, torch.randn(2, rows, 2, 64, device="cuda").to(torch.bfloat16)))
            results.append(outputs)
        for x, y in zip(*results):
            self.close(y, x, limit=1e-2)


class FlashAttnTest(OnGpu):
    """attnforge.flash_attn against fp64."""

    def test_func(self):
        slopes = torch.rand(8, device="cuda")
        rows, keys = 300, 300
        apart = torch.arange(keys, device="cuda")[None, :] - torch.arange(rows, device="cuda")[:, None]
        alibi = -slopes.double()[:, None, None] * apart.abs()
        cases = (
            ({}, {}),
            ({"causal": True, "window_size": (64, -1)}, {"causal": True, "left": 64}),
            ({"softcap": 15.0, "window_size": (64, 32)}, {"softcap": 15.0, "left": 64, "right": 32}),
            ({"alibi_slopes": slopes}, {"bias": alibi}),
            ({"alibi_slopes": slopes, "causal": True}, {"bias": alibi, "causal": True}),
            ({"alibi_slopes": slopes.expand(2, 8).contiguous(), "causal": True}, {"bias": alibi, "causal": True}),
        )
        for given, wanted in cases:
            for dim in (64, 128, 100):
                leaves = inputs((2, rows, 8, dim), (2, keys, 2, dim), grad=True)
                self.gradients_close(lambda *x: flash_attn.flash_attn_func(*x, **given), lambda *x: plain(*x, **wanted)[0], leaves)  # noqa: B023
                _, lse, _ = flash_attn.flash_attn_func(*leaves, return_attn_probs=True, **given)
                self.close(lse, plain(*leaves, **wanted)[1], "lse")

    def test_with_kvcache(self):
        q, k, v = inputs((2, 4, 8, 128), (2, 4, 2, 128))
        old_k, old_v = (torch.randn(4, 512, 2, 128, device="cuda").to(torch.bfloat16) for _ in range(2))
        lengths = torch.tensor([100, 501], device="cuda").int()
        table = torch.randperm(32, device="cuda").int().view(4, 8)[:2].contiguous()
        for kind in ("rows", "which rows", "pages"):
            k_cache, v_cache, places, given = old_k.clone(), old_v.clone(), [0, 1], {}
            if kind == "which rows":
                places = [3, 1]
                given["cache_batch_idx"] = torch.tensor(places, device="cuda").int()
            if kind == "pages":
                given["block_table"] = table
                k_cache, v_cache = (torch.zeros(32, 64, 2, 128, device="cuda", dtype=q.dtype) for _ in range(2))
                for i in range(2):
                    k_cache[table[i].long()], v_cache[table[i].long()] = old_k[i].view(8, 64, 2, 128), old_v[i].view(8, 64, 2, 128)
            o, lse = flash_attn.flash_attn_with_kvcache(
                q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True, **given
            )
            for i, (used, place) in enumerate(zip(lengths.tolist(), places)):
                keys, values = torch.cat([old_k[place, :used], k[i]]), torch.cat([old_v[place, :used], v[i]])
                wanted, wanted_lse = plain(q[i : i + 1], keys[None], values[None], causal=True)
                self.close(o[i : i + 1], wanted, kind)
                self.close(lse[i : i + 1], wanted_lse, kind)

    def test_rings(self):
        """R ranks on one GPU, each with its part of the keys, by what is beneath autograd: the error does not grow with R."""
        q, k, v = inputs((1, 1024, 4, 64), grad=True)
        wanted, _ = plain(q, k, v)
        dout = torch.randn_like(q)
        wanted_gradients = torch.autograd.grad(wanted, [q, k, v], dout.double())
        q, k, v = (x.detach() for x in (q, k, v))
        beneath = flash_attn.flash_attn_interface
        of_call = 0.0, 64**-0.5, False, -1, -1, 0.0, None
        for ranks in (1, 4, 16):
            parts = [beneath._flash_attn_forward(q, a, b, *of_call, False)[:2] for a, b in zip(k.chunk(ranks, 1), v.chunk(ranks, 1))]
            o, lse = v3.flash_attn_combine(torch.stack([x[0] for x in parts]), torch.stack([x[1].transpose(1, 2) for x in parts]))
            lse = lse.transpose(1, 2)
            self.close(o, wanted, ranks)
            dq, dk, dv = torch.zeros_like(q, dtype=torch.float32), torch.empty_like(k), torch.empty_like(v)
            for a, b, da, db in zip(*(x.chunk(ranks, 1) for x in (k, v, dk, dv))):
                one = torch.empty_like(q)
                beneath._flash_attn_backward(dout, q, a, b, o, lse, one, da, db, *of_call, False)
                dq += one
            for x, y in zip((dq, dk, dv), wanted_gradients):
                self.close(x, y, ranks)


class SdpaTest(OnGpu):
    """Proof T2's part of torch's scaled_dot_product_attention."""

    def setUp(self):
        super().setUp()
        from torch.nn import attention as of_torch

        self.torch = of_torch
        sdpa.register(strict=True)
        of_torch.activate_flash_attention_impl("ATTNFORGE")
        self.addCleanup(lambda: of_torch.current_flash_attention_impl() and of_torch.restore_flash_attention_impl())

    def flash(self):
        return self.torch.sdpa_kernel(self.torch.SDPBackend.FLASH_ATTENTION)

    def test_against_fp64(self):
        for causal in (False, True):
            for dtype in (torch.bfloat16, torch.float16):
                for dim in (64, 80, 128, 256):
                    for heads_first in (True, False):
                        q, k, v = inputs((2, 4, 300, dim) if heads_first else (2, 300, 4, dim), dtype=dtype)
                        leaves = [(x if heads_first else x.transpose(1, 2)).requires_grad_() for x in (q, k, v)]
                        with self.flash():
                            o = F.scaled_dot_product_attention(*leaves, is_causal=causal)
                            dout = torch.randn_like(o)
                            got = torch.autograd.grad(o, leaves, dout)
                        self.assertEqual(o.stride(), leaves[0].stride())
                        wanted = plain(*(x.transpose(1, 2) for x in leaves), causal=causal)[0].transpose(1, 2)
                        self.close(o, wanted)
                        for x, y in zip(got, torch.autograd.grad(wanted, leaves, dout.double())):
                            self.close(x, y, (causal, dim))

    def test_launches_activated_and_restored(self):
        q, k, v = inputs((2, 4, 512, 64), grad=True)

        def step():
            with self.flash():
                F.scaled_dot_product_attention(q, k, v, is_causal=True).float().sum().backward()

        names = launches(step)
        self.assertTrue(ours(names) and ours(names, "bwd_"), names)
        self.torch.restore_flash_attention_impl()
        names = launches(step)
        self.assertFalse(ours(names), names)
        self.assertTrue(any("flash" in name for name in names), names)

    def test_compiled_captured_causal_lower_right_and_gqa(self):
        from torch.nn.attention.bias import causal_lower_right

        q, k, v = inputs((2, 4, 128, 64), (2, 4, 300, 64), grad=True)
        wanted = plain(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)[0].transpose(1, 2)
        with self.flash():
            self.close(F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(128, 300)), wanted)
            compiled = torch.compile(lambda *x: F.scaled_dot_product_attention(*x) * 2, fullgraph=True)
            names = launches(lambda: compiled(q, k, v).float().sum().backward())
            self.assertTrue(ours(names) and ours(names, "bwd_"), names)
            with torch.no_grad():
                graph, (a, b, c) = torch.cuda.CUDAGraph(), [x.detach().clone() for x in (q, k, v)]
                F.scaled_dot_product_attention(a, b, c)
                with torch.cuda.graph(graph):
                    o = F.scaled_dot_product_attention(a, b, c)
                a.normal_()
                graph.replay()
                self.close(o, plain(*(x.transpose(1, 2) for x in (a, b, c)))[0].transpose(1, 2))
                q, k, v = inputs((2, 8, 256, 64), (2, 2, 256, 64))
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                self.close(o, plain(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)[0].transpose(1, 2))

    def test_nested_tensors_and_varlen(self):
        lengths = (100, 37, 256)
        rows = [[torch.randn(n, 4, 64, device="cuda", dtype=torch.bfloat16) for n in lengths] for _ in range(3)]
        nested = [torch.nested.nested_tensor(x, layout=torch.jagged).transpose(1, 2) for x in rows]
        with self.flash(), torch.no_grad():
            names = launches(lambda: F.scaled_dot_product_attention(*nested, is_causal=True))
            self.assertTrue(ours(names), names)
            o = F.scaled_dot_product_attention(*nested, is_causal=True).transpose(1, 2).unbind()
        for i in range(3):
            self.close(o[i][None], plain(*(x[i][None] for x in rows), causal=True)[0], i)

    def test_the_function_with_masks(self):
        q, k, v = (torch.randn(2, heads, rows, 64, device="cuda").bfloat16().requires_grad_() for heads, rows in ((4, 200), (2, 300), (2, 300)))
        seen = (torch.rand(200, 300, device="cuda") < 0.6) | (torch.arange(300, device="cuda") == 0)
        added = torch.randn(4, 200, 300, device="cuda").bfloat16().requires_grad_()
        hidden = torch.randn(2, 1, 200, 300, device="cuda").masked_fill(~seen, -float("inf"))
        masks = seen, added, added.detach()[:, :1], hidden, hidden.bfloat16().requires_grad_()
        for given in ({"is_causal": True}, *({"attn_mask": mask} for mask in masks)):
            leaves = [q, k, v] + [x for x in given.values() if isinstance(x, torch.Tensor) and x.requires_grad]
            wide = {name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for name, x in given.items()}
            o = sdpa.scaled_dot_product_attention(q, k, v, enable_gqa=True, **given)
            with self.torch.sdpa_kernel(self.torch.SDPBackend.MATH):
                wanted = F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), enable_gqa=True, **wide)
            self.close(o, wanted, given.keys())
            dout = torch.randn_like(o)
            got, right = torch.autograd.grad(o, leaves, dout), torch.autograd.grad(wanted, leaves, dout.double())
            for x, y in zip(got, right):
                self.close(x, y, given.keys(), 4e-2)

    def test_dropout_falls_back_with_a_warning(self):
        self.torch.restore_flash_attention_impl()
        sdpa.register()
        self.torch.activate_flash_attention_impl("ATTNFORGE")
        q, k, v = inputs((2, 4, 256, 64), grad=True)
        with self.flash(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).float().sum().backward()
        self.assertTrue(torch.isfinite(q.grad).all() and q.grad.abs().sum() > 0)
        self.assertEqual(sum("dropout" in str(each.message) for each in caught), 1)

    def test_training_follows_torchs_own_curve(self):
        """200 steps of a small GPT on text that it can learn."""

        def losses(native):
            torch.manual_seed(7)
            if native:
                self.torch.restore_flash_attention_impl()
            model = Gpt().cuda()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            text = torch.randint(0, 64, (4096,), generator=torch.Generator().manual_seed(3)).repeat(8).cuda()
            found = []
            for step in range(200):
                at = torch.randint(0, 4096 * 7, (8,), generator=torch.Generator().manual_seed(step))
                batch = torch.stack([text[i : i + 257] for i in at])
                with self.flash(), torch.autocast("cuda", torch.bfloat16):
                    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return torch.tensor(found)

        mine, native = losses(False), losses(True)
        self.assertLess((mine - native).abs()[:20].max().item(), 0.02, (mine[:20], native[:20]))
        self.assertLess((mine[-20:].mean() - native[-20:].mean()).abs().item(), 0.1, (mine[-20:], native[-20:]))


class FlexTest(OnGpu):
    """Twenty programs against fp64 and, where it is there, against torch's own, compiled."""

    def test_twenty_programs(self):
        from torch.nn.attention import flex_attention as of_torch

        theirs = torch.compile(of_torch.flex_attention, dynamic=False)
        for name, score_mod, mask_mod, trained in flex_programs.programs(8, 512, "cuda"):
            with self.subTest(name):
                torch._dynamo.reset()
                q, k, v = (torch.randn(2, heads, 512, 64, device="cuda").to(torch.bfloat16).requires_grad_() for heads in (8, 2, 2))
                mask = None if mask_mod is None else of_torch.create_block_mask(mask_mod, 2, 8, 512, 512, device="cuda")
                o, lse = flex.flex_attention(q, k, v, score_mod, mask, enable_gqa=True, return_lse=True)
                wanted = flex_programs.dense(q, k, v, score_mod, mask_mod, 0.125)
                self.close(o, wanted[0], "o")
                self.close(lse[torch.isfinite(wanted[1])], wanted[1][torch.isfinite(wanted[1])], "lse")
                leaves, dout = [q, k, v, *trained], torch.randn_like(o)
                got = torch.autograd.grad(o, leaves, dout)
                for i, (x, y) in enumerate(zip(got, torch.autograd.grad(wanted[0], leaves, dout.double()))):
                    self.close(x, y, i, 4e-2)
                with torch.no_grad():
                    try:
                        other = theirs(q, k, v, score_mod, mask, enable_gqa=True)
                    except Exception as error:  # what torch's cannot is no fault of ours
                        print(f"torch's flex_attention of {name}: {str(error)[:80]}")
                        continue
                self.close(o, other, "torch's own")


class Gpt(torch.nn.Module):
    """Two layers of 128, four heads."""

    def __init__(self, width=128, layers=2, heads=4, words=64, rows=256):
        super().__init__()
        nn, self.heads = torch.nn, heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(rows, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "norm": nn.LayerNorm(width),
                           "mlp": nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))})
            for _ in range(layers)
        )
        self.head = nn.Linear(width, words)

    def forward(self, text):
        x = self.words(text) + self.places.weight[: text.shape[1]]
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["norm"](x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](o.transpose(1, 2).flatten(2))
            x = x + layer["mlp"](x)
        return self.head(x)


if __name__ == "__main__":
    unittest.main()
