#!/usr/bin/env python3
"""attnforge in programs that call something else: torch.compile, flash_attn, scaled_dot_product_attention, flex_attention and, where it is
installed, transformers. Each result is compared with torch's.

    PYTHONPATH=PREFIX/share/attnforge/python python3 integrations.py
"""

import sys

try:
    import torch
except ImportError:
    sys.exit("integrations.py needs torch")
if not torch.cuda.is_available():
    print("no GPU that torch sees: nothing to show")
    sys.exit(0)

import attnforge
from attnforge import integrations
from torch.nn import attention
from torch.nn.attention.flex_attention import create_block_mask

F = torch.nn.functional


def say(what, got, wanted):
    error = (got.float() - wanted.float()).abs().max().item()
    print(f"{what:32} largest difference {error:.1e}")
    assert error < 5e-2, what


def main():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 1024, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)

    # 1. In a graph of torch.compile, with gradients.
    block = torch.compile(lambda q, k, v: attnforge.attention(q, k, v, causal=True) * 1, fullgraph=True)
    o = block(q, k, v)
    o.sum().backward()
    say("torch.compile", o, wanted)

    # 2. A program that imports flash_attn.
    integrations.install_as("flash_attn")
    from flash_attn import flash_attn_func

    say("flash_attn_func", flash_attn_func(q, k, v, causal=True), wanted)

    # 3. Beneath scaled_dot_product_attention.
    integrations.sdpa.register()
    attention.activate_flash_attention_impl("ATTNFORGE")
    with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
        say("scaled_dot_product_attention", F.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2), wanted)
    attention.restore_flash_attention_impl()

    # 4. flex_attention, with the functions that it takes.
    slope = torch.zeros(8, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 1024, 1024)
    o = integrations.flex.flex_attention(*heads_first, lambda s, b, h, q, k: s + slope[h] * (k - q), mask)
    o.sum().backward()
    say("flex_attention", o.transpose(1, 2), wanted)

    # 5. A model of transformers.
    try:
        import transformers
    except ImportError:
        return
    integrations.transformers.register()
    sizes = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=512)
    text = torch.randint(0, 512, (2, 64), device="cuda")
    model = transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**sizes), dtype=torch.bfloat16).cuda().eval()
    with torch.no_grad():
        wanted = model(text).logits
        model.set_attn_implementation("attnforge")
        say("transformers", model(text).logits, wanted)


if __name__ == "__main__":
    main()
