"""Whether strided arrays share memory: exactly, from addresses, sizes and strides.

A byte of an array lies at its address plus a sum of multiples of its strides, so two arrays share one if a linear equation has a
solution within bounds. Strides of real tensors nest, and the search then follows one or two ways at each of them.
"""

from .._formats import ITEM_BYTES

# Strides that do not nest could make the search long; what is not known after so many steps counts as shared.
_MOST_STEPS = 10_000


def span(shape, strides, item_bytes):
    """(first, end) in bytes from an array's address that its elements lie in; (0, 0) if it has none. Strides in elements."""
    first = end = 0
    for size, stride in zip(shape, strides):
        if size == 0:
            return 0, 0
        if stride < 0:
            first += (size - 1) * stride
        else:
            end += (size - 1) * stride
    return first * item_bytes, (end + 1) * item_bytes


def _solvable(target, terms):
    """Whether target = sum of a * x with 0 <= x <= most for some x of each (a, most) of terms, all a > 0."""
    bounds = {}
    for coefficient, most in terms:
        bounds[coefficient] = bounds.get(coefficient, 0) + most
    terms = sorted(bounds.items(), reverse=True)
    reach = [0]  # of the last terms together
    for coefficient, most in reversed(terms):
        reach.append(reach[-1] + coefficient * most)
    reach.reverse()
    open_ = [(target, 0)]
    for _ in range(_MOST_STEPS):
        if not open_:
            return False
        target, i = open_.pop()
        if target == 0:
            return True
        if i == len(terms) or not 0 <= target <= reach[i]:
            continue
        coefficient, most = terms[i]
        least = max(0, -(-(target - reach[i + 1]) // coefficient))
        for x in range(least, min(most, target // coefficient, least + _MOST_STEPS) + 1):
            open_.append((target - coefficient * x, i + 1))
    return True


def _steps(shape, strides, item_bytes):
    return [(abs(stride) * item_bytes, size - 1) for size, stride in zip(shape, strides) if size > 1 and stride != 0]


def overlap(a, b):
    """Whether two arrays (address, shape, strides in elements, bytes of an element) share a byte."""
    (a_address, a_shape, a_strides, a_bytes), (b_address, b_shape, b_strides, b_bytes) = a, b
    a_first, a_end = span(a_shape, a_strides, a_bytes)
    b_first, b_end = span(b_shape, b_strides, b_bytes)
    if a_first == a_end or b_first == b_end:
        return False
    # Counted from the lowest byte of a and from the highest of b, all steps are positive.
    distance = (b_address + b_end - 1) - (a_address + a_first)
    terms = _steps(a_shape, a_strides, a_bytes) + _steps(b_shape, b_strides, b_bytes)
    return _solvable(distance, [*terms, (1, a_bytes - 1), (1, b_bytes - 1)])


def first_overlap(arrays, outputs):
    """Indices (i, j) of the first two Arrays that share memory, of which i is in outputs; None where none do. Those that are None
    share none."""
    spans = [array and span(array.shape, array.strides, ITEM_BYTES[array.code]) for array in arrays]
    for i in outputs:
        for j, b in enumerate(arrays):
            a = arrays[i]
            if a is None or b is None or j == i or j in outputs and j < i:
                continue
            distance = a.address - b.address
            if not spans[j][0] - spans[i][1] < distance < spans[j][1] - spans[i][0]:
                continue
            if overlap(*((at, x.shape, x.strides, ITEM_BYTES[x.code]) for at, x in ((distance, a), (0, b)))):
                return i, j
    return None


def overlaps_itself(shape, strides):
    """Whether two elements of an array lie at one place. Strides in elements."""
    if 0 in shape:
        return False
    if any(size > 1 and stride == 0 for size, stride in zip(shape, strides)):
        return True
    steps = sorted(_steps(shape, strides, 1), reverse=True)
    # Two indices that differ first in dimension i, and then by any amounts in those of smaller strides.
    for i, (stride, most) in enumerate(steps):
        smaller = steps[i + 1 :]
        middle = sum(step * count for step, count in smaller)
        if middle >= stride and _solvable(middle - stride, [(stride, most - 1)] + [(step, 2 * count) for step, count in smaller]):
            return True
    return False
