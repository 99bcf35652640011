"""Problems drawn by a seed over what users have: heads of real models, any batch, lengths that are no multiples. No torch is imported.

The lists of bench/problems are what the templates were tuned on; these are what they were not. The same seed gives the same problems.
"""

import collections
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
MOST_CACHE_BYTES = 12 << 30  # of K and V together; a larger draw has fewer sequences

Decode = collections.namedtuple("Decode", "model num_heads_q num_heads_kv head_dim new_tokens lengths page_size")
# lengths: keys of each sequence. page_size: 0 for caches in one piece.


def log_uniform(draw, least, most):
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def log_normal(draw, count, least, most):
    """Lengths whose logarithms are normal, and mostly within the bounds; the others are at the bounds."""
    middle, wide = (math.log(least) + math.log(most)) / 2, (math.log(most) - math.log(least)) / 5
    return [round(min(max(math.exp(draw.gauss(middle, wide)), least), most)) for _ in range(count)]


def decode(seed, count):
    """`count` decode steps: batch 1 to 200, 100 to 60000 keys, 1 to 8 new tokens, in pages or in one piece, ragged or not."""
    draw = random.Random(f"decode {seed}")
    for _ in range(count):
        model = draw.choice(list(MODELS))
        heads, heads_kv, head_dim = MODELS[model]
        batch, keys = log_uniform(draw, 1, 200), log_uniform(draw, 100, 60000)
        new_tokens = 1 if draw.random() < 0.6 else draw.randint(2, 8)
        page_size = draw.choice((0, 16, 32, 64, 128))
        ragged = draw.random() < 0.5
        batch = max(1, min(batch, MOST_CACHE_BYTES // (4 * heads_kv * head_dim * keys)))
        lengths = [keys] * batch
        if ragged and batch > 1:
            lengths = log_normal(draw, batch, max(new_tokens, keys // 8), keys)
        yield Decode(model, heads, heads_kv, head_dim, new_tokens, tuple(lengths), page_size)


def words_of(point):
    """What a table calls a drawn decode step."""
    ragged = len(set(point.lengths)) > 1
    keys = f"{min(point.lengths)} to {max(point.lengths)}" if ragged else point.lengths[0]
    where = f"pages of {point.page_size}" if point.page_size else "one piece"
    return (
        f"{point.num_heads_q}:{point.num_heads_kv} head_dim {point.head_dim}, {len(point.lengths)} x {keys}, "
        f"{point.new_tokens} new, {where}"
    )
