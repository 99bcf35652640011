#!/usr/bin/env python3
"""Writes a .npy file of random bf16 numbers (as their uint16 bits), nearly normal with variance 1. Standard library only.

usage: random_npy.py FILE SEED DIM...
"""
import array
import math
import random
import statistics
import struct
import sys


def bf16_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def main(path, seed, *dims):
    shape = tuple(int(d) for d in dims)
    normal = statistics.NormalDist()
    table = [bf16_bits(normal.inv_cdf((i + 0.5) / 256)) for i in range(256)]
    values = array.array("H", map(table.__getitem__, random.Random(int(seed)).randbytes(math.prod(shape))))
    if sys.byteorder == "big":
        values.byteswap()
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        values.tofile(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
