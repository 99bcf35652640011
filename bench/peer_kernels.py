"""The kernels of others that bench/ times beside attnforge: how each is imported and called, and which of them agree.

A peer is prepared for one problem, of which it gets q, k and v as [batch, seqlen, heads, head_dim]: what it compiles, plans,
searches or copies to a layout of its own is done there and is in no time. Importing this file imports no torch.
"""

import collections
import importlib
import importlib.metadata

Peer = collections.namedtuple("Peer", "name version prepare")
# prepare(problem, q, k, v): functions that run it and return o like q, with head_dim_v; where there are several, the fastest
# is what is timed. Raises whatever the peer raises where it does not serve the problem.

WRONG = 1e-2  # relative error from which outputs are not those of the same problem


def refuse_other_masks(problem):
    """The peers are called for full and causal attention alone."""
    if problem.window_left >= 0 or problem.window_right >= 0 or problem.softcap or problem.rope != "none":
        raise ValueError("only called for full and causal attention")
    if problem.causal and problem.seqlen_q != problem.seqlen_kv:
        raise ValueError("only called for causal masks of equal lengths: elsewhere they are aligned differently")


# ---- How each is loaded: (version, prepare) ----


def torch_backend(name):
    """One of PyTorch's scaled_dot_product_attention, in both layouts: as the tensors are, and with rows of a head together."""

    def load():
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, name)
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def prepare(problem, q, k, v):
            views = [x.transpose(1, 2) for x in (q, k, v)]
            options = {"is_causal": problem.causal}
            if problem.num_heads_q != problem.num_heads_kv:
                options["enable_gqa"] = True

            def runner(tensors):
                def run():
                    with sdpa_kernel(backend):
                        return sdpa(*tensors, **options).transpose(1, 2)

                return run

            return [runner(views), runner([x.contiguous() for x in views])]

        version = f"torch {torch.__version__}"
        return f"{version}, cuDNN {torch.backends.cudnn.version()}" if name == "CUDNN_ATTENTION" else version, prepare

    return load


def fa3_package():
    """(module, version) of FlashAttention-3: a whole build of it, or the wheel fa3-fwd, which has bf16 alone and no pages."""
    name = "flash_attn_interface"
    try:
        package = importlib.import_module(name)
        distribution = importlib.metadata.packages_distributions().get(name, ["flash-attn-3"])[0]  # several build it
    except ModuleNotFoundError:
        package, distribution = importlib.import_module("fa3_fwd_interface"), "fa3-fwd"
    return package, f"{distribution} {importlib.metadata.version(distribution)}"


def flash_attention_3():
    """It writes lse in any case. Keys are split as it thinks best, too."""
    package, version = fa3_package()
    function = package.flash_attn_func

    def prepare(problem, q, k, v):
        runs = [lambda: function(q, k, v, causal=problem.causal)]
        if problem.seqlen_q < problem.seqlen_kv:
            runs.append(lambda: function(q, k, v, causal=problem.causal, num_splits=0))
        return runs

    return version, prepare


def flash_attention_4():
    """FlashAttention-4 from the wheel flash-attn-4. It writes lse where it is asked to, as attnforge is."""
    function = importlib.import_module("flash_attn.cute").flash_attn_func

    def prepare(problem, q, k, v):
        return [lambda: function(q, k, v, causal=problem.causal, return_lse=problem.lse)[0]]

    dsl = importlib.metadata.version("nvidia-cutlass-dsl")
    return f"flash-attn-4 {importlib.metadata.version('flash-attn-4')}, nvidia-cutlass-dsl {dsl}", prepare


def flashinfer_package():
    """(module, version)."""
    return importlib.import_module("flashinfer"), f"flashinfer {importlib.metadata.version('flashinfer-python')}"


def flashinfer():
    """FlashInfer's batched prefill of ragged sequences, planned beforehand."""
    import torch

    package, version = flashinfer_package()
    wrapper_type = package.BatchPrefillWithRaggedKVCacheWrapper

    def prepare(problem, q, k, v):
        wrapper = wrapper_type(torch.empty(256 << 20, dtype=torch.uint8, device=q.device), "NHD")
        starts = [
            torch.arange(problem.batch + 1, dtype=torch.int32, device=q.device) * length
            for length in (problem.seqlen_q, problem.seqlen_kv)
        ]
        heads = problem.num_heads_q, problem.num_heads_kv, problem.head_dim
        wrapper.plan(
            *starts, *heads, head_dim_vo=problem.head_dim_v, causal=problem.causal, q_data_type=q.dtype, kv_data_type=k.dtype
        )
        rows = [x.flatten(0, 1) for x in (q, k, v)]
        return [lambda: wrapper.run(*rows).unflatten(0, (problem.batch, problem.seqlen_q))]

    return version, prepare


