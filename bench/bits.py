"""Errors of attention over caches of fewer bits, and of e4m3 in q, k and v, beside attention over the numbers that they were made of: the
tables of docs/BITS.md. In fp64 on a CPU, so errors are those of the formats alone.

    python3 bench/bits.py                 # the tables
    python3 bench/bits.py --csv errors.csv

Inputs: "normal"; "outliers", where 4 columns of k and v are 20 times larger; "one sign", where all of v is from 0.5 to 1.5; "needle",
where one key of 131072 has half of the probability. Of quantize_qkv(): "large columns", where 4 of q and of k are 8 times larger, and "shared",
where k is a row that all keys share, 4 times as large, and its own. Errors are relative to the root mean square of the exact outputs.
"""

import argparse
import csv
import math

torch = quantize_kv = None  # by load()

HEAD_DIM, QUERIES = 128, 64
OF_QKV = ("normal", "large columns", "shared")
WAYS = {"as they are": {}, "smooth_k": {"smooth_k": True}, "rotate": {"rotate": True}, "both": {"smooth_k": True, "rotate": True}}
KEYS = {"normal": 4096, "outliers": 4096, "one sign": 131072, "needle": 131072}
FORMATS = [(dtype, "token") for dtype in ("int8", "e4m3", "e5m2", "int4")] + [("int4", "group64"), ("int4", "group32")]
FORMATS += [("int4", f"{scale} zero") for scale in ("token", "group64")]
BITS = {"int8": 8, "e4m3": 8, "e5m2": 8, "int4": 4}
COLUMNS = ["format", "scale", "bytes", "inputs", "max", "p999", "mean"]


def load():
    global torch, quantize_kv
    import torch as module

    import attnforge

    torch, quantize_kv = module, attnforge.quantize_kv


def inputs(kind):
    """q, k, v as a 16-bit cache has them."""
    torch.manual_seed(7)
    keys = KEYS.get(kind, KEYS["normal"])
    q, k, v = (torch.randn(rows, HEAD_DIM) for rows in (QUERIES, keys, keys))
    if kind == "large columns":
        q[:, ::32] *= 8
        k[:, ::32] *= 8
    if kind == "shared":
        k += 4 * torch.randn(HEAD_DIM)
    if kind == "outliers":
        k[:, ::32] *= 20
        v[:, ::32] *= 20
    if kind == "one sign":
        v = 0.5 + torch.rand_like(v)
    if kind == "needle":  # its score is as much as all others together
        needle = k[KEYS[kind] // 3]
        q += needle * ((math.log(KEYS[kind]) + 0.5) * math.sqrt(HEAD_DIM) - q @ needle).unsqueeze(-1) / needle.square().sum()
    return [x.bfloat16().double() for x in (q, k, v)]


def attend(q, k, v):
    return torch.softmax(q @ k.T / math.sqrt(HEAD_DIM), -1) @ v


def halves_of(numbers):
    """The two of 4 bits that each byte has."""
    halves = torch.stack([numbers & 15, numbers >> 4], -1).flatten(-2).to(torch.int16)
    return (halves ^ 8) - 8


def values(x, dtype, scale):
    """What the numbers and scales that quantize_kv() makes of x stand for."""
    scale, _, zero = scale.partition(" ")
    numbers, scales = quantize_kv(x.float(), dtype, scale, zero=bool(zero))
    numbers = halves_of(numbers) if dtype == "int4" else numbers
    if zero:
        scales, zeros = scales.double().repeat_interleave(HEAD_DIM // scales.shape[-2], -2).unbind(-1)
        return numbers.double() * scales + zeros
    scales = scales.unsqueeze(-1) if scale == "token" else scales
    return numbers.double() * scales.double().repeat_interleave(HEAD_DIM // scales.shape[-1], -1)


def bytes_of_token(dtype, scale):
    """Of k and v of one head."""
    scale, _, zero = scale.partition(" ")
    scales = 1 if scale == "token" else HEAD_DIM // int(scale[5:])
    return 2 * (HEAD_DIM * BITS[dtype] // 8 + 4 * scales * (2 if zero else 1))


def rows():
    for kind in KEYS:
        q, k, v = inputs(kind)
        exact = attend(q, k, v)
        for dtype, scale in FORMATS:
            error = (attend(q, values(k, dtype, scale), values(v, dtype, scale)) - exact).abs() / exact.square().mean().sqrt()
            figures = error.max(), error.flatten().kthvalue(int(0.999 * error.numel())).values, error.mean()
            yield [dtype, scale, bytes_of_token(dtype, scale), kind, *(f"{x:.2g}" for x in figures)]


def rows_of_qkv():
    """[kind, the mean error of each way] of e4m3 in q, k and v."""
    from attnforge import quantize_qkv

    for kind in OF_QKV:
        given = inputs(kind)
        exact, found = attend(*given), []
        for options in WAYS.values():
            *numbers, scales, _ = quantize_qkv(*(x[:, None] for x in given), **options)
            of_8_bits = [x[:, 0].double() * scales[f"{name}_scale"].double() for name, x in zip("qkv", numbers)]
            found.append(f"{(attend(*of_8_bits) - exact).abs().mean() / exact.square().mean().sqrt():.2g}")
        yield [kind, *found]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--csv", help="write all figures to this file")
    options = arguments.parse_args()
    load()
    measured = list(rows())
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *measured])
    print(f"| format | bytes | {' | '.join(KEYS)} |\n| {'--- | ' * (2 + len(KEYS))}".rstrip())
    for dtype, scale in FORMATS:
        of_format = [row for row in measured if row[:2] == [dtype, scale]]
        print(f"| {dtype} {scale} | {of_format[0][2]} | {' | '.join(', '.join(row[4:]) for row in of_format)} |")
    print(f"\n| e4m3 | {' | '.join(WAYS)} |\n| {'--- | ' * (1 + len(WAYS))}".rstrip())
    for row in rows_of_qkv():
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
