"""Errors of attention over caches of fewer bits beside attention over the numbers that they were made of, and their bytes: the table of
docs/BITS.md. In fp64 on a CPU, so errors are those of the formats alone.

    python3 bench/bits.py                 # the table
    python3 bench/bits.py --csv errors.csv

Inputs: "normal"; "outliers", where 4 columns of k and v are 20 times larger; "one sign", where all of v is from 0.5 to 1.5; "needle",
where one key of 131072 has half of the probability. Errors are relative to the root mean square of the exact outputs.
"""

import argparse
import csv
import math

torch = quantize_kv = None  # by load()

HEAD_DIM, QUERIES = 128, 64
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
    q, k, v = (torch.randn(rows, HEAD_DIM) for rows in (QUERIES, KEYS[kind], KEYS[kind]))
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


if __name__ == "__main__":
    main()