def flex():
    """PyTorch's flex_attention, compiled with max-autotune for each problem; rows of a head together, causal as a block mask."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(_batch, _head, row, key):
        return row >= key

    def prepare(problem, q, k, v):
        torch._dynamo.reset()  # of the problems before: it gives up compiling anew after some
        function = torch.compile(flex_attention, mode="max-autotune-no-cudagraphs", dynamic=False)
        lengths = problem.seqlen_q, problem.seqlen_kv
        options = {"enable_gqa": problem.num_heads_q != problem.num_heads_kv}
        if problem.causal:
            options["block_mask"] = create_block_mask(causal, None, None, *lengths, device=q.device)
        heads_first = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        return [lambda: function(*heads_first, **options).transpose(1, 2)]

    triton = importlib.metadata.version("triton")
    return f"torch {torch.__version__}, triton {triton}, max-autotune", prepare


def untuned():
    """attnforge itself with its model's first choice, to see what tuning gains. A problem has one config at a time, so this one's
    run is replayed as a CUDA graph."""
    import attnforge
    import peer_runs
    import torch

    def prepare(problem, q, k, v):
        of_ours = next(plan.config for plan in attnforge.plan_cache)
        first = attnforge.inspect(problem, compile=False, max_candidates=1)["candidates"][0]["config"]
        attnforge.configure(config=first)
        try:
            run = peer_runs.attnforge_run(problem, q, k, v)
            run()
            plans = list(attnforge.plan_cache)  # they own the kernels that the graph launches
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                o = run()
        finally:
            attnforge.configure(config=of_ours)

        def replay(_plans=plans):
            graph.replay()
            return o

        return [replay]

    return f"attnforge {attnforge.version()}, the model's first choice", prepare


# Also the order in which their outputs are taken to compare with.
LOADERS = {
    "torch-cudnn": torch_backend("CUDNN_ATTENTION"),
    "torch-flash": torch_backend("FLASH_ATTENTION"),
    "torch-efficient": torch_backend("EFFICIENT_ATTENTION"),
    "torch-math": torch_backend("MATH"),
    "fa3": flash_attention_3,
    "fa4": flash_attention_4,
    "flashinfer": flashinfer,
    "flex": flex,
    "untuned": untuned,
}
DEFAULT = [name for name in LOADERS if name not in ("torch-math", "untuned")]  # one materializes all scores, one is attnforge


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__


def find(names, loaders=LOADERS, needed=False):
    """(the peers of `names` that can be imported, {name: why not} of the others). needed: --peers names them, and one that
    cannot be imported ends the run before it costs time on a GPU.
    """
    unknown = [name for name in names if name not in loaders]
    if unknown:
        raise SystemExit(f"no peer is named {', '.join(unknown)}; there are {', '.join(loaders)}")
    peers, missing = [], {}
    for name in names:
        try:
            version, prepare = loaders[name]()
        except Exception as error:  # what a package raises while it is imported is its own
            missing[name] = first_line(error)
            continue
        peers.append(Peer(name, version, prepare))
    if needed and missing:
        reasons = "; ".join(f"{name} cannot be imported: {why}" for name, why in missing.items())
        raise SystemExit(f"{reasons}. Install what --peers names, or leave it out there")
    return peers, missing


def who(peers, missing, asked, usual):
    """Lines for a file's header: the versions of those in the run, and why others of `usual` are not."""
    lines = [f"peer {peer.name}: {peer.version}" for peer in peers]
    lines += [f"not in the run: {name}: {why}" for name, why in missing.items()]
    return lines + [f"not in the run: {name}: not asked for" for name in usual if name not in asked]


# ---- Which outputs are right ----


def judge(errors):
    """(reference, {name: relative error to it}) from errors[one][other], of all that ran.

    The reference is the peer with which most of the others agree, so that a peer that is wrong is alone. None and {} where
    there is no peer.
    """
    peers = [name for name in LOADERS if name in errors]
    if not peers:
        return None, {}
    agree = {name: sum(errors[name][other] < WRONG for other in errors if other != name) for name in peers}
    reference = max(peers, key=agree.get)
    return reference, errors[reference]
