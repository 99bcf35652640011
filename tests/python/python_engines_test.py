#!/usr/bin/env python3
"""Backends for vLLM, SGLang and diffusers beside stand-ins of these, made from their published classes and signatures, on the real torch
and a CPU that computes what plans enqueue.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_engines_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp; exits 77 without torch.
"""

import abc
import enum
import importlib
import inspect
import os
import re
import sys
import types
import unittest

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch
except ImportError:
    print("torch is not installed")
    sys.exit(77)

import attnforge  # noqa: E402
import cpu_kernels  # noqa: E402
from cpu_kernels import plain  # noqa: E402


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    parent, _, last = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            module(parent)
        setattr(sys.modules[parent], last, made)
    sys.modules[name] = made
    return made


# ---- vLLM: v1/attention/backend.py and backends/registry.py ----


class AttentionBackend(abc.ABC):
    accept_output_buffer = False
    forward_includes_kv_cache_update = True
    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto"]

    get_name = abc.abstractmethod(lambda: None)
    get_impl_cls = abc.abstractmethod(lambda: None)
    get_builder_cls = abc.abstractmethod(lambda: None)
    get_kv_cache_shape = abc.abstractmethod(lambda *_: None)

    @classmethod
    def supports_batch_invariance(cls):
        return False


class AttentionImpl(abc.ABC):
    can_return_lse_for_decode = False
    __init__ = abc.abstractmethod(lambda self: None)
    forward = abc.abstractmethod(lambda self: None)


class AttentionMetadataBuilder(abc.ABC):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.device = device

    build = abc.abstractmethod(lambda self: None)


class AttentionBackendEnum(enum.Enum):
    FLASH_ATTN = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"
    CUSTOM = ""


registered = {}
module(
    "vllm.v1.attention.backend",
    AttentionBackend=AttentionBackend,
    AttentionImpl=AttentionImpl,
    AttentionMetadataBuilder=AttentionMetadataBuilder,
    AttentionCGSupport=enum.Enum("AttentionCGSupport", "ALWAYS UNIFORM_BATCH UNIFORM_SINGLE_TOKEN_DECODE NEVER"),
)
module("vllm.v1.attention.backends.registry", AttentionBackendEnum=AttentionBackendEnum, register_backend=registered.__setitem__)

# ---- SGLang: layers/attention/attention_registry.py and base_attn_backend.py ----

of_sglang = {}


def register_attention_backend(name):
    def decorated(function):
        of_sglang[name] = function
        return function

    return decorated


module("sglang.srt.layers.attention.attention_registry", register_attention_backend=register_attention_backend)
module("sglang.srt.layers.attention.base_attn_backend", AttentionBackend=type("AttentionBackend", (abc.ABC,), {}))

# ---- diffusers: models/attention_dispatch.py ----


class AttentionBackendName(str, enum.Enum):
    FLASH = "flash"
    NATIVE = "native"


class Registry:
    backends = {}

    @classmethod
    def register(cls, backend, constraints=None, supports_context_parallel=False):
        def decorated(function):
            cls.backends[backend] = function, set(inspect.signature(function).parameters)
            return function

        return decorated


module("diffusers.models.attention_dispatch", AttentionBackendName=AttentionBackendName, _AttentionBackendRegistry=Registry)


def requests(lengths, heads, heads_kv, dim):
    """For each (rows before, new rows) q of the new ones and k and v of all, [1, rows, heads, dim]."""
    made = lambda rows, heads: torch.randn(1, rows, heads, dim).bfloat16()  # noqa: E731
    return [(made(new, heads), made(before + new, heads_kv), made(before + new, heads_kv)) for before, new in lengths]


LENGTHS = ((40, 1), (0, 21), (17, 5), (63, 1), (16, 3))  # decodes, a prompt, a chunk of one, a draft


