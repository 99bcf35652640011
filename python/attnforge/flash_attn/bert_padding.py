"""Padded batches as packed sequences and back, by the names of flash_attn.bert_padding."""

import torch


def index_first_axis(x, indices):
    """Rows of x by their numbers."""
    return x[indices]


def index_first_axis_residual(x, indices):
    """The same, and x."""
    return x[indices], x


def index_put_first_axis(values, indices, first_axis_dim):
    """A tensor of first_axis_dim rows, of which those of `indices` are `values` and others 0."""
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_put((indices,), values)


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """(rows that count, their numbers, cu_seqlens, the longest, lengths) of hidden_states [batch, seqlen, ...]; attention_mask: [batch,
    seqlen], 1 where a row counts. unused_mask: rows that lie there too, but do not count as used."""
    there = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths, used = there.sum(-1, dtype=torch.int32), attention_mask.sum(-1, dtype=torch.int32)
    indices = there.flatten().nonzero().flatten()
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, ends, lengths.max().item(), used


def unpad_input_for_concatenated_sequences(hidden_states, attention_mask_in_length):
    """unpad_input() of rows that hold several sequences each: attention_mask_in_length [batch, seqlen] has their lengths, and then zeros.
    Returns (rows that count, their numbers, cu_seqlens, the longest)."""
    lengths = attention_mask_in_length.flatten()
    lengths = lengths[lengths.nonzero().flatten()].to(torch.int32)
    there = torch.arange(hidden_states.shape[1], device=hidden_states.device) < attention_mask_in_length.sum(-1, keepdim=True)
    indices = there.flatten().nonzero().flatten()
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, ends, lengths.max().item()


def pad_input(hidden_states, indices, batch, seqlen):
    """The reverse: [batch, seqlen, ...], 0 where no row was."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
