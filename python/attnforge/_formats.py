"""The formats of arrays' elements, a row each: whatever depends on one asks it. A format's code is the number of its row."""

from typing import NamedTuple


class Format(NamedTuple):
    word: str  # of problems; "" if no tensor of theirs has it
    name: str  # of numpy's kind
    in_code: str  # among the args of score and mask
    bits: int
    dlpack: int  # DLDataTypeCode
    typestr: str  # of __cuda_array_interface__; "" if that has none


FORMATS = (
    Format("fp32", "float32", "float", 32, 2, "<f4"),
    Format("fp16", "float16", "fp16", 16, 2, "<f2"),
    Format("bf16", "bfloat16", "bf16", 16, 4, ""),
    Format("", "int32", "int", 32, 0, "<i4"),
    Format("", "bool", "bool", 8, 6, "|b1"),
    Format("int8", "int8", "", 8, 0, "|i1"),
    Format("int4", "uint8", "", 8, 1, "|u1"),  # two numbers, the first one in the low half
    Format("e4m3", "float8_e4m3fn", "", 8, 10, ""),
    Format("e5m2", "float8_e5m2", "", 8, 12, ""),
    Format("q8_0", "uint8 in blocks of 34", "", 8, -1, ""),  # ggml's, of 32 numbers: blocks_of()
    Format("q4_0", "uint8 in blocks of 18", "", 8, -2, ""),
)
FP32, FP16, BF16, INT32, BOOL, INT8, INT4, E4M3, E5M2, Q8_0, Q4_0 = range(len(FORMATS))
FLOATS, INTEGERS, LOW_BITS = (FP16, BF16, FP32), (INT32,), (INT8, INT4, E4M3, E5M2)
ANY_DTYPE = (*FLOATS, INT32, BOOL)
OF_CACHES = (*FLOATS, *LOW_BITS)  # of k and v
OF_Q = (*FLOATS, E4M3)
DTYPES = tuple(each.word or each.name for each in FORMATS)  # by code; problems have those with a word
ITEM_BYTES = tuple(each.bits // 8 for each in FORMATS)


_BLOCK_BYTES = {Q8_0: 34, Q4_0: 18}


def numbers_in(array, elements):
    """How many numbers of a problem so many elements of an array hold."""
    if array.code in _BLOCK_BYTES:
        return elements // _BLOCK_BYTES[array.code] * 32
    return elements * 2 if array.code == INT4 else elements


def blocks_of(array, head_dim):
    """An array of k or v, whose bytes are ggml's blocks where a row has as many as head_dim numbers in blocks take, and else two int4
    each. None: its rows do not begin with blocks."""
    for code, size in _BLOCK_BYTES.items():
        if array.code == INT4 and head_dim % 32 == 0 and array.shape[-1] * 32 == head_dim * size:
            return None if any(stride % size for stride in array.strides[:-1]) else array._replace(code=code)
    return array
