"""Small calls of attention() with drawn options, of which host.py times each: lengths, masks, windows and sinks, with and without gradients."""

import random

SCORE = "s + slope[head] * (k - q)"
LENGTHS = "", "packed", "used_kv", "used_q and used_kv"
MASKS = "", "args", "args of a mask", "attn_mask", "attn_mask of booleans"


def cases(torch, count, seed, device="cuda"):
    """[(name, a function that makes a call, with gradients its backward too)]; the same for a seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    return [_case(torch, draw, device) for _ in range(count)]


def _case(torch, draw, device):
    lengths, causal, window, sinks = draw.choice(LENGTHS), draw.random() < 0.5, draw.random() < 0.3, draw.random() < 0.3
    mask = draw.choice(MASKS[:3] if lengths == "packed" else MASKS)
    of_inputs, of_others = draw.random() < 0.7, draw.random() < 0.5  # which have gradients
    words = ["step" if of_inputs else "call", lengths, "causal" * causal, "window" * window]
    options = {"causal": causal, "window": (4, 0 if causal else 4) if window else None}

    def floats(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=device, dtype=dtype)

    def other(word, tensor):
        trained = of_inputs and of_others and tensor.is_floating_point()
        words.append(f"{word} with gradients" if trained else word)
        return tensor.requires_grad_(trained)

    def counts(*numbers):
        return torch.tensor(numbers, device=device, dtype=torch.int32)

    if lengths == "packed":
        options.update(cu_seqlens=counts(0, 7, 16), max_seqlen=9)
    elif lengths:
        options.update(used_kv=counts(9) if lengths == "used_kv" else (counts(11), counts(9)))
    if mask == "args":
        options.update(score=SCORE, args={"slope": other(mask, floats(2, dtype=torch.float32))})
    elif mask == "args of a mask":
        options.update(mask="document[q] == document[k]", args={"document": other(mask, counts(*[0] * 7, *[1] * 9))})
    elif mask:
        values = floats(2, 16, 16)
        options.update(attn_mask=other(mask, values > 0 if "booleans" in mask else values))
    if sinks:
        options.update(sinks=other("sinks", floats(2, dtype=torch.float32)))
    shape = (16, 2, 64) if lengths == "packed" else (1, 16, 2, 64)
    tensors = [floats(*shape).requires_grad_(of_inputs) for _ in range(3)]
    return ", ".join(filter(None, words)), _call(tensors, floats(*shape), options)


def _call(tensors, dout, options):
    import attnforge

    if not tensors[0].requires_grad:
        return lambda: attnforge.attention(*tensors, **options)
    others = [each for value in options.values() for each in (value.values() if isinstance(value, dict) else [value])]
    trained = [*tensors, *(each for each in others if getattr(each, "requires_grad", False))]

    def step():
        for x in trained:
            x.grad = None
        attnforge.attention(*tensors, **options).backward(dout)

    return step
