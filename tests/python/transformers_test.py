#!/usr/bin/env python3
"""attn_implementation="attnforge" in models of transformers of random weights, against eager attention in float32. On a GPU in bfloat16
with the kernels themselves, elsewhere in float32 with those of cpu_kernels.py. Launches are counted, so that what falls back fails.

usage: ATTNFORGE_LIBRARY=libattnforge.so transformers_test.py PACKAGE_FOLDER [unittest arguments]
Ends with 77, which ctest takes for skipped, where there is no torch or no transformers.
"""

import copy
import os
import sys
import unittest

try:
    import torch
    import transformers as hf
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
from attnforge.integrations import transformers as ours  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
if not GPU:
    import cpu_kernels
HEADS, DIM = (4, 64) if GPU else (4, 16)
SMALL = dict(hidden_size=64 if not GPU else 256, intermediate_size=96, num_hidden_layers=2, num_attention_heads=HEADS, vocab_size=97)
DECODER = dict(SMALL, num_key_value_heads=2, head_dim=DIM)
WINDOWS = dict(sliding_window=6, layer_types=["sliding_attention", "full_attention"])
DECODERS = {
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**DECODER)),
    "gemma2": (hf.Gemma2ForCausalLM, lambda: hf.Gemma2Config(**DECODER, sliding_window=6, query_pre_attn_scalar=DIM)),
    "gemma3": (hf.Gemma3ForCausalLM, lambda: hf.Gemma3TextConfig(**DECODER, **WINDOWS, query_pre_attn_scalar=DIM)),
    "qwen3": (hf.Qwen3ForCausalLM, lambda: hf.Qwen3Config(**DECODER)),
    "mistral": (hf.MistralForCausalLM, lambda: hf.MistralConfig(**DECODER, sliding_window=6)),
    "gpt-oss": (hf.GptOssForCausalLM, lambda: hf.GptOssConfig(**DECODER, **WINDOWS, num_local_experts=2, num_experts_per_tok=2)),
    "deepseek": (
        hf.DeepseekV3ForCausalLM,
        lambda: hf.DeepseekV3Config(**SMALL, num_key_value_heads=HEADS, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=128,
                                    qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=2, n_routed_experts=4, n_group=2,
                                    topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32),
    ),
}


def launched(function):
    """(result, how many forward kernels of ours a call launches)."""
    if not GPU:
        before = len(cpu_kernels.runs)
        result = function()
        return result, sum(each.startswith("fwd ") for each in cpu_kernels.runs[before:])
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        result = function()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return result, sum(name.startswith("fwd_") for name in names)


class Models:
    """One model three times: eager in float32, and in DTYPE ours and sdpa's."""

    def __init__(self, kind, config):
        torch.manual_seed(0)
        self.eager = kind._from_config(copy.deepcopy(config), attn_implementation="eager", dtype=torch.float32).to(DEVICE).eval()
        self.ours, self.sdpa = (self._copy(kind, config, name) for name in ("attnforge", "sdpa"))

    def _copy(self, kind, config, name):
        try:
            model = kind._from_config(copy.deepcopy(config), attn_implementation=name, dtype=DTYPE)
        except ValueError:  # gpt-oss has no sdpa
            return None
        model.load_state_dict(self.eager.state_dict())
        return model.to(DEVICE).eval()


class TransformersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ours.register()

    def setUp(self):
        torch.manual_seed(1)
        torch._dynamo.reset()
        counters.clear()
        if not GPU:
            cpu_kernels.install(self)
        self.ids = torch.randint(3, 97, (2, 13), device=DEVICE)
        self.left = torch.tensor([[0] * 4 + [1] * 9, [1] * 13], device=DEVICE)

    def right_logits(self, models, what, keep=None, layers=2, **inputs):
        """Ours are at most twice as far from eager in float32 as sdpa's, and every layer launched a kernel of ours."""
        halves = {name: x.to(DTYPE) if x.is_floating_point() else x for name, x in inputs.items() if isinstance(x, torch.Tensor)}
        with torch.no_grad():
            wanted = models.eager(**inputs).logits
            inputs.update(halves)
            (got, count) = launched(lambda: models.ours(**inputs).logits)
            self.assertGreaterEqual(count, layers, what)
            keep = torch.ones(wanted.shape[:-1], dtype=torch.bool, device=DEVICE) if keep is None else keep
            error = (got.float() - wanted)[keep].abs().max().item()
            limit = 1e-4 * wanted.abs().max().item()
            if GPU:
                theirs = None if models.sdpa is None else (models.sdpa(**inputs).logits.float() - wanted)[keep].abs().max().item()
                limit = 5e-2 * wanted.abs().max().item() if theirs is None else 2 * theirs + 1e-3
            self.assertLessEqual(error, limit, (what, error, limit))

    def right_gradients(self, models, what, **inputs):
        for model in (models.eager, models.ours):
            model.train().zero_grad()
            model(**inputs).loss.backward()
            model.eval()
        most = max(p.grad.norm() for p in models.eager.parameters() if p.grad is not None)
        for (name, p), q in zip(models.eager.named_parameters(), models.ours.parameters()):
            if p.grad is not None and p.grad.norm() > 1e-3 * most:  # some are 0 but for rounding
                cosine = torch.nn.functional.cosine_similarity(p.grad.flatten(), q.grad.float().flatten(), 0).item()
                self.assertGreater(cosine, 0.99 if GPU else 0.9999, (what, name))
                self.assertLess(abs(q.grad.float().norm() / p.grad.norm() - 1), 0.1 if GPU else 1e-3, (what, name))

    def test_decoders(self):
        for name, (kind, config) in DECODERS.items():
            models = Models(kind, config())
            packed = torch.tensor([[*range(5), *range(3), *range(5)]], device=DEVICE)
            with self.subTest(name):
                self.right_logits(models, "plain", input_ids=self.ids)
                for mask in (self.left, self.left.flip(1)):
                    self.right_logits(models, "padded", keep=mask.bool(), input_ids=self.ids, attention_mask=mask)
                self.right_logits(models, "packed", input_ids=self.ids[:1], position_ids=packed, use_cache=False)
                self.mutation(models.ours)
                self.right_gradients(models, name, input_ids=self.ids, labels=self.ids)
                of_text = self.ids.masked_fill(self.left.cumsum(1) < 2, -100)  # not of padding, nor what comes after it
                self.right_gradients(models, name, input_ids=self.ids, labels=of_text, attention_mask=self.left)
                models.ours.gradient_checkpointing_enable()
                self.right_gradients(models, name, input_ids=self.ids, labels=self.ids, use_cache=False)

    def mutation(self, model):
        """Another token at t + 1 leaves all bits of logits up to t: a mask that got lost shows here."""
        other = self.ids.clone()
        other[:, 7] = (other[:, 7] + 1) % 90 + 3
        with torch.no_grad():
            before, after = (model(each).logits for each in (self.ids, other))
        self.assertTrue(torch.equal(before[:, :7], after[:, :7]))
        self.assertFalse(torch.equal(before[:, 7:], after[:, 7:]))

    def test_generate(self):
        """Scores step by step, of a prompt and the tokens that eager picks."""
        given = dict(max_new_tokens=8, do_sample=False, attention_mask=self.left, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
        for name, (kind, config) in DECODERS.items():
            models = Models(kind, config())
            for cache in ("dynamic", "static"):
                if name == "deepseek" and cache == "static":
                    continue  # v has another head dim, which transformers' static cache does not
                of_cache = {} if cache == "dynamic" else {"cache_implementation": "static", "disable_compile": True}
                with self.subTest(name, cache=cache), torch.no_grad():
                    wanted = models.eager.generate(self.ids, **given, **of_cache)
                    got, count = launched(lambda: models.ours.generate(self.ids, **given, **of_cache))  # noqa: B023
                    self.assertGreaterEqual(count, 2 * 8)
                    tokens = wanted.sequences[:, 13:]
                    for step, (x, y) in enumerate(zip(got.logits, wanted.logits)):
                        alike = (got.sequences[:, 13 : 13 + step] == tokens[:, :step]).all(1)  # one that differs has another text from there
                        error = (x.float() - y)[alike].abs().max().item() if alike.any() else 0.0
                        self.assertLess(error, (5e-2 if GPU else 1e-4) * y.abs().max().item(), step)

    def test_compiled_in_one_graph(self):
        for name, (kind, config) in DECODERS.items():
            if name in ("deepseek", "gpt-oss"):
                continue  # experts of transformers read the GPU
            models = Models(kind, config())
            torch._dynamo.reset()  # or all models count as compiles of one module
            compiled = torch.compile(models.ours, backend="inductor" if GPU else "aot_eager", fullgraph=True)
            with self.subTest(name):
                for given in ({}, {"attention_mask": self.left}):
                    keep = given.get("attention_mask", torch.ones_like(self.ids)).bool()
                    with torch.no_grad():
                        wanted = models.ours(self.ids, use_cache=False, **given).logits
                        got = compiled(self.ids, use_cache=False, **given).logits
                    self.assertLess((got - wanted)[keep].abs().max().item(), (5e-2 if GPU else 1e-5) * wanted.abs().max().item())
                compiled.train()
                loss = compiled(self.ids, labels=self.ids, use_cache=False).loss
                loss.backward()
                self.assertTrue(torch.isfinite(models.ours.get_input_embeddings().weight.grad).all())
        self.assertEqual(sum(counters["graph_break"].values()), 0, counters["graph_break"])

    def test_packed_by_cu_seqlens(self):
        models = Models(*[each() if i else each for i, each in enumerate(DECODERS["llama"])])
        packed = torch.tensor([[*range(5), *range(3), *range(5)]], device=DEVICE)
        ends = torch.tensor([0, 5, 8, 13], dtype=torch.int32, device=DEVICE)
        lengths = dict(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=5, max_length_k=5)
        with torch.no_grad():
            wanted = models.eager(self.ids[:1], position_ids=packed, use_cache=False).logits
            got = models.ours(self.ids[:1], position_ids=packed, use_cache=False, attention_mask=None, **lengths).logits
        self.assertLess((got.float() - wanted).abs().max().item(), (5e-2 if GPU else 1e-4) * wanted.abs().max().item())

    def test_dense_masks(self):
        models = Models(*[each() if i else each for i, each in enumerate(DECODERS["llama"])])
        seen = (torch.rand(2, 1, 13, 13, device=DEVICE) < 0.5) | torch.eye(13, dtype=torch.bool, device=DEVICE)
        added = torch.zeros(2, 1, 13, 13, device=DEVICE).masked_fill(~seen, torch.finfo(torch.float32).min / 2)
        with torch.no_grad():
            wanted = models.eager(self.ids, attention_mask=added).logits
            for mask in (seen, (added / 2**64).to(DTYPE) if GPU else added):
                got = models.ours(self.ids, attention_mask=mask).logits
                self.assertLess((got.float() - wanted).abs().max().item(), (5e-2 if GPU else 1e-4) * wanted.abs().max().item())

    def test_encoders_and_cross_attention(self):
        bert = hf.ModernBertConfig(**{**SMALL, "num_hidden_layers": 3}, local_attention=8, global_attn_every_n_layers=3, pad_token_id=0,
                                   bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
        models = Models(hf.ModernBertForMaskedLM, bert)
        self.right_logits(models, "modernbert", layers=3, input_ids=self.ids)
        self.right_logits(models, "modernbert", layers=3, keep=self.left.bool(), input_ids=self.ids, attention_mask=self.left)
        sizes = {name: value for name, value in SMALL.items() if name != "vocab_size"}
        vit = Models(hf.ViTForImageClassification, hf.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=7))
        self.right_logits(vit, "vit", pixel_values=torch.randn(2, 3, 32, 32, device=DEVICE))
        width = SMALL["hidden_size"]
        whisper = hf.WhisperConfig(vocab_size=97, d_model=width, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
                                   decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=32,
                                   max_target_positions=32, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                   decoder_start_token_id=1)
        models = Models(hf.WhisperForConditionalGeneration, whisper)
        self.right_logits(models, "whisper", layers=5, input_features=torch.randn(2, 8, 64, device=DEVICE), decoder_input_ids=self.ids)

    def test_continuous_batching(self):
        models = Models(*[each() if i else each for i, each in enumerate(DECODERS["llama"])])
        config = hf.GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
        batching = ContinuousBatchingConfig(block_size=16, num_blocks=32, max_batch_tokens=64, use_cuda_graph=False, use_async_batching=False)
        prompts = [each[: 5 + 4 * i].tolist() for i, each in enumerate(self.ids)]
        results = {}
        for name in ("paged|attnforge", "paged|sdpa"):
            models.ours.set_attn_implementation(name)
            outputs, count = launched(lambda: models.ours.generate_batch(prompts, config, batching, warmup=False))
            results[name] = [each.generated_tokens for each in outputs.values()]
            self.assertEqual(count > 0, name == "paged|attnforge")
        same = sum(x == y for one, other in zip(*results.values()) for x, y in zip(one, other))
        self.assertGreaterEqual(same, 12, results)


if __name__ == "__main__":
    unittest.main()
