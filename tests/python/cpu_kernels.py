"""Kernels of the CPU behind the real torch, for tests: the package takes tensors of the CPU for those of GPU 0, plans are of the fake driver,
and what they enqueue is computed here, from the structs that reach the library. Import it after attnforge is on the path.
"""

import concurrent.futures
import contextlib
import ctypes
import math
import os
import re
import types
from unittest import mock

import torch

import attnforge
from attnforge import _arrays, _c, _library
from attnforge._calls import fast as _fast

torch.set_num_threads(1)  # of small tensors threads would mostly wait for one another

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Cpu(_arrays._Torch):
    """Tensors of the CPU that the package takes for those of GPU 0."""

    native = None

    def __init__(self):
        super().__init__(torch)
        self.stream = lambda device: torch_stream[-1]

    def _view(self, name, tensor, allowed):
        code = self._codes.get(tensor.dtype)
        if code not in allowed:
            raise attnforge.InvalidError(f"{name} has dtype {tensor.dtype}")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise attnforge.InvalidError(f"{name} requires grad")
        return _arrays.Array(tensor.data_ptr(), tensor.shape, tensor.stride(), code, 0)

    def empty(self, shape, code, device, stream, zeros=False):
        return torch.full(shape, 0.0 if zeros else math.nan, dtype=self._dtypes[code])

    def upload(self, data, device, stream):
        memory = torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)
        return memory.data_ptr(), memory

    def allocator(self, shape, code, device):
        return lambda *_: self.empty(shape, code, device, 0)

    @contextlib.contextmanager
    def scratch(self, size_bytes, device, stream):
        memory = torch.empty(size_bytes, dtype=torch.uint8)
        yield memory.data_ptr()

    def current_scratch(self, size_bytes, device):
        memory = torch.empty(size_bytes, dtype=torch.uint8)
        return memory, ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(size_bytes)


torch_stream = [0]


# ---- What the kernels compute, in fp64, from a struct of a run ----


