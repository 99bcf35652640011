"""Problems drawn by a seed over what users have: heads of real models, any batch, lengths that are no multiples. No torch is imported.

The lists of bench/problems are what the templates were tuned on; these are what they were not. The same seed gives the same problems.
"""

import collections
import functools
import math
import random

# num_heads_q, num_heads_kv, head_dim of models that people serve and train.
MODELS = {
    "Llama 3.1 8B": (32, 8, 128), "Llama 3.1 70B": (64, 8, 128), "Llama 3.1 405B": (128, 8, 128), "Llama 3.2 1B": (32, 8, 64),
    "Llama 3.2 3B": (24, 8, 128), "Qwen2 7B": (28, 4, 128), "Qwen2.5 0.5B": (14, 2, 64), "Qwen2.5 1.5B": (12, 2, 128),
    "Qwen2.5 32B": (40, 8, 128), "Qwen3 30B-A3B": (32, 4, 128), "Qwen3 235B": (64, 4, 128), "Gemma 2 9B": (16, 8, 256),
    "Gemma 3 27B": (32, 16, 128), "Gemma 3 1B": (4, 1, 256), "Phi-3 mini": (32, 32, 96), "Phi-4": (40, 10, 128),
    "Falcon 7B": (71, 1, 64), "StarCoder": (48, 1, 128), "GPT-OSS 120B": (64, 8, 64), "GLM-4 9B": (32, 2, 128),
}  # fmt: skip
ANY = "any heads"  # the model of such problems
MOST_CACHE_BYTES = 12 << 30  # of K and V together; a larger draw has fewer sequences
MLA = {"DeepSeek V3": (128, 128, 192, 128), "DeepSeek V2 Lite": (16, 16, 192, 128)}  # prefill; values have a head_dim of their own
# Layers with a window: keys on each side. Soft caps.
WINDOWS = {
    "Gemma 2 9B": (4095, 0), "Gemma 3 27B": (1023, 0), "Gemma 3 1B": (511, 0), "GPT-OSS 120B": (127, 0), "Phi-3 mini": (2046, 0),
    "ModernBERT large": (64, 64),
}  # fmt: skip
SOFTCAPS = {"Gemma 2 9B": 50.0}
# Without a causal mask: heads, head_dim, lengths of self-attention, and of keys in cross-attention.
ENCODERS = {
    "ViT-L/14": (16, 64, (257, 577), ()), "ViT-H/14": (16, 80, (257, 730), ()), "SigLIP So400m": (16, 72, (256, 729), ()),
    "DINOv2 g": (24, 64, (257, 1370), ()), "SAM ViT-H": (16, 80, (196, 4096), ()), "ModernBERT large": (16, 64, (1000, 8192), ()),
    "ESM-2 3B": (40, 64, (270, 1024), ()), "Whisper large": (20, 64, (1500,), (1500,)), "DiT-XL/2": (16, 72, (256, 1024), ()),
    "PixArt": (16, 72, (1024, 4096), (120, 300)), "SD 1.5": (8, 40, (4096, 6144), (77,)), "SD 1.5, middle": (8, 160, (256, 384), (77,)),
    "SDXL": (10, 64, (4096, 6080), (77,)), "SD 3.5 Large": (38, 64, (1178, 4250), ()), "Flux": (24, 128, (4608, 3072), ()),
    "Wan 2.1 14B": (40, 128, (7800, 14040), (512,)), "SD VAE": (1, 512, (4096, 9216), ()),
}  # fmt: skip
MOST_FLOPS, MOST_ELEMENTS = 3e12, 1 << 29  # of a forward pass; of q: a larger draw has fewer sequences

Decode = collections.namedtuple("Decode", "model num_heads_q num_heads_kv head_dim new_tokens lengths page_size")
# lengths: keys of each sequence. page_size: 0 for caches in one piece.
Dense = collections.namedtuple("Dense", "model num_heads_q num_heads_kv head_dim head_dim_v lengths causal window softcap packed")
# lengths: (queries, keys) of each sequence, equal if not packed. window: keys on each side, -1 for open; 0 right if causal.