class EnginesTest(unittest.TestCase):
    def setUp(self):
        cpu_kernels.install(self)

    def expect(self, o, ones, **options):
        begin = 0
        for q, k, v in ones:
            wanted = plain(*(each.float() for each in (q, k, v)), causal=True, **options)[0][0]
            self.assertLess((o[begin : begin + q.shape[1]].view(wanted.shape) - wanted).abs().max().item(), 2e-2)
            begin += q.shape[1]

    def test_entry_points_name_what_is_there(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../pyproject.toml")) as file:
            named = re.findall(r'^attnforge = "(attnforge\.integrations\.\w+):(\w+)"', file.read(), re.M)
        self.assertEqual([name for name, _ in named], ["attnforge.integrations.vllm", "attnforge.integrations.sglang"])
        for name, function in named:
            for _ in range(2):  # each process, and again
                getattr(importlib.import_module(name), function)()
        path, _, last = registered[AttentionBackendEnum.CUSTOM].rpartition(".")
        self.assertEqual(getattr(importlib.import_module(path), last).get_name(), "CUSTOM")
        self.assertIn("attnforge", of_sglang)

    def test_a_mixed_batch_of_vllm(self):
        from attnforge.integrations import vllm

        backend = vllm.AttnforgeBackend
        self.assertTrue(backend.supports_batch_invariance())
        self.assertEqual([backend.supports_head_size(size) for size in (72, 100, 512)], [True, False, True])
        heads, heads_kv, dim, sinks = 4, 2, 32, torch.randn(4)
        for size, given, options in (
            (16, {}, {}),
            (32, {"sliding_window": 20}, {"window": 19}),
            (16, {"logits_soft_cap": 5.0, "sinks": sinks}, {"softcap": 5.0, "sinks": sinks}),
        ):
            ones = requests(LENGTHS, heads, heads_kv, dim)
            cache = torch.full(backend.get_kv_cache_shape(40, size, heads_kv, dim), 7.0).bfloat16()
            order = (torch.randperm(39) + 1).tolist()  # block 0 is null
            table = torch.zeros(len(ones), 6, dtype=torch.int32)
            for row, (before, new) in enumerate(LENGTHS):
                for column in range(-(-(before + new) // size)):
                    table[row, column] = block = order.pop()
                    for half, x in enumerate(ones[row][1:]):
                        rows = x[0, column * size : min(before, (column + 1) * size)]
                        cache[block, half, : len(rows)] = rows
            tokens = sum(new for _, new in LENGTHS)
            q, k, v = (torch.cat([one[i][0, -new:] for one, (_, new) in zip(ones, LENGTHS)] + [torch.zeros(3, h, dim).bfloat16()]) for i, h in
                       enumerate((heads, heads_kv, heads_kv)))  # fmt: skip
            starts = torch.tensor([0] + [new for _, new in LENGTHS]).cumsum(0).int()
            common = types.SimpleNamespace(
                query_start_loc=starts, seq_lens=torch.tensor([before + new for before, new in LENGTHS]).int(), num_actual_tokens=tokens,
                max_query_len=21, block_table_tensor=table, causal=True)  # fmt: skip
            builder = backend.get_builder_cls()(None, ["layer"], None, torch.device("cpu"))
            step = builder.build(0, common)
            place = step.before.data_ptr()
            self.assertEqual(builder.build(0, common).before.data_ptr(), place, "a graph reads it")
            impl = backend.get_impl_cls()(heads, dim, dim**-0.5, heads_kv, None, kv_cache_dtype="auto", **{"sliding_window": None, **given})
            output = torch.full((tokens + 3, heads * dim), 9.0).bfloat16()
            self.assertIs(impl.forward(None, q.flatten(1), k.flatten(1), v.flatten(1), cache, step, output), output)
            self.expect(output, ones, **options)
            self.assertTrue((output[tokens:] == 9).all() and (cache[0] == 7).all(), "padding and the null block")
            self.assertIs(impl.forward(None, q, k, v, cache, None, output), output)
        for wrong in ({"attn_type": "encoder"}, {"kv_cache_dtype": "fp8"}, {"q_lora_rank": 8}):
            with self.assertRaises(attnforge.UnsupportedError):
                backend.get_impl_cls()(heads, dim, 1.0, **wrong)

    def test_steps_of_sglang(self):
        from attnforge.integrations import sglang

        heads, heads_kv, dim, size = 4, 2, 32, 16
        pool = types.SimpleNamespace(buffers=[torch.zeros(40 * size, heads_kv, dim).bfloat16() for _ in range(2)])
        pool.get_key_buffer, pool.get_value_buffer = (lambda layer, i=i: pool.buffers[i] for i in range(2))

        def set_kv_buffer(layer, places, k, v):
            pool.buffers[0][places], pool.buffers[1][places] = k.view(-1, heads_kv, dim), v.view(-1, heads_kv, dim)

        pool.set_kv_buffer = set_kv_buffer
        to_token = torch.zeros(9, 6 * size, dtype=torch.int32)
        runner = types.SimpleNamespace(page_size=size, req_to_token_pool=types.SimpleNamespace(req_to_token=to_token), device="cpu")
        backend = sglang.Backend(runner)
        self.assertFalse(backend.needs_cpu_seq_lens)
        layer = types.SimpleNamespace(
            tp_q_head_num=heads, qk_head_dim=dim, scaling=dim**-0.5, sliding_window_size=-1, logit_cap=0.0, layer_id=0, is_cross_attention=False,
            attn_type=types.SimpleNamespace(value="decoder"))  # fmt: skip
        order = torch.randperm(40).tolist()
        rows = torch.tensor([3, 1, 8, 2, 5])
        for row in rows.tolist():
            for column in range(6):
                to_token[row, column * size : (column + 1) * size] = order.pop() * size + torch.arange(size)
        for lengths, decode in ((LENGTHS, False), (tuple((before, 1) for before, _ in LENGTHS), True)):
            ones = requests(lengths, heads, heads_kv, dim)
            for row, (before, _), (_, k, v) in zip(rows, lengths, ones):
                set_kv_buffer(layer, to_token[row, :before], k[0, :before], v[0, :before])
            batch = types.SimpleNamespace(
                req_pool_indices=rows, seq_lens=torch.tensor([sum(each) for each in lengths]), token_to_kv_pool=pool,
                forward_mode=types.SimpleNamespace(is_decode_or_idle=lambda decode=decode: decode),
                extend_seq_lens=torch.tensor([new for _, new in lengths]), extend_seq_lens_cpu=[new for _, new in lengths],
                out_cache_loc=torch.cat([to_token[row, before : before + new] for row, (before, new) in zip(rows, lengths)]))  # fmt: skip
            q, k, v = (torch.cat([one[i][0, -new:] for one, (_, new) in zip(ones, lengths)]).flatten(1) for i in range(3))
            forward = backend.forward_decode if decode else backend.forward_extend
            backend.init_forward_metadata(batch)
            self.expect(forward(q, k, v, layer, batch), ones)
            if decode:  # as a graph: of places that stay, for a batch that is at most as large
                backend.init_cuda_graph_state(8, 8)
                backend.init_forward_metadata_out_graph(batch, in_capture=True)
                places = [each.data_ptr() for each in backend.step[:3]]
                backend.init_forward_metadata_in_graph(batch)
                self.expect(forward(q, k, v, layer, batch, save_kv_cache=False), ones)
                backend.init_forward_metadata_out_graph(batch)
                self.assertEqual([each.data_ptr() for each in backend.step[:3]], places)
        runner.page_size = 12
        with self.assertRaisesRegex(attnforge.UnsupportedError, "page_size=12 must be 1, 2, 4 or a multiple of 8"):
            sglang.Backend(runner)

    def test_the_dispatcher_of_diffusers(self):
        from attnforge.integrations import diffusers

        with self.assertRaises(ValueError):
            diffusers.enable("attnforge")
        diffusers.enable("flash")
        function, names = Registry.backends[AttentionBackendName.FLASH]
        q, k, v = (torch.randn(2, rows, 4, 24).bfloat16() for rows in (20, 27, 27))
        given = {"query": q, "key": k, "value": v, "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "return_lse": True}
        self.assertLessEqual(given.keys(), names)
        o, lse = function(**given)
        wanted, of_rows = plain(q.float(), k.float(), v.float())
        self.assertLess((o - wanted).abs().max().item(), 2e-2)
        self.assertLess((lse - of_rows.transpose(1, 2)).abs().max().item(), 2e-2)
        added = torch.randn(20, 27).bfloat16()
        o = function(**{**given, "attn_mask": added, "return_lse": False})
        self.assertLess((o - plain(q.float(), k.float(), v.float(), score=lambda s: s + added.float())[0]).abs().max().item(), 2e-2)
        with self.assertRaisesRegex(attnforge.UnsupportedError, "dropout_p=0.1"):
            function(**{**given, "dropout_p": 0.1})
        with self.assertRaisesRegex(attnforge.UnsupportedError, "context parallelism"):
            function(**given, _parallel_config=object())


if __name__ == "__main__":
    unittest.main()