def tensor_at(address, dtype, shape, strides):
    """A tensor over memory that is there."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
    size = torch.tensor([], dtype=dtype).element_size()
    memory = (ctypes.c_char * (last * size)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)


def sequences(problem, lengths):
    """(rows of q, first of them, rows of k, first of them, place in the batch) of each sequence."""
    for i in range(problem.batch):
        if problem.lengths == "packed" and problem.page_size:
            q = (ctypes.c_int32 * (problem.batch + 1)).from_address(lengths.q)[i : i + 2]
            yield q[1] - q[0], q[0], (ctypes.c_int32 * problem.batch).from_address(lengths.kv)[i], 0, i
            continue
        if problem.lengths == "packed":
            q, kv = ((ctypes.c_int32 * (problem.batch + 1)).from_address(address)[i : i + 2] for address in (lengths.q, lengths.kv))
            yield q[1] - q[0], q[0], kv[1] - kv[0], kv[0], 0
            continue
        rows, keys = problem.seqlen_q, problem.seqlen_kv
        if problem.lengths == "used":
            rows = (ctypes.c_int32 * problem.batch).from_address(lengths.q)[i] if lengths.q else rows
            keys = (ctypes.c_int32 * problem.batch).from_address(lengths.kv)[i] if lengths.kv else keys
        yield rows, 0, keys, 0, i


ALIBI, DOCUMENTS, CAP = "s + slope[head] * (k - q)", "document[q] == document[k]", "2 * tanhf(s / 2) * gain"
TABLE = "s * factor[head] + table[k - q + 19]"  # of 20 queries and keys


class Flat:
    """An array of args in memory, which a text reads by any index; of float64, so that torch can say its gradient."""

    KINDS = {"float": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int": torch.int32, "bool": torch.bool}

    def __init__(self, address, kind):
        self.address, self.kind, self.values = address, self.KINDS[kind], None

    def __getitem__(self, index):
        index = torch.as_tensor(index)
        count = int(index.max()) + 1
        if self.values is None or len(self.values) < count:
            self.values = tensor_at(self.address, self.kind, (count,), (1,)).clone()
            self.values = self.values.double().requires_grad_() if self.kind.is_floating_point else self.values
        return self.values[index]


def arguments_of(struct, p):
    """Those of texts by their names, and the addresses of gradients after them."""
    arguments = [each.partition("[")[0].split()[-2:] for each in p.args.split(", ") if each]
    names = p.dargs.removeprefix("whole ").split(", ") if p.dargs else []
    words = (ctypes.c_uint64 * (len(arguments) + len(names))).from_address(struct.code_arguments) if arguments else ()
    named = {}
    for (kind, name), word in zip(arguments, words):
        number = ctypes.c_uint32(word & 0xFFFFFFFF)
        is_int = kind == "int"
        scalar = (ctypes.c_int32 if is_int else ctypes.c_float).from_buffer(number).value
        named[name] = Flat(word, kind[:-1]) if kind.endswith("*") else scalar
    return named, dict(zip(names, words[len(arguments) :]))


def of_python(text):
    """An expression of C++ as one of Python for tensors: what is in parentheses first, then ? :, || and &&."""
    tokens, i = [], 0
    while i < len(text):
        if text[i] in "([":
            depth, end = 1, i + 1
            while depth:
                depth += (text[end] in "([") - (text[end] in ")]")
                end += 1
            tokens.append(text[i] + of_python(text[i + 1 : end - 1]) + text[end - 1])
            i = end
            continue
        two = text[i : i + 2] if text[i : i + 2] in ("&&", "||", "!=", "<=", ">=", "==") else text[i]
        tokens.append(two)
        i += len(two)

    def split(sign):
        parts = [[]]
        for token in tokens:
            parts.append([]) if token == sign else parts[-1].append(token)
        return ["".join(part) for part in parts]

    if "," in tokens:
        return ", ".join(of_python(part) for part in split(","))
    if "?" in tokens:
        condition, _, rest = "".join(tokens).partition("?") if tokens.count("?") == 1 else (None, None, None)
        first, second = split(":")
        return f"where({of_python(condition)}, {of_python(first.partition('?')[2])}, {of_python(second)})"
    for sign, join in (("||", "|"), ("&&", "&")):
        if sign in tokens:
            return f" {join} ".join(f"({of_python(part)})" for part in split(sign))
    joined = "".join(f"invert({''.join(tokens[i + 1 :])})" if each == "!" and i == 0 else each for i, each in enumerate(tokens)
                     if not (tokens[0] == "!" and i > 0))
    if tokens.count("/") == 1 and not {"+", "-", "*", "%", "<", ">"} & set(tokens):
        first, second = split("/")
        return f"divide({first}, {second})"
    return re.sub(r"(?<=[0-9.])f\b", "", joined)


def evaluate(text, named):
    """A text of tensors."""
    functions = {f"{name}f": getattr(torch, name) for name in "tanh exp exp2 log log2 log1p expm1 sqrt rsqrt sin cos erf".split()}
    functions.update(abs=torch.abs, fabsf=torch.abs, powf=torch.pow, where=torch.where, invert=torch.logical_not, true=True, divide=divide)
    functions.update({name: lambda a, b: torch.minimum(*map(torch.as_tensor, (a, b))) for name in ("min", "fminf")})
    functions.update({name: lambda a, b: torch.maximum(*map(torch.as_tensor, (a, b))) for name in ("max", "fmaxf")})
    functions.update(float=lambda x: torch.as_tensor(x).double(), int=lambda x: torch.as_tensor(x).int(), bool=lambda x: torch.as_tensor(x).bool())
    return torch.as_tensor(eval(of_python(text), {"__builtins__": {}}, {**functions, **named}))  # noqa: S307


def divide(a, b):
    a, b = (torch.as_tensor(each) for each in (a, b))
    return a / b if a.is_floating_point() or b.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def places_of(p, sequence, rows, keys):
    """What texts know beside their arguments."""
    positions = {"q": torch.arange(rows)[:, None], "k": torch.arange(keys), "head": torch.arange(p.num_heads_q)[:, None, None]}
    return {**positions, "batch": sequence, "seqlen_q": rows, "seqlen_kv": keys}


class Score:
    """A score's text at all pairs of a sequence: its value, and what its derivative adds to."""

    def __init__(self, struct, p, sequence, before):
        self.before, self.whole, self.sequence = before.detach().requires_grad_(), p.dargs.startswith("whole "), sequence
        self.named, self.targets = arguments_of(struct, p)
        with torch.enable_grad():
            named = {**self.named, **places_of(p, sequence, *before.shape[1:]), "s": self.before}
            evaluate(p.score, named)  # arrays are as long as it reads them
            self.value = evaluate(p.score, named).expand(before.shape)

    def backward(self, gradient):
        """The gradient of s before the text; those of arrays are added to theirs."""
        arrays = [self.named[name].values for name in self.targets]
        of_s, *others = torch.autograd.grad(self.value, [self.before, *arrays], gradient, allow_unused=True)
        for name, word, found in zip(self.targets, self.targets.values(), others):
            target = tensor_at(word, self.named[name].kind if self.whole else torch.float32, found.shape, (1,))
            if self.whole:  # rows are multiples of 8 elements, and sequences lie one after another
                begin = -(-len(found) // (self.sequence + 1) // 8) * 8 * self.sequence
                target[begin:] = found[begin:].to(target.dtype)
            else:
                target += found.float()
        return of_s


def present(lists, p, sequence, rows, keys):
    """Of a block mask, [heads, rows, keys]."""
    blocks, seen = -(-rows // p.mask_block_q), torch.zeros(p.mask_heads, rows, keys, dtype=torch.bool)
    first_row = (sequence if p.mask_batch > 1 else 0) * p.mask_heads * blocks
    begin = (ctypes.c_int32 * (p.mask_batch * p.mask_heads * blocks + 1)).from_address(lists.row_begin)
    columns = (ctypes.c_int32 * max(begin[len(begin) - 1], 1)).from_address(lists.columns)
    for head in range(p.mask_heads):
        for row in range(blocks):
            at = first_row + head * blocks + row
            for entry in columns[begin[at] : begin[at + 1]]:
                first, column = row * p.mask_block_q, entry // 2 * p.mask_block_kv
                seen[head, first : first + p.mask_block_q, column : column + p.mask_block_kv] = True
    return seen.repeat_interleave(p.num_heads_q // p.mask_heads, 0)


def visible(struct, p, sequence, rows, keys):
    """Which keys the rows of a sequence see."""
    position = torch.arange(rows)[:, None] + keys - rows
    seen = torch.ones(rows, keys, dtype=torch.bool)
    left, right = p.window_left, 0 if p.causal else p.window_right
    if left >= 0:
        seen &= torch.arange(keys) >= position - left
    if right >= 0:
        seen &= torch.arange(keys) <= position + right
    if p.mask:
        named, _ = arguments_of(struct, p)
        seen = seen & evaluate(p.mask, {**named, **places_of(p, sequence, rows, keys)}).bool()
    if p.mask_block_q:
        lists = _c.BlockMaskLists.from_address(struct.block_mask)
        seen = seen & present(lists, p, sequence, rows, keys)
    return seen


def of_pages(t, kind, pages, p, dim, keys, sequence):
    """Keys or values of a sequence, [heads, keys, dim]."""
    table = (ctypes.c_int32 * -(-keys // p.page_size)).from_address(pages.table + 4 * sequence * pages.stride_batch)
    shape, strides = (pages.num_pages, p.page_size, p.num_heads_kv, dim), (t.stride_batch, t.stride_row, t.stride_head, 1)
    pool = tensor_at(t.data, kind, shape, strides)
    return pool[list(table)].flatten(0, 1)[:keys].transpose(0, 1)


def run_merge(p, struct):
    """A problem of merge_states()."""
    parts = (_c.State * p.parts).from_address(struct.parts)
    shape = p.batch, p.seqlen_q, p.num_heads_q, p.head_dim

    def of(t, dtype):
        return tensor_at(t.data, getattr(torch, DTYPES[dtype]), shape, (t.stride_batch, t.stride_row, t.stride_head, 1))

    def of_lse(r):
        return tensor_at(r.data, torch.float32, (p.batch, p.num_heads_q, p.seqlen_q), (r.stride_batch, r.stride_head, 1))

    lse = torch.stack([of_lse(each.lse).double() for each in parts])
    merged = torch.logsumexp(lse, 0)
    weights = torch.exp(lse - merged).nan_to_num(0.0).transpose(2, 3)[..., None]
    of(struct.o, p.dtype_o).copy_((torch.stack([of(each.o, p.dtype_q).double() for each in parts]) * weights).sum(0))
    of_lse(struct.lse).copy_(merged)


def run_append(p, struct, lengths):
    """A problem of append_kv(): rows of k and v, rotated where there is a rope, go where they belong, and rotated q to o."""
    kind = getattr(torch, DTYPES[p.dtype_q])
    size = torch.tensor([], dtype=kind).element_size()
    cache = _c.Cache.from_address(struct.cache)
    used = (ctypes.c_int32 * p.batch).from_address(lengths.kv) if lengths.kv else [0] * p.batch
    ends = (ctypes.c_int32 * (p.batch + 1)).from_address(lengths.q) if p.lengths == "packed" else None
    pages = _c.Pages.from_address(struct.pages) if p.page_size else None
    rope = _c.Rope.from_address(struct.rope) if p.rope != "none" else None
    rope_dim = p.rope_dim or p.head_dim

    def row_of(t, outer, row, heads, dim):
        return tensor_at(t.data + size * (outer * t.stride_batch + row * t.stride_row), kind, (heads, dim), (t.stride_head, 1))

    def store(name, t, outer, row, values):
        dtype = getattr(p, f"dtype_{name}")
        if dtype == p.dtype_q:
            row_of(t, outer, row, p.num_heads_kv, values.shape[-1]).copy_(values)
            return
        numbers, scales = attnforge.quantize_kv(values, dtype, p.kv_scale, p.kv_zero)
        per_byte = 2 if dtype == "int4" else 1
        at = t.data + (outer * t.stride_batch + row * t.stride_row) // per_byte
        tensor_at(at, numbers.dtype, numbers.shape, (t.stride_head // per_byte, 1)).copy_(numbers)
        s = getattr(_c.KvScales.from_address(struct.kv_scales), name)
        strides = (s.stride_head, 2, 1) if p.kv_zero else (s.stride_head, 1)[: scales.dim()]
        tensor_at(s.data + 4 * (outer * s.stride_batch + row * s.stride_row), torch.float32, scales.shape, strides).copy_(scales)

    def rotated(x, position):
        if rope is None:
            return x
        half = rope_dim // 2
        cos, sin = (tensor_at(at + 4 * half * (rope.offset + position), torch.float32, (half,), (1,)) for at in (rope.cos, rope.sin))
        if p.rope == "interleaved":
            first, second = x[:, : 2 * half : 2].float(), x[:, 1 : 2 * half : 2].float()
            turned = torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(1)
        else:
            first, second = x[:, :half].float(), x[:, half : 2 * half].float()
            turned = torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
        return torch.cat([turned.to(x.dtype), x[:, 2 * half :]], -1)

    after = []
    for b in range(p.batch):
        first, count = (ends[b], ends[b + 1] - ends[b]) if ends else (0, p.seqlen_q)
        for i in range(min(count, p.seqlen_kv - used[b])):
            row, at, outer = first + i, used[b] + i, b
            place = at
            if pages is not None:
                table = (ctypes.c_int32 * (at // p.page_size + 1)).from_address(pages.table + 4 * b * pages.stride_batch)
                outer, place = table[at // p.page_size], at % p.page_size
            of = 0 if ends else b
            k = row_of(struct.k, of, row, p.num_heads_kv, p.head_dim)
            store("k", cache.k, outer, place, rotated(k, at))
            store("v", cache.v, outer, place, row_of(struct.v, of, row, p.num_heads_kv, p.head_dim_v))
            if p.queries:
                q = row_of(struct.q, of, row, p.num_heads_q, p.head_dim)
                row_of(struct.o, of, row, p.num_heads_q, p.head_dim).copy_(rotated(q, at))
        after.append(min(p.seqlen_kv, used[b] + count))
    if p.lengths_after:
        (ctypes.c_int32 * p.batch).from_address(cache.lengths_after)[:] = after


def run(plan, struct, lengths):
    """Computes a problem in place of the kernels."""
    p = plan.problem
    if p.op == "merge":
        run_merge(p, struct)
        return
    if p.op == "append":
        run_append(p, struct, lengths)
        return
    dtype = {name: getattr(torch, DTYPES[getattr(p, f"dtype_{name}")]) for name in "qkvo"}
    back = p.op == "bwd"
    g = _c.Gradients.from_address(struct.gradients) if back else None
    wide = back and p.gradients == "fp32"
    if back and p.sinks:
        dsinks = tensor_at(g.dsinks, torch.float32, (p.num_heads_q,), (1,))
        if not p.accumulate:
            dsinks.zero_()
    scale = p.softmax_scale or 1 / math.sqrt(p.head_dim)
    group = p.num_heads_q // p.num_heads_kv
    for sequence, (rows, row, keys, key, place) in enumerate(sequences(p, lengths)):
        if rows == 0 and not back:
            continue

        def of(t, kind, heads, count, first, dim):
            size = torch.tensor([], dtype=kind).element_size()
            address = (t.data or 0) + size * (place * t.stride_batch + first * t.stride_row)
            return tensor_at(address, kind, (heads, count, dim), (t.stride_head, t.stride_row, 1)) if count else torch.zeros(heads, 0, dim)

        def of_rows(r):
            address = (r.data or 0) + 4 * (place * r.stride_batch + row)
            return tensor_at(address, torch.float32, (p.num_heads_q, rows), (r.stride_head, 1)) if rows else torch.zeros(p.num_heads_q, 0)

        hq, hk = p.num_heads_q, p.num_heads_kv
        if p.page_size:
            pages = _c.Pages.from_address(struct.pages)
            k, v = (of_pages(t, dtype["k"], pages, p, dim, keys, place) for t, dim in ((struct.k, p.head_dim), (struct.v, p.head_dim_v)))
            place = 0 if p.lengths == "packed" else place
        else:
            k, v = of(struct.k, dtype["k"], hk, keys, key, p.head_dim), of(struct.v, dtype["v"], hk, keys, key, p.head_dim_v)
        q = of(struct.q, dtype["q"], hq, rows, row, p.head_dim).double()
        k, v = (each.double().repeat_interleave(group, 0) for each in (k, v))
        o = of(struct.o, dtype["o"], hq, rows, row, p.head_dim_v)
        s = scale * q @ k.transpose(1, 2)
        slope = 1.0
        if p.softcap:
            slope = 1 - torch.tanh(s / p.softcap) ** 2
            s = p.softcap * torch.tanh(s / p.softcap)
        score = Score(struct, p, sequence, s) if p.score and keys else None
        s = (s if score is None else score.value.detach()).masked_fill(~visible(struct, p, sequence, rows, keys), -math.inf)
        if not back:
            if p.sinks:
                logits = tensor_at(struct.sinks, torch.float32, (hq,), (1,)).double()
                s = torch.cat([s, logits[:, None, None].expand(hq, rows, 1)], 2)
                v = torch.cat([v, torch.zeros(hq, 1, p.head_dim_v, dtype=torch.float64)], 1)
            o.copy_(torch.softmax(s, -1).nan_to_num(0.0) @ v)
            if p.lse:
                of_rows(struct.lse).copy_(torch.logsumexp(s, -1))
            continue
        lse, dout = of_rows(struct.lse).double()[:, :, None], of(g.dout, dtype["o"], hq, rows, row, p.head_dim_v).double()
        e = torch.where(torch.isinf(lse), torch.zeros_like(s), torch.exp(s - lse))
        delta = (dout * o.double()).sum(-1, keepdim=True)
        if p.dlse:
            delta = delta - of_rows(g.dlse).double()[:, :, None]
        if p.sinks:
            logits = tensor_at(struct.sinks, torch.float32, (hq,), (1,)).double()
            share = torch.where(torch.isinf(lse), torch.zeros_like(lse), torch.exp(logits[:, None, None] - lse))
            dsinks -= (share * delta).sum((1, 2)).float()
        ds = e * (dout @ v.transpose(1, 2) - delta)
        ds = (ds if score is None else score.backward(ds)) * slope
        results = {"q": scale * ds @ k, "k": scale * ds.transpose(1, 2) @ q, "v": e.transpose(1, 2) @ dout}
        for name, count, first, dim in (("q", rows, row, p.head_dim), ("k", keys, key, p.head_dim), ("v", keys, key, p.head_dim_v)):
            kind = torch.float32 if wide else dtype[name]
            heads = hq if name == "q" else hk
            target, value = of(getattr(g, f"d{name}"), kind, heads, count, first, dim), results[name]
            if name != "q":
                value = value.unflatten(0, (hk, group)).sum(1)
            target.copy_(target.double() + value if p.accumulate else value)


def library_run(handle, tensors, *_):
    plan = next((plan for plan in attnforge.plan_cache if plan.handle.value == handle.value), None)
    if plan is None:  # a thread has cleared the cache meanwhile
        plan = plans[handle.value]
    plans[handle.value] = types.SimpleNamespace(problem=plan.problem)
    struct = tensors._obj if hasattr(tensors, "_obj") else _c.Tensors.from_buffer_copy(tensors)
    lengths = _c.Lengths.from_address(struct.lengths) if struct.lengths else None

    def outside():  # of torch's dispatch inside of an op, where there is no autograd for texts
        with torch.no_grad():
            run(plan, struct, lengths)

    thread.submit(outside).result() if plan.problem.score else outside()
    runs.append(str(plan.problem))
    return 0


def clear_rest(_, arrays, count, *__):
    for rest in (_c.Rest * count).from_buffer_copy(arrays):
        begin = ctypes.c_int32.from_address(rest.begin).value
        for piece in range(rest.pieces):
            ctypes.memset(rest.data + (piece * rest.rows + begin) * rest.row_bytes, 0, (rest.rows - begin) * rest.row_bytes)
    cleared.append(count)
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def shim_run(handle, tensors, *_):
    """The same for libattnforge_torch.so; 1 where it fails, which is said again by a call that goes through Python."""
    try:
        return library_run(ctypes.c_void_p(handle), ctypes.string_at(tensors, ctypes.sizeof(_c.Tensors)))
    except Exception:
        return 1


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def shim_clear(_, arrays, count, *__):
    return clear_rest(_, ctypes.string_at(arrays, count * ctypes.sizeof(_c.Rest)), count)


def open_shim():
    """Whether calls of tensors of the CPU, and ops, go through libattnforge_torch.so, from now on."""
    from attnforge.integrations import torch_kernels, torch_shim  # noqa: F401: the first defines the ops

    if not cpu_key:
        torch_shim.open_shim("CPU", shim_run)
        cpu_key.append("CPU")
    Cpu.native = ("cpu", shim_run, shim_clear)
    _fast.fast.close()
    return torch_shim.is_open()


cpu_key = []
plans = {}
runs = []
cleared = []  # of how many arrays, by each call
thread = concurrent.futures.ThreadPoolExecutor(1)


class Library:
    """The library, but for what a run does."""

    def __getattr__(self, name):
        own = {"attnforge_run": library_run, "attnforge_clear_rest": clear_rest}.get(name)
        return own or getattr(_library.lib(), name)

    def __getitem__(self, name):
        return library_run


def plain(q, k, v, causal=False, window=None, softcap=None, sinks=None, mask=None, score=None, scale=None):
    """[batch, seqlen, heads, dim], of autograd, in the tensors' dtype."""
    group = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(group, 1), v.transpose(1, 2).repeat_interleave(group, 1)
    s = q @ k.transpose(2, 3) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if score is not None:
        s = score(s)
    position, keys = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], torch.arange(k.shape[2])
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        seen &= keys <= position
    if window is not None:
        seen &= keys >= position - window
        seen &= keys <= position + window
    if mask is not None:
        seen &= mask
    s = s.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(s if sinks is None else torch.cat([s, sinks[None, :, None, None].expand(*s.shape[:3], 1).to(s.dtype)], -1), -1)
    return (torch.exp(s - lse[..., None]) @ v).transpose(1, 2), lse


def install(test):
    """For the time of a unittest.TestCase; a run is a line in `runs`."""
    cpu = Cpu()
    for patch in (
        mock.patch.object(_arrays, "_by_type", {torch.Tensor: cpu, torch.nn.Parameter: cpu}),
        mock.patch.object(_arrays, "_by_name", {"torch": cpu}),
        mock.patch("attnforge._plans.lib", Library),
        mock.patch("attnforge._caches.append.lib", Library),
        mock.patch("attnforge._merge.lib", Library),
        mock.patch("attnforge._calls.rest.lib", Library),
        mock.patch("attnforge._calls.fast.lib", Library),
    ):
        patch.start()
        test.addCleanup(patch.stop)
    attnforge.plan_cache.clear()
    _fast.fast.close()
    if os.environ.get("ATTNFORGE_TEST_SHIM"):
        open_shim()
    del runs[:], cleared[:]
    torch.manual_seed(1)
