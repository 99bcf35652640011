"""Times attnforge where programs call it: a compiled training step, a Llama of transformers, flex_attention's programs, and what a call takes
of the host. Each beside torch's own, by turns in one process.

    python3 bench/integrations.py --out integrations.csv              # all; some minutes on a Hopper GPU
    python3 bench/integrations.py --only train,flex --tune quick      # winners are looked for first; default: what the database has

Times are medians of rounds in which each side has its turn. `ratio` is torch's time by attnforge's: above 1 attnforge is faster.
"""

import argparse
import contextlib
import csv
import functools
import pathlib
import statistics
import sys
import time

import machine
import peer_kernels

torch = attnforge = integrations = None  # by load()
ROUNDS, PROGRAMS = 15, None  # by --rounds and --programs


def load():
    """The modules that only a GPU is of use for."""
    global torch, attnforge, integrations
    torch = machine.torch()
    sys.path.append(str(machine.ROOT / "tests/python"))  # flex_programs.py
    import attnforge as module
    from attnforge import integrations as more

    attnforge, integrations = module, more


def by_turns(sides, rounds=None):
    """Median milliseconds of each of {name: function}."""
    rounds = rounds or ROUNDS
    for function in sides.values():
        for _ in range(3):
            function()
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, function in sides.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            function()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(found) for name, found in times.items()}


def row(what, case, sides, unit="ms"):
    ours, theirs = sides["attnforge"], {name: value for name, value in sides.items() if name != "attnforge"}
    for name, value in theirs.items():
        yield {"what": what, "case": case, "peer": name, "unit": unit, "attnforge": f"{ours:.4g}", "theirs": f"{value:.4g}",
               "ratio": f"{value / ours:.3f}"}  # fmt: skip


# ---- A training step ----


