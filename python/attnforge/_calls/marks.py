"""Words in the place of what a call like an earlier one has of its own, in structs that the shim fills in. None is the address of a GPU's
memory, a stride or a size.
"""

PLACE = 0x5AF0 << 48  # the address of a tensor, by its place among a call's; with bytes after it
MORE = 1 << 8  # a byte after it
ROWS = 0x5AF1 << 48  # how many rows packed tensors have, at most so many
OF_KEYS = 1 << 47


def mark_rows(of_keys=False, most=OF_KEYS):
    return ROWS + of_keys * OF_KEYS + min(most, OF_KEYS - 1)
