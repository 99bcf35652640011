"""The kernels of others that bench/serving.py times on caches in pages, and on the same caches in one piece.

A peer is prepared for a case: {row: {option: make}}, make() a function without arguments that plans or copies what is in no time and
returns what runs it. An option is a way to ask the peer for the same result, and the fastest that gives it is the row's time: a user
of it would choose so, too. peer_kernels.py finds the packages. Importing this file imports no torch.
"""

import functools
import importlib
import itertools

import figures
import peer_kernels


def pages_taken(lengths, page_size):
    """How many pages each sequence has."""
    return [-(-length // page_size) for length in lengths]


def of_8_bits(case):
    """(q, its scales and those of K and V) as FlashAttention-3 takes them: q is of e4m3 where K and V are, and is made so in no time."""
    if case.scales is None:
        return case.q, {}
    import torch

    scale = case.q.abs().amax().item() / 448
    shape, scales = (len(case.lengths), case.heads[1]), zip("qkv", (scale, *case.scales))
    each = {f"{name}_descale": torch.full(shape, value, device=case.q.device) for name, value in scales}
    return (case.q.float() / scale).to(torch.float8_e4m3fn), each


def flash_attention_3():
    """FlashAttention-3: lengths on the GPU, keys split as it thinks best, its tiles shared out in the call or ahead of it."""
    package, version = peer_kernels.fa3_package()

    def of_lengths(case, q, scales, caches, planned, **pages):
        """make() of a call for caches with case.used keys; `planned`: what it finds out of the lengths first is in no time."""

        def make():
            options = {"cache_seqlens": case.used, "causal": case.causal, **scales}
            if planned:
                sizes = len(case.lengths), case.seqlen_q, case.longest, *case.heads, case.q.shape[-1]
                of_pages = {"page_size": case.page_size} if pages else {}
                options["scheduler_metadata"] = package.get_scheduler_metadata(
                    *sizes, case.used, qkv_dtype=q.dtype, causal=case.causal, **of_pages
                )
            return functools.partial(package.flash_attn_with_kvcache, q, *caches, **options, **pages)

        return make

    def prepare(case):
        table = case.table.clamp(min=0)  # it knows no -1
        k, v = case.one_piece
        q, scales = of_8_bits(case)

        def each(caches, **pages):
            return {name: of_lengths(case, q, scales, caches, planned, **pages) for name, planned in (("planned ahead", True), ("one call", False))}

        rows = {"fa3": each(case.pools, page_table=table), "fa3, one piece": each((k, v))}
        if len(set(case.lengths)) == 1:
            keys = case.lengths[0]
            dense = functools.partial(package.flash_attn_func, q, k[:, :keys], v[:, :keys], causal=case.causal, **scales)
            rows["fa3, one piece"]["lengths on the host"] = lambda: dense
            rows["fa3, one piece"]["lengths on the host, splits"] = lambda: functools.partial(dense, num_splits=0)
        return rows

    return version, prepare


def flashinfer():
    """FlashInfer's batched decode, planned beforehand, on CUDA cores and on tensor cores; of several queries its batched prefill."""
    import torch

    package, version = peer_kernels.flashinfer_package()

    def prepare(case):
        if case.q.shape[-1] not in (64, 128, 256):
            raise ValueError("only called for head dims 64, 128 and 256: 96 reads outside of its tensors")
        taken = pages_taken(case.lengths, case.page_size)
        starts = torch.tensor([0, *itertools.accumulate(taken)], dtype=torch.int32)
        pages = torch.cat([row[:count] for row, count in zip(case.table, taken)])
        in_last = [length - (count - 1) * case.page_size for length, count in zip(case.lengths, taken)]
        last, caches = torch.tensor(in_last, dtype=torch.int32), tuple(case.pools)
        q, sizes = case.q.flatten(0, 1), (*case.heads, case.q.shape[-1], case.page_size)
        dtypes = {"q_data_type": q.dtype, "kv_data_type": caches[0].dtype}
        scales = dict(zip(("k_scale", "v_scale"), case.scales or ()))

        def workspace():
            return torch.zeros(256 << 20, dtype=torch.uint8, device=q.device)

        def decode(use_tensor_cores):
            wrapper = package.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD", use_tensor_cores=use_tensor_cores)
            wrapper.plan(starts, pages, last, *sizes, **dtypes)
            return lambda: wrapper.run(q, caches, **scales).view_as(case.q)

        def prefill(backend):
            wrapper = package.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend=backend)
            queries = torch.arange(len(case.lengths) + 1, dtype=torch.int32) * case.seqlen_q
            wrapper.plan(queries, starts, pages, last, *sizes, causal=True, **dtypes)
            return lambda: wrapper.run(q, caches, **scales).view_as(case.q)

        if case.seqlen_q > 1:
            return {"flashinfer": {"prefill": lambda: prefill("fa2")}}
        return {"flashinfer": {"tensor cores": lambda: decode(True), "CUDA cores": lambda: decode(False)}}

    return version, prepare


def xqa():
    """TensorRT-LLM's decode kernel in FlashInfer, which builds it with nvcc for each page size, head dim, group and number of queries."""
    import torch

    package, version = peer_kernels.flashinfer_package()
    function = importlib.import_module("flashinfer.decode").xqa_batch_decode_with_kv_cache

    def prepare(case):
        batch, count = case.q.shape[:2]
        used, table = case.used.to(torch.uint32), case.table.clamp(min=0)
        workspace = torch.zeros(256 << 20, dtype=torch.uint8, device=case.q.device)
        out = torch.empty_like(case.q)
        options = {"bmm1_scale": case.q.shape[-1] ** -0.5, "kv_layout": "NHD", "out": out.flatten(0, 1)}
        if case.scales is not None:
            options |= {"bmm1_scale": options["bmm1_scale"] * case.scales[0], "bmm2_scale": case.scales[1]}
        if count > 1:  # row i of the new tokens sees the first i + 1: bits in pairs of 16-bit words
            words = torch.tensor([[(1 << (row + 1)) - 1, 0] for row in range(count)], dtype=torch.int32).to(torch.uint16)
            options |= {"q_len_per_req": count, "mask": words.to(case.q.device).expand(batch, -1, -1).contiguous()}

        def run():
            function(case.q.flatten(0, 1), tuple(case.pools), workspace, table, used, case.longest, **options)
            return out

        return {"xqa": {"": lambda: run}}

    return version, prepare


def sdpa():
    """PyTorch's scaled_dot_product_attention by cuDNN and by FlashAttention-2: one new token, one piece, equal lengths."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    function = torch.nn.functional.scaled_dot_product_attention

    def prepare(case):
        if case.seqlen_q > 1 or len(set(case.lengths)) > 1:
            raise ValueError("only called for one new token and sequences of equal lengths")
        keys, grouped = case.lengths[0], case.heads[0] != case.heads[1]
        tensors = [x[:, :keys].transpose(1, 2) for x in case.one_piece]
        q = case.q.transpose(1, 2)

        def make(backend):
            def run():
                with sdpa_kernel(backend):
                    return function(q, *tensors, enable_gqa=grouped).transpose(1, 2)

            return lambda: run

        return {"sdpa, one piece": {"cuDNN": make(SDPBackend.CUDNN_ATTENTION), "FlashAttention-2": make(SDPBackend.FLASH_ATTENTION)}}

    return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", prepare


def sdpa_of_8_bits():
    """The same on a cache of e4m3, which each call turns into bf16, and gathers where it is in pages."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def prepare(case):
        if case.seqlen_q > 1 or len(set(case.lengths)) > 1:
            raise ValueError("only called for one new token and sequences of equal lengths")
        keys, rows = case.lengths[0], case.table.clamp(min=0).long()
        options = {"enable_gqa": case.heads[0] != case.heads[1], "scale": case.scales[0] * case.q.shape[-1] ** -0.5}

        def in_bf16(x, in_pages):
            x = x.view(torch.uint8)[rows].flatten(1, 2).view(x.dtype) if in_pages else x
            return x[:, :keys].to(torch.bfloat16).transpose(1, 2)

        def make(backend, in_pages):
            def run():
                k, v = (in_bf16(x, in_pages) for x in (case.pools if in_pages else case.one_piece))
                with sdpa_kernel(backend):
                    o = torch.nn.functional.scaled_dot_product_attention(case.q.transpose(1, 2), k, v, **options)
                return o.transpose(1, 2) * case.scales[1]

            return lambda: run

        backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention-2": SDPBackend.FLASH_ATTENTION}
        both = (("sdpa", True), ("sdpa, one piece", False))
        return {name: {option: make(backend, in_pages) for option, backend in backends.items()} for name, in_pages in both}

    return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", prepare


LOADERS = {"fa3": flash_attention_3, "flashinfer": flashinfer, "xqa": xqa, "sdpa": sdpa}  # the names of rows in pages, but for sdpa, which has none


def rows_of(peer, case):
    """({row: {option: make}}, {row: why it has none})."""
    try:
        return peer.prepare(case), {}
    except Exception as error:  # a package raises what it likes where it does not serve a problem
        return {}, {peer.name: peer_kernels.first_line(error)}


def choose(options, error_of, fastest, wrong=peer_kernels.WRONG, beside="attnforge"):
    """(function, what to say of it, its relative error) of the fastest of {option: make} whose output is right.

    error_of(output): relative error to that of `beside`; wrong: too much of it. fastest(functions): one of them. None and None with the
    reason where no option works.
    """
    runs, errors, refused = {}, {}, {}
    for option, make in options.items():
        try:
            run = make()
            run()
            errors[option] = error_of(run())  # the second one: what was planned ahead must serve again
        except Exception as error:
            refused[option] = peer_kernels.first_line(error)
            continue
        if errors[option] < wrong:
            runs[option] = run
        else:
            refused[option] = f"wrong: differs from {beside} by {errors[option]:.1e}"
    without = [f"not {option}: {why}" for option, why in refused.items()]
    if not runs:
        return None, "; ".join(without), None
    best = fastest(list(runs.values()))
    option = next(name for name, run in runs.items() if run is best)
    return best, "; ".join([option, *without]), errors[option]


def add(peers, case, error_of, fastest, runs, notes, errors, in_pages=None, **judged):
    """Adds the rows of peers to {row: function}, {row: what to say of it} and {row: relative error}. in_pages: only rows of caches in
    pages, or only those in one piece. judged: of choose()."""
    for peer in peers:
        found, without = rows_of(peer, case)
        notes |= without
        for name, options in found.items():
            if in_pages is not None and name.endswith(", one piece") == in_pages:
                continue
            run, notes[name], error = choose(options, error_of, fastest, **judged)
            if run:
                runs[name], errors[name] = run, error


# ---- What was measured ----

POINT = ("case", "num_heads_q", "num_heads_kv", "batch", "seqlen_q", "keys", "page_size")


def point_of(row):
    return tuple(str(row[column]) for column in POINT)


def ratios_in_pages(rows):
    """{point: {peer on pages: attnforge's speed relative to it}}"""
    found = figures.all_ratios(rows, point_of)
    return {point: {name: known[name] for name in LOADERS if name in known} for point, known in found.items()}
