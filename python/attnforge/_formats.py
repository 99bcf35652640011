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
)
FP32, FP16, BF16, INT32, BOOL = range(len(FORMATS))
FLOATS, INTEGERS = (FP16, BF16, FP32), (INT32,)
ANY_DTYPE = (*FLOATS, INT32, BOOL)
DTYPES = tuple(each.word for each in FORMATS if each.word)  # what problems may have
ITEM_BYTES = tuple(each.bits // 8 for each in FORMATS)
