"""KvCache: keys and values of many sequences in pages of one pool."""

import array
import itertools
import operator

from .. import _checks
from .append import append_kv
from .._arrays import backend_of
from .._attention import attention
from .._errors import AttnforgeError, InvalidError, NoDriverError
from .scales import stored


class Pages:
    """Which pages of a pool each sequence has, on the host: a list of the free ones, and a row of a page table for each sequence."""

    def __init__(self, num_pages, page_size, columns):
        self.page_size = page_size
        self.free = list(range(num_pages - 1, -1, -1))  # taken from the end: low numbers first
        self.lengths = {}  # rows of each sequence
        self.rows = {}  # int32, -1 after the pages that it has
        self.changes = 0  # of these rows
        self._nothing = array.array("i", [-1]) * columns

    def extend(self, added):
        """Gives each sequence of {sequence: more rows}, new ones too, the pages for these. All of them, or AttnforgeError and none."""
        lengths, size = {}, self.page_size
        grown, missing = [], -len(self.free)
        for sequence, rows in added.items():
            before = self.lengths.get(sequence, 0)
            lengths[sequence] = after = before + rows
            first, last = -(-before // size), -(-after // size)
            if first < last or sequence not in self.rows:  # of few sequences in a step
                grown.append((sequence, first, last))
                missing += last - first
        if missing > 0:
            raise AttnforgeError(
                f"the cache has {len(self.free)} free pages of {self.page_size} rows, and {sum(added.values())} more rows of {len(added)} "
                f"sequences take {missing} more; release() sequences, or make it with more num_pages"
            )
        for sequence, first, last in grown:
            row = self.rows.setdefault(sequence, self._nothing[:])
            for column in range(first, last):
                row[column] = self.free.pop()
            self.changes += last > first
        self.lengths.update(lengths)

    def trim(self, sequence, length):
        """Takes back the rows from `length` on, and pages that have none left."""
        row = self.rows[sequence]
        for column in range(self._count(self.lengths[sequence]) - 1, self._count(length) - 1, -1):
            self.free.append(row[column])
            row[column] = -1
            self.changes += 1
        self.lengths[sequence] = length

    def release(self, sequence):
        """The pages of a sequence are free again."""
        self.trim(sequence, 0)
        del self.rows[sequence], self.lengths[sequence]

    def table(self, sequences):
        """The bytes of a page table of these sequences."""
        return b"".join(self.rows[sequence] for sequence in sequences)

    def _count(self, rows):
        return -(-rows // self.page_size)


class KvCache:
    """Keys and values of many sequences in pages on one GPU: append() new rows, attend() to all rows so far.

        cache = attnforge.KvCache(max_sequences=8, max_len=4096, heads_kv=8, head_dim=128)
        cache.append(k, v, ["a", "b"])    # k, v [2, new rows, 8, 128]: rows of a prompt, or the one of a new token
        o = cache.attend(q)               # q [2, new rows, 32, 128]: causal, to all rows of "a" and of "b"
        cache.release("a")                # its pages are free for others

    A sequence is whatever can be a key of a dict, and begins with its first rows. max_len: the most rows of one. page_size: rows of a
    page, 1, 2, 4 or a multiple of 8. num_pages: of the pool; default: what max_sequences of max_len take. With fewer, append() raises
    AttnforgeError where none is left, and changes nothing. head_dim_v: of v, default head_dim. layers: a model has one cache for all
    its layers: append() for layer 0 begins a step, in which each layer appends and attends to the same sequences with as many rows.
    dtype, device: torch's; default bfloat16 on the current GPU. A dtype "int8", "int4", "e4m3" or "e5m2" is that of the pools alone: new
    rows, float16 or bfloat16, are quantised as by quantize_kv(), which says what scale and zero may be. dtype_v: of v, default dtype.

    A model under torch.compile has the host's part outside of its graph: begin(1, ["a", "b"]), and then in the model append(k, v, layer=i)
    and attend(q, layer=i) of each layer.

    Rows of different numbers go in one step when they are packed: append(k, v, ["a", "b"], new_rows=[300, 1]) of k and v [301, 8, 128],
    a chunk of a prompt beside a token of a sequence that decodes, and attend() of q packed likewise.

    k, v: the pools, [layers, num_pages, page_size, heads_kv, head_dim], of int4 bytes of two. k_scale, v_scale: their scales, float32
    [layers, num_pages, page_size, heads_kv], of groups with one more dimension, with zero [..., groups, 2]; None without. free_pages:
    how many are free. Pages are kept on the host; a step of other sequences than the last one's uploads lengths, and a page table when
    one has changed. Needs torch.
    Not thread-safe: give each thread a cache, or a lock. A CUDA graph is captured of append_kv() and attention(), not of a cache, whose
    lengths are the host's.
    """

    def __init__(
        self, max_sequences, max_len, heads_kv, head_dim, page_size=64, head_dim_v=None, layers=1, num_pages=None, dtype=None, device=None,
        dtype_v=None, scale="token", zero=False
    ):
        import torch

        if torch.device("cuda" if device is None else device).type == "cuda" and not torch.cuda.is_available():
            raise NoDriverError(
                "torch sees no GPU, and a KvCache is memory of one; of a GPU that is not here supported(problem, arch=...) tells what is served"
            )
        most = 2**30
        max_sequences = _checks.integer("max_sequences", max_sequences, 1, most)
        self.max_len = _checks.integer("max_len", max_len, 1, most)
        self.page_size = _checks.integer("page_size", page_size, 1, 65536)
        if self.page_size % 8 and self.page_size not in (1, 2, 4):
            raise InvalidError(f"page_size={page_size} must be 1, 2, 4 or a multiple of 8")
        self.layers = _checks.integer("layers", layers, 1, most)
        heads_kv = _checks.integer("heads_kv", heads_kv, 1, most)
        self._columns = -(-self.max_len // self.page_size)
        if num_pages is None:
            num_pages = max_sequences * self._columns
        num_pages = _checks.integer("num_pages", num_pages, 1, 2**31 - 1)
        self._torch = torch
        self._device = torch.device("cuda", torch.cuda.current_device()) if device is None else torch.device(device)
        rows = self.layers, num_pages, self.page_size, heads_kv

        def pool(name, dim, dtype):
            """(numbers, scales or None)."""
            dtype, dim, of_row = stored(name, dim, dtype, scale, zero)
            numbers = torch.empty((*rows, dim), dtype=dtype, device=self._device)
            if of_row is None:
                return numbers, None
            by_head = *rows[:2], rows[3], rows[2], *of_row  # in memory: rows_together()
            return numbers, torch.empty(by_head, dtype=torch.float32, device=self._device).transpose(2, 3)

        dtype = torch.bfloat16 if dtype is None else dtype
        self.k, self.k_scale = pool("head_dim", head_dim, dtype)
        self.v, self.v_scale = pool("head_dim_v", head_dim if head_dim_v is None else head_dim_v, dtype if dtype_v is None else dtype_v)
        # To index a tensor takes microseconds.
        self._of_layers = tuple((self.k[i], self.v[i]) for i in range(self.layers))
        named = {"k_scale": self.k_scale, "v_scale": self.v_scale}
        self._scales = tuple({name: of[i] for name, of in named.items() if of is not None} for i in range(self.layers))
        self._pages = Pages(num_pages, self.page_size, self._columns)
        self._step = None  # sequences, how many rows each gets, and whether these are packed
        self._begun = False  # by begin(), not by append()
        self._longest = 0  # of packed rows, those of a sequence
        self._ends = None  # of packed rows, on the GPU
        self._before = self._after = None  # lengths of its sequences, on the GPU
        self._table = self._table_of = None
        self._stream = None  # where they were enqueued, and whose memory they have

    @property
    def free_pages(self):
        return len(self._pages.free)

    def length(self, sequence):
        """How many rows a sequence has; 0 of one that is not there."""
        return self._pages.lengths.get(sequence, 0)

    def begin(self, new_rows, sequences=None):
        """Begins a step of new_rows (a number, or a list of numbers for packed rows) of each sequence, for append() without sequences in
        every layer. sequences: as of append(), default as many as new_rows has, or as the step before."""
        packed = isinstance(new_rows, (tuple, list))
        if sequences is None:
            sequences = range(len(new_rows)) if packed else self._step[0] if self._step else (0,)
        sequences = tuple(sequences)
        rows = tuple(_checks.integer("new_rows", count, 0, 2**30) for count in (new_rows if packed else (new_rows,) * len(sequences)))
        self._start(sequences, rows, packed)
        self._begun = True

    def _start(self, sequences, rows, packed):
        """begin() of checked arguments: all of it, or nothing."""
        if len(sequences) != len(rows):
            raise InvalidError(f"there are {len(sequences)} sequences, but rows of {len(rows)}")
        before = self._extend(sequences, rows)
        try:
            self._begin(sequences, rows, packed, before)
        except Exception:
            self._undo(sequences, before)
            raise
        return before

    def _undo(self, sequences, before):
        for sequence, length in zip(sequences, before):
            self.trim(sequence, length)

    def append(self, k, v, sequences=None, layer=0, new_rows=None, q=None, rope=None, rope_interleaved=False, rope_offset=0):
        """Writes new rows of k and v, [batch, new rows, heads_kv, head_dim], after those that the sequences have.

        sequences: the keys of the batch, each once; default 0, 1, 2 and on. layer: 0 begins a step; other layers follow with as many
        rows of the same sequences. new_rows: how many rows each sequence gets, a list of numbers; k, v and q are packed then, [rows of
        all, heads, head_dim]. q, rope, rope_interleaved, rope_offset: as of append_kv(): k is rotated by the positions of its rows,
        and so is q, which is returned.
        """
        layer = _checks.integer("layer", layer, 0, self.layers - 1)
        of_rope = {"rope": rope, "rope_interleaved": rope_interleaved, "rope_offset": rope_offset}
        if self._begun and sequences is None and new_rows is None:
            keys, rows, packed = self._step
            wanted = (sum(rows),) if packed else (len(keys), rows[0])
            if tuple(k.shape[: len(wanted)]) != wanted:
                raise InvalidError(f"k has shape {tuple(k.shape)}, but begin() was of {wanted} rows")
            return self._append(k, v, layer, q, of_rope)
        rows = self._rows_of(k.shape, new_rows)
        sequences = tuple(range(len(rows))) if sequences is None else tuple(sequences)
        step = sequences, rows, new_rows is not None
        if layer > 0:
            if self._step != step:
                raise InvalidError(
                    f"layer {layer} appends {sum(rows)} rows of {len(rows)} sequences in a step that append() for layer 0 began with others; "
                    "all layers of a step take the same"
                )
            return self._append(k, v, layer, q, of_rope)
        before = self._start(*step)
        try:
            return self._append(k, v, layer, q, of_rope)
        except Exception:  # no step was begun
            self._undo(sequences, before)
            raise

    def _append(self, k, v, layer, q, of_rope):
        of_layer = {**of_rope, **self._scales[layer]}
        return append_kv(k, v, *self._of_layers[layer], self._before, self._table, cu_seqlens=self._ends, q=q, **of_layer)

    def attend(self, q, layer=0, causal=True, **options):
        """attention() of q, [batch, new rows, heads_q, head_dim], to all rows of the step's sequences, the new ones too.

        The queries are those of the rows that were appended last, packed if these were. options: as of attention(): window, softmax_scale, softcap,
        return_lse, out, sinks, score, mask, args.
        """
        layer = _checks.integer("layer", layer, 0, self.layers - 1)
        if self._step is None:
            raise InvalidError("there are no rows to attend to: append() comes first")
        if self._ends is not None:
            options.update(cu_seqlens=self._ends, max_seqlen=self._longest)
        options.update(self._scales[layer])
        return attention(q, *self._of_layers[layer], causal=causal, used_kv=self._after, page_table=self._table, **options)

    def trim(self, sequence, length):
        """Keeps the first `length` rows of a sequence, as when tokens that were guessed are taken back. 0: as release()."""
        length = _checks.integer("length", length, 0, self.length(sequence))
        self._pages.trim(sequence, length) if length else self.release(sequence)
        self._step = None

    def release(self, sequence):
        """Forgets a sequence; its pages are free for others. Runs that were enqueued on the same stream are not disturbed."""
        if sequence not in self._pages.rows:
            raise InvalidError(f"the cache has no sequence {sequence!r}")
        self._pages.release(sequence)
        self._step = None

    @staticmethod
    def _rows_of(shape, new_rows):
        """How many rows each sequence gets."""
        if new_rows is None:
            if len(shape) != 4:
                raise InvalidError(f"k has shape {tuple(shape)}; it must be [batch, new rows, heads_kv, head_dim]")
            return (shape[1],) * shape[0]
        rows = tuple(_checks.integer("new_rows", count, 0, 2**30) for count in new_rows)
        if len(shape) != 3 or shape[0] != sum(rows):
            raise InvalidError(f"k has shape {tuple(shape)}; with new_rows it must be [{sum(rows)}, heads_kv, head_dim]")
        return rows

    def _extend(self, sequences, rows):
        """Pages for more rows of sequences, all of them or none. Returns the lengths before."""
        if len(set(sequences)) != len(sequences) or not sequences:
            raise InvalidError(f"sequences={list(sequences)!r} must be different ones, at least one")
        lengths = self._pages.lengths
        before = [lengths.get(sequence, 0) for sequence in sequences]
        longest = max(map(operator.add, before, rows))
        if longest > self.max_len:
            raise InvalidError(f"a sequence would have {longest} rows, more than max_len={self.max_len}")
        self._pages.extend(dict(zip(sequences, rows)))
        return before

    def _begin(self, sequences, rows, packed, before):
        """A step of sequences that have their pages: lengths and the table on the GPU. before: their lengths before it."""
        stream = backend_of(self.k).stream(self.k.get_device())
        if stream != self._stream:  # the memory would be free for the stream before while this one still reads it
            self._step = self._table_of = None
        self._stream = stream
        goes_on = self._step is not None and self._step[0] == sequences
        self._step, self._begun, self._longest = (sequences, rows, packed), False, max(rows)
        if goes_on and not packed:  # the lengths are on the GPU, and to add there takes less of the host than a copy
            self._before, self._after = self._after, self._after + rows[0]
        else:
            after = [length + count for length, count in zip(before, rows)]
            self._before, self._after = self._upload(array.array("i", before + after).tobytes(), len(sequences))
        self._ends = None
        if packed:
            ends = array.array("i", itertools.accumulate(rows, initial=0))
            (self._ends,) = self._upload(ends.tobytes(), len(ends))
        if self._table_of != (sequences, self._pages.changes):
            self._table = self._upload(self._pages.table(sequences), self._columns)
            self._table_of = sequences, self._pages.changes

    def _upload(self, numbers, columns):
        """Rows of int32 on the GPU; the copy is enqueued on the current stream."""
        torch = self._torch
        host = torch.frombuffer(bytearray(numbers), dtype=torch.int32).view(-1, columns)
        return host.pin_memory().to(self._device, non_blocking=True)