def log_uniform(draw, least, most):
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def log_normal(draw, count, least, most):
    """Lengths whose logarithms are normal, and mostly within the bounds; the others are at the bounds."""
    middle, wide = (math.log(least) + math.log(most)) / 2, (math.log(most) - math.log(least)) / 5
    return [round(min(max(math.exp(draw.gauss(middle, wide)), least), most)) for _ in range(count)]


def any_heads(draw):
    """(num_heads_q, num_heads_kv, head_dim) of no model in particular."""
    heads_kv, group = log_uniform(draw, 1, 16), log_uniform(draw, 1, 16)
    return group * heads_kv, heads_kv, draw.choice((64, 128)) if draw.random() < 0.3 else 8 * draw.randint(4, 32)


def decode(seed, count, of_models=True):
    """`count` decode steps: batch 1 to 200, 100 to 60000 keys, 1 to 8 new tokens, in pages or in one piece, ragged or not. of_models: with
    heads of MODELS, else any."""
    draw = random.Random(f"decode {seed}{'' if of_models else ANY}")
    for _ in range(count):
        model, (heads, heads_kv, head_dim) = draw.choice(list(MODELS.items())) if of_models else (ANY, any_heads(draw))
        batch, keys = log_uniform(draw, 1, 200), log_uniform(draw, 100, 60000)
        new_tokens = 1 if draw.random() < 0.6 else draw.randint(2, 8)
        page_size = draw.choice((0, 16, 32, 64, 128))
        ragged = draw.random() < 0.5
        batch = max(1, min(batch, MOST_CACHE_BYTES // (4 * heads_kv * head_dim * keys)))
        lengths = [keys] * batch
        if ragged and batch > 1:
            lengths = log_normal(draw, batch, max(new_tokens, keys // 8), keys)
        yield Decode(model, heads, heads_kv, head_dim, new_tokens, tuple(lengths), page_size)


def text_lengths(draw, backward):
    """([(queries, keys)], whether they are packed) of prompts, of chunks of them, or of training."""
    how = draw.choices(("equal", "chunk", "packed"), (50, 0 if backward else 20, 30))[0]
    if how == "packed":
        return [(rows, rows) for rows in log_normal(draw, draw.randint(2, 32), 100, 8192)], True
    rows = log_uniform(draw, 300, 16384) if how == "equal" else log_uniform(draw, 64, 2048)
    return [(rows, rows + (log_uniform(draw, 200, 30000) if how == "chunk" else 0))] * log_uniform(draw, 1, 32), False


def language_model(draw, backward):
    """A layer over text_lengths()."""
    model = draw.choice([*MODELS, *MLA])
    heads = MLA.get(model) or (*MODELS[model], MODELS[model][2])
    window = draw.choice((WINDOWS.get(model, (-1, 0)), (-1, 0)))
    lengths, packed = text_lengths(draw, backward)
    return Dense(model, *heads, tuple(lengths), True, window, SOFTCAPS.get(model, 0.0), packed)


def any_layer(draw, backward):
    """The same of no model: with any heads, half of the time under any window, causal or not."""
    *heads, head_dim = any_heads(draw)
    left = draw.choice((log_uniform(draw, 16, 4096), -1))
    lengths, packed = text_lengths(draw, backward)
    causal = draw.random() >= 0.4
    return Dense(ANY, *heads, head_dim, head_dim, tuple(lengths), causal, (left, 0 if causal else left), 0.0, packed)


def encoder(draw, backward):
    """A layer of images, sound or text, or of what makes images: to itself, or to something else."""
    model = draw.choice([name for name, row in ENCODERS.items() if not backward or row[1] <= 256])
    heads, head_dim, lengths, others = ENCODERS[model]
    rows = draw.choice(lengths)
    how = draw.choices(("self", "cross", "packed"), (65, 25 if others else 0, 10 if len(lengths) > 1 else 0))[0]
    if how == "packed":
        lengths = [(each, each) for each in log_normal(draw, draw.randint(2, 48), lengths[0] // 2 + 1, lengths[1])]
    else:
        lengths = [(rows, draw.choice(others) if how == "cross" else rows)] * log_uniform(draw, 1, 64)
    window = WINDOWS.get(model, (-1, -1)) if draw.random() < 0.7 else (-1, -1)
    return Dense(model, heads, heads, head_dim, head_dim, tuple(lengths), False, window, 0.0, how == "packed")


def dense(op, seed, count, of_models=True):
    """A list of `count` forward or backward passes over whole sequences, 64 to 40000 rows of each: causal or not, windows, soft caps, queries that
    are fewer than the keys, packed or not. of_models: of MODELS and ENCODERS, else any_layer()."""
    draw, found = random.Random(f"{op} {seed}{'' if of_models else ANY}"), {}
    while len(found) < count:
        layer = any_layer if not of_models else language_model if draw.random() < 0.6 else encoder
        point = layer(draw, op == "backward")
        kept = list(point.lengths)
        while len(kept) > 1 and (flops(point._replace(lengths=kept)) > MOST_FLOPS or elements(point._replace(lengths=kept)) > MOST_ELEMENTS):
            kept.pop()
        point = point._replace(lengths=tuple(kept))
        found.setdefault(words_of(point), point)
    return list(found.values())


def elements(point):
    """Of q, and of k where those are more."""
    return point.head_dim * max(point.num_heads_q * sum(q for q, _ in point.lengths), point.num_heads_kv * sum(kv for _, kv in point.lengths))


@functools.lru_cache
def pairs(queries, keys, window):
    """How many a mask leaves, bottom-right aligned."""
    left, right = (math.inf if side < 0 else side for side in window)
    places = range(keys - queries, keys)
    return sum(max(0, min(keys - 1, place + right) - max(0, place - left) + 1) for place in places)


def flops(point):
    """Of a forward pass: those of the visible pairs."""
    seen = sum(pairs(*each, point.window) for each in point.lengths)
    return 2.0 * point.num_heads_q * seen * (point.head_dim + point.head_dim_v)


def text_of(point):
    """A problem of the program that is as large: the longest queries and keys, and how many of them there are in all."""
    q, kv = ([each[i] for each in point.lengths] for i in (0, 1)) if isinstance(point, Dense) else ([point.new_tokens], point.lengths)
    words = [f"fwd bf16 batch={len(point.lengths)} num_heads={point.num_heads_q}:{point.num_heads_kv} seqlen={max(q)}:{max(kv)}"]
    if isinstance(point, Decode):
        words += [f"head_dim={point.head_dim} causal lengths=used", *[f"page_size={point.page_size}"] * (point.page_size > 0)]
        return " ".join(words)
    words += [f"head_dim={point.head_dim}:{point.head_dim_v}", *["causal"] * point.causal]
    words += ["window_left={} window_right={}".format(*point.window)] * (point.window[0] >= 0)
    words += [*[f"softcap={point.softcap:g}"] * (point.softcap > 0), *[f"lengths=packed tokens={sum(q)}:{sum(kv)}"] * point.packed]
    return " ".join(words)


def words_of(point):
    """What a table calls a drawn problem."""
    return (words_of_decode if isinstance(point, Decode) else words_of_dense)(point)


def words_of_dense(point):
    dims = f"{point.head_dim}" if point.head_dim == point.head_dim_v else f"{point.head_dim}:{point.head_dim_v}"
    queries, keys = ([each[i] for each in point.lengths] for i in (0, 1))
    long = f"{min(queries)} to {max(queries)}" if point.packed else queries[0] if queries == keys else f"{queries[0]}:{keys[0]}"
    mask = [*["causal"] * point.causal, *["window {}:{}".format(*point.window)] * (point.window[0] >= 0), *["cap"] * bool(point.softcap)]
    where = f"{'packed ' * point.packed}{len(point.lengths)} x {long}"
    return f"{point.num_heads_q}:{point.num_heads_kv} head_dim {dims}, {where}, {' '.join(mask) or 'full'}"


def words_of_decode(point):
    ragged = len(set(point.lengths)) > 1
    keys = f"{min(point.lengths)} to {max(point.lengths)}" if ragged else point.lengths[0]
    where = f"pages of {point.page_size}" if point.page_size else "one piece"
    return (
        f"{point.num_heads_q}:{point.num_heads_kv} head_dim {point.head_dim}, {len(point.lengths)} x {keys}, "
        f"{point.new_tokens} new, {where}"
    )