def model_of(layers, width, heads, dim, attend):
    """Layers of a GPT with an attention of the caller's."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * heads * dim), nn.Linear(heads * dim, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, heads, -1)).unbind(2)
            x = x + self.out(attend(q, k, v).flatten(2))
            return x + self.mlp(self.second(x))

    return nn.Sequential(*(Block() for _ in range(layers))).cuda().bfloat16()


def of_torch(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)


def of_attnforge(q, k, v):
    return attnforge.attention(q, k, v, causal=True)


def train(tune):
    for dim in (64, 80):
        heads, sides = 1024 // dim, {}
        if tune:
            q = torch.empty(1, 4096, heads, dim, device="cuda", dtype=torch.bfloat16)
            for backward in (False, True):
                attnforge.tune(q, q, q, causal=True, return_lse=not backward, backward=backward, rigor=tune)
        for name, attend in (("attnforge", of_attnforge), ("torch", of_torch)):
            torch.manual_seed(0)
            blocks = model_of(12, 1024, heads, dim, attend)
            model = torch.compile(blocks, fullgraph=True)
            x = torch.randn(1, 4096, 1024, device="cuda", dtype=torch.bfloat16)

            def step(model=model, x=x, blocks=blocks):
                model(x).float().square().mean().backward()
                blocks.zero_grad(set_to_none=True)

            sides[name] = step
        yield from row("training step", f"12 layers of 1024, 4096 tokens, head_dim {dim}", by_turns(sides))


# ---- A Llama of transformers ----


def llama(tune):
    import transformers

    integrations.transformers.register()
    config = transformers.LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=4, num_attention_heads=32,
                                      num_key_value_heads=8, vocab_size=32000, max_position_embeddings=8192)  # fmt: skip
    model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16).cuda().eval()
    text = torch.randint(0, 32000, (1, 4096), device="cuda")

    def prefill(name):
        model.set_attn_implementation(name)
        with torch.no_grad():
            model(text, use_cache=False)

    yield from row("prefill", "Llama-3-8B of 4 layers, 4096 tokens", by_turns(
        {"attnforge": lambda: prefill("attnforge"), "sdpa": lambda: prefill("sdpa")}))  # fmt: skip
    given = dict(max_new_tokens=65, min_new_tokens=65, do_sample=False, cache_implementation="static", pad_token_id=0)
    sides = {}
    for name in ("attnforge", "sdpa"):  # generate() compiles decode with CUDA graphs, of each anew
        model.set_attn_implementation(name)
        torch._dynamo.reset()
        for _ in range(3):
            model.generate(text, **given)
        torch.cuda.synchronize()
        began = time.perf_counter()
        model.generate(text, **given)
        torch.cuda.synchronize()
        sides[name] = (time.perf_counter() - began) * 1e3
    yield from row("prefill and 64 tokens", "the same, static cache, compiled decode", sides)


# ---- FlexAttention's programs ----


def flex(tune):
    import flex_programs
    from torch.nn.attention import flex_attention as of_flex

    theirs = torch.compile(of_flex.flex_attention, dynamic=False)
    functions = {"attnforge": integrations.flex.flex_attention, "triton": theirs}
    try:
        print(f"flex: BACKEND=FLASH is {peer_kernels.fa4_package('flash_attn.cute')[1]}", file=sys.stderr)
        functions["flash"] = functools.partial(theirs, kernel_options={"BACKEND": "FLASH"})
    except ImportError as error:
        print(f"flex: BACKEND=FLASH is in no row: {error}", file=sys.stderr)
    ratios = {}
    for name, score_mod, mask_mod, trained in flex_programs.programs(16, 4096, "cuda"):
        if PROGRAMS and name not in PROGRAMS:
            continue
        torch._dynamo.reset()
        q, k, v = (torch.randn(2, 16, 4096, 64, device="cuda").bfloat16().requires_grad_() for _ in range(3))
        mask = None if mask_mod is None else of_flex.create_block_mask(mask_mod, 2 if name == "prefix LM" else None, None, 4096, 4096)
        if tune:
            options = integrations.flex.options_of(score_mod, mask)
            for backward in (False, True):
                attnforge.tune(q.detach(), k.detach(), v.detach(), layout="bhsd", backward=backward, rigor=tune, **options)
        dout = torch.randn_like(q)

        def gradients(function, score_mod=score_mod, mask=mask, q=q, k=k, v=v, trained=trained, dout=dout):
            torch.autograd.grad(function(q, k, v, score_mod, mask), [q, k, v, *trained], dout)

        def output(function, score_mod=score_mod, mask=mask, q=q, k=k, v=v):
            with torch.no_grad():
                function(q, k, v, score_mod, mask)

        for what, of in (("flex forward", output), ("flex forward and backward", gradients)):
            running = dict(_that_run(functions, of, f"{what} of {name}"))
            if "attnforge" not in running:
                continue
            found = by_turns(running)
            for each in row(what, name, found):
                ratios.setdefault((what, each["peer"]), []).append(float(each["ratio"]))
                yield each
    for (what, peer), found in ratios.items():
        print(f"{what} beside {peer}: geometric mean of {len(found)} ratios {statistics.geometric_mean(found):.3f}")


def _that_run(functions, of, what):
    """(name, call) of those that do not fail; of others the reason is said."""
    for name, function in functions.items():
        try:
            of(function)
        except Exception as error:  # of any; the others go on
            print(f"{what}: {name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
            continue
        yield name, functools.partial(of, function)


# ---- A mask that is added ----


def mask(tune):
    """[heads, queries, keys] in bf16 beside causal; `without` is the same call without it. Gradients are those of the mask too. Booleans hide
    a third of the pairs."""
    from attnforge.integrations.masks import with_attn_mask

    for batch, dim in ((1, 128), (4, 128), (1, 64)):
        q, k, v = (torch.randn(batch, 4096, 16, dim, device="cuda").bfloat16().requires_grad_() for _ in range(3))
        added = torch.randn(16, 4096, 4096, device="cuda").bfloat16().requires_grad_()
        with torch.no_grad():
            seen = added.masked_fill(torch.ones(4096, 4096, dtype=torch.bool, device="cuda").triu(1), -float("inf"))
        seen.requires_grad_()
        if tune:
            for options in (with_attn_mask(added, q, k, {"causal": True}), {"causal": True}):
                for backward in (False, True):
                    with torch.no_grad():
                        attnforge.tune(q, k, v, backward=backward, rigor=tune, **options)
        swapped = [x.transpose(1, 2) for x in (q, k, v)]
        kept = added.detach() > -0.5
        booleans = kept.tril()
        functions = {
            "attnforge": (lambda: attnforge.attention(q, k, v, causal=True, attn_mask=added), [q, k, v, added]),
            "booleans": (lambda: attnforge.attention(q, k, v, causal=True, attn_mask=kept), [q, k, v]),
            "booleans of all heads": (lambda: attnforge.attention(q, k, v, causal=True, attn_mask=kept[0]), [q, k, v]),
            "torch, booleans": (lambda: torch.nn.functional.scaled_dot_product_attention(*swapped, booleans).transpose(1, 2), [q, k, v]),
            "without": (lambda: attnforge.attention(q, k, v, causal=True), [q, k, v]),
            "without the mask's gradient": (lambda: attnforge.attention(q, k, v, causal=True, attn_mask=added.detach()), [q, k, v]),
            "torch": (lambda: torch.nn.functional.scaled_dot_product_attention(*swapped, seen).transpose(1, 2), [q, k, v, seen]),
        }
        case = f"batch {batch}, 16 heads, 4096, head_dim {dim}, causal"
        with torch.no_grad():
            yield from row("added mask, forward", case, by_turns({name: f for name, (f, _) in functions.items()}))
        dout, sides = torch.randn_like(q), {}
        for name, (function, leaves) in functions.items():
            o = function()
            sides[name] = lambda o=o, leaves=leaves: torch.autograd.grad(o, leaves, dout, retain_graph=True)
        yield from row("added mask, backward", case, by_turns(sides))


# ---- The host ----


def host(tune):
    q, k, v = (torch.randn(1, 16, 4, 64, device="cuda").bfloat16() for _ in range(3))
    out = torch.empty_like(q)
    graph = torch.compile(lambda q, k, v: attnforge.attention(q, k, v, causal=True), fullgraph=True)
    sides = {
        "attnforge": lambda: attnforge.attention(q, k, v, causal=True, out=out),
        "attnforge, without out": lambda: attnforge.attention(q, k, v, causal=True),
        "attnforge, the op": lambda: torch.ops.attnforge.decode(q, k, v, [], [], "{'causal':True}"),
        "attnforge, compiled": lambda: graph(q, k, v),
        "torch": lambda: of_torch(q, k, v),
    }
    times = {}
    with torch.no_grad():
        for name, function in sides.items():
            function()
            best = []
            for _ in range(9):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(300):
                    function()
                best.append((time.perf_counter() - began) / 300 * 1e6)
            times[name] = statistics.median(best)
    yield from row("a call on the host", "16 queries and keys", times, "us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="train,llama,flex,mask,host")
    parser.add_argument("--tune", choices=("quick", "full"))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--programs", help="of flex, by names and semicolons; default: all")
    given = parser.parse_args()
    global ROUNDS, PROGRAMS
    ROUNDS, PROGRAMS = given.rounds, given.programs and given.programs.split(";")
    parts = {"train": train, "llama": llama, "flex": flex, "mask": mask, "host": host}
    wanted = given.only.split(",")
    if unknown := [each for each in wanted if each not in parts]:
        parser.error(f"--only {unknown[0]}: it is of {', '.join(parts)}")
    load()
    with given.out.open("w", newline="") if given.out else contextlib.nullcontext() as file:
        writer = None
        for each in (each for part in wanted for each in parts[part](given.tune)):
            print(*each.values(), sep="  ", flush=True)
            if file and not writer:
                writer = csv.DictWriter(file, each)
                writer.writeheader()
            if file:
                writer.writerow(each)
                file.flush()  # what was measured stays if the rest is stopped


if __name__ == "__main__":
    main()
