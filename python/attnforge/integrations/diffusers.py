"""attnforge in diffusers' dispatcher of attention. Its names are an enum that is closed, so enable() takes the place of one of them, by
request only:

    from attnforge.integrations import diffusers as attnforge_for_diffusers
    attnforge_for_diffusers.enable("flash")
    pipe.transformer.set_attention_backend("flash")

Interface-tested against a stand-in of the registry; not run in diffusers.
"""

from .._errors import UnsupportedError
from .adapter import attend, options_of


def enable(replace="flash"):
    """Has the dispatcher call attnforge for the backend named `replace`. Raises ValueError for a name that diffusers does not have."""
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

    _AttentionBackendRegistry.register(AttentionBackendName(replace), constraints=[])(attention)


def attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, return_lse=False, _parallel_config=None
):
    """query [batch, seqlen, heads, head_dim]; attn_mask as torch's scaled_dot_product_attention() has it. Returns o, or (o, lse [batch,
    seqlen, heads]) with return_lse."""
    if _parallel_config is not None:
        raise UnsupportedError("context parallelism is not there: the sequence must be on one GPU")
    options = options_of(query, dropout_p, scale, is_causal)
    o, lse = attend(query, key, value, return_lse, attn_mask=attn_mask, **options)
    return (o, lse.transpose(1, 2)) if return_lse else o
