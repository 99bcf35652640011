// append.cpp - new rows of k and v, the caches that they go to, and lengths before and after.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/stored_rows.h"
#include "generator/tensors/tensor_check.h"
#include "generator/tensors/tensor_elements.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

constexpr std::int64_t kMostNewRows = std::int64_t{1} << 30;  // a row's number is an int in kernels

bool is_packed(const Problem& p) { return p.lengths == Lengths::kPacked; }

/// Whether rows are moved: else only lengths are written, if these are.
bool moves_rows(const Problem& p) { return total_tokens(p).q > 0 && p.seqlen_kv > 0; }

// ---- Of a problem ----

void validate_append(const Problem& p) {
  if (p.op != Op::kAppend) return;
  const auto goes = [&](DType cache) {
    return cache == p.dtype_q || (is_low_bit(cache) && !is_blocks(cache));
  };
  if (!goes(p.dtype_k) || !goes(p.dtype_v) || p.dtype_o != p.dtype_q)
    reject_problem(
        "an append copies rows as they are, or makes 8 or 4 bits of them; give one dtype to all, "
        "or k and v int8, int4, e4m3 or e5m2");
  if (p.lengths == Lengths::kUsed)
    reject_problem(
        "lengths=used does not go with append: each run says how many rows sequences have; leave "
        "it out");
  if (p.queries && p.rope == Rope::kNone)
    reject_problem("queries needs rope: without one nothing is done to q; leave it out");
  if (!p.queries && p.num_heads_q != p.num_heads_kv)
    reject_problem(
        "num_heads_q={} is of queries: say num_heads={} for the heads of k and v, or queries",
        p.num_heads_q, p.num_heads_kv);
  if (p.tokens_q != p.tokens_kv)
    reject_problem("tokens={}:{} must be one number of an append", p.tokens_q, p.tokens_kv);
}

std::string too_many_new_rows(const Problem& p) {
  const double tokens = elements(total_tokens(p).q, 1, 1);
  if (tokens <= kMostNewRows) return "";
  return fmt::format("batch={} times seqlen_q={} are more than {} rows", p.batch, p.seqlen_q,
                     kMostNewRows);
}

/// Its kernel takes all sizes when it runs: a bucket is a usual one, of one new row for each
/// sequence or of more, whose blocks are counted.
void round_append(const Problem& exact, Problem& bucket) {
  bucket.lengths = Lengths::kFixed;
  bucket.tokens_q = bucket.tokens_kv = 0;
  bucket.page_size = 0;
  bucket.num_heads_kv = 8;
  bucket.num_heads_q = exact.queries ? 32 : 8;
  bucket.batch = exact.batch == 0 ? 0 : 64;
  const bool counts = exact.lengths_after &&
                      (is_packed(exact) || exact.seqlen_q != 1 || !moves_rows(exact));
  bucket.seqlen_q = counts ? 2 : moves_rows(exact) ? 1 : 0;
  bucket.seqlen_kv = 64;
}

/// A row is read and written.
double bytes_of_rows(const Problem& p) {
  const double k = elements(1, p.num_heads_kv, p.head_dim),
               v = elements(1, p.num_heads_kv, p.head_dim_v),
               q = p.queries ? elements(1, p.num_heads_q, p.head_dim) : 0.0;
  return static_cast<double>(total_tokens(p).q) *
         (bytes_of(p.dtype_q, k + v + 2 * q) + bytes_of(p.dtype_k, k) + bytes_of(p.dtype_v, v) +
          4.0 * effective_rope_dim(p));
}

// ---- Of a run ----

template <Tensor Tensors::*kTensor>
void bind_rows(const Problem&, void* data, Tensors& t) {
  (t.*kTensor).data = data;
}
template <Tensor AppendedCache::*kTensor>
void bind_cache(const Problem&, void* data, Tensors& t) {
  (t.cache.*kTensor).data = data;
}
template <const int* LengthArrays::*kArray>
void bind_lengths(const Problem&, void* data, Tensors& t) {
  t.lengths.*kArray = static_cast<const int*>(data);
}

void add_rows(OperandList& list) {
  const Problem& p = list.problem;
  const std::int64_t tokens = list.tokens.q;
  if (p.queries)
    list.add(operand<&HostTensors::q>("q", Role::kInput, bind_rows<&Tensors::q>), p.dtype_q, tokens,
             p.num_heads_q * p.head_dim);
  list.add(operand<&HostTensors::k>("k", Role::kInput, bind_rows<&Tensors::k>), p.dtype_q, tokens,
           p.num_heads_kv * p.head_dim);
  list.add(operand<&HostTensors::v>("v", Role::kInput, bind_rows<&Tensors::v>), p.dtype_q, tokens,
           p.num_heads_kv * p.head_dim_v);
  if (is_packed(p))
    list.add_words(
        operand<&HostTensors::lengths_q>("lengths_q", Role::kTable, bind_lengths<&LengthArrays::q>),
        p.batch + 1);
  list.add_words(operand<&HostTensors::lengths_kv>("lengths_kv", Role::kTable,
                                                   bind_lengths<&LengthArrays::kv>),
                 p.batch);
}

/// They keep what no new row is written to.
void add_caches(OperandList& list) {
  const Problem& p = list.problem;
  const StoredRows stored = stored_rows(p);
  const std::size_t first = list.list().size();
  if (p.queries)
    list.add(operand_of_o(Role::kOutput), p.dtype_q, list.tokens.q, p.num_heads_q * p.head_dim);
  list.add(operand<&HostTensors::k_cache>("k_cache", Role::kOutput, bind_cache<&AppendedCache::k>),
           p.dtype_k, stored.kv_batch, stored.kv * p.num_heads_kv * p.head_dim)
      .any_rows = has_pages(p);
  list.add(operand<&HostTensors::v_cache>("v_cache", Role::kOutput, bind_cache<&AppendedCache::v>),
           p.dtype_v, stored.kv_batch, stored.kv * p.num_heads_kv * p.head_dim_v)
      .any_rows = has_pages(p);
  if (p.lengths_after)
    list.add_words(
        operand<&HostTensors::lengths_after>("lengths_after", Role::kOutput,
                                             [](const Problem&, void* data, Tensors& t) {
                                               t.cache.lengths_after = static_cast<int*>(data);
                                             }),
        p.batch);
  for (Operand& output : list.list().subspan(first)) output.added_to = true;
}

void lay_out_append(const Problem& p, Tensors& t) {
  const auto contiguous = [](std::int64_t rows, std::int64_t heads, std::int64_t dim) {
    return Tensor{nullptr, rows * heads * dim, heads * dim, dim};
  };
  const std::int64_t rows = is_packed(p) ? total_tokens(p).q : p.seqlen_q;
  t.q = t.o = contiguous(rows, p.num_heads_q, p.head_dim);
  t.k = contiguous(rows, p.num_heads_kv, p.head_dim);
  t.v = contiguous(rows, p.num_heads_kv, p.head_dim_v);
  t.cache.k = contiguous(stored_rows(p).kv, p.num_heads_kv, p.head_dim);
  t.cache.v = contiguous(stored_rows(p).kv, p.num_heads_kv, p.head_dim_v);
}

/// New rows that fit, but for those of one sequence, after a random number of others; packed, all
/// tokens among random sequences. Pages in any order, one of them missing.
void make_up_append(const Problem& p, HostTensors& host, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t end) {
    return end <= 0 ? 0 : static_cast<int>(random() % static_cast<std::uint64_t>(end));
  };
  const std::int64_t tokens = total_tokens(p).q;
  const auto batch = static_cast<std::size_t>(p.batch);
  if (is_packed(p)) {
    host.lengths_q.resize(batch + 1);
    for (int& end : host.lengths_q) end = below(tokens + 1);
    std::ranges::sort(host.lengths_q);
    host.lengths_q.front() = 0;
  }
  host.lengths_kv.resize(batch);
  for (int& used : host.lengths_kv) used = below(p.seqlen_kv - p.seqlen_q + 2);
  if (!has_pages(p)) return;
  host.page_table.resize(batch * static_cast<std::size_t>(pages_of_sequence(p)));
  std::vector<int> pages(static_cast<std::size_t>(pages_of_pool(p)));
  std::iota(pages.begin(), pages.end(), 0);
  std::ranges::shuffle(pages, random);
  std::copy_n(pages.begin(), host.page_table.size(), host.page_table.begin());
  if (!host.page_table.empty()) host.page_table[random() % host.page_table.size()] = -1;
}

bool overlap(const Problem& p, const Tensors& t) {
  const std::uintptr_t before = address_bits(t.lengths.kv),
                       after = address_bits(t.cache.lengths_after);
  const auto bytes = static_cast<std::uintptr_t>(p.batch) * sizeof(int);
  return before != 0 && before != after && before < after + bytes && after < before + bytes;
}

bool append_good(const Problem& p, std::uint64_t, const Tensors& t) {
  GoodTensors tensors;
  tensors.add(t.k, p.dtype_q), tensors.add(t.cache.k, p.dtype_k);
  tensors.add(t.v, p.dtype_q), tensors.add(t.cache.v, p.dtype_v);
  if (p.queries) tensors.add(t.q, p.dtype_q), tensors.add(t.o, p.dtype_q);
  return tensors.all(p) && address_bits(t.lengths.kv) % alignof(int) == 0 &&
         t.lengths.tokens_q >= 0 && t.lengths.tokens_q <= total_tokens(p).q &&
         (!is_packed(p) || words_good(t.lengths.q)) &&
         (!p.lengths_after || (words_good(t.cache.lengths_after) && !overlap(p, t)));
}

void explain_append(const Problem& p, const Tensors& t) {
  if (is_packed(p))
    check_address("lengths.q", t.lengths.q, alignof(int),
                  "but the problem says lengths=packed; give it where each sequence begins");
  check_alignment("lengths.kv", t.lengths.kv, alignof(int));
  if (p.lengths_after) {
    check_address(
        "cache.lengths_after", t.cache.lengths_after, alignof(int),
        "but the problem says lengths_after; give it memory for a length of each sequence");
    if (overlap(p, t))
      refuse_tensors(
          "cache.lengths_after overlaps lengths.kv; let both be one array, or lie apart");
  }
  if (t.lengths.tokens_q < 0 || t.lengths.tokens_q > total_tokens(p).q)
    refuse_tensors(
        "lengths.tokens_q={} must be from 0 to {}, the rows that this plan "
        "is for",
        t.lengths.tokens_q, total_tokens(p).q);
  if (!moves_rows(p)) return;
  const std::int64_t batch = is_packed(p) ? 1 : p.batch;
  const std::int64_t rows = is_packed(p) ? total_tokens(p).q : p.seqlen_q;
  const StoredRows stored = stored_rows_of_run(p, t);
  const auto check = [&](std::string_view name, const Tensor& tensor, std::int64_t heads) {
    check_tensor(name, tensor, p.dtype_q, heads, batch, rows, p);
  };
  const auto check_cache = [&](std::string_view name, const Tensor& tensor, DType dtype) {
    check_tensor(name, tensor, dtype, p.num_heads_kv, stored.kv_batch, stored.kv, p);
  };
  check("k", t.k, p.num_heads_kv);
  check("v", t.v, p.num_heads_kv);
  check_cache("k_cache", t.cache.k, p.dtype_k);
  check_cache("v_cache", t.cache.v, p.dtype_v);
  if (!p.queries) return;
  check("q", t.q, p.num_heads_q);
  check("o, where rotated queries go,", t.o, p.num_heads_q);
}

}  // namespace

extern const ProblemPart append_of_problem;
constinit const ProblemPart append_of_problem{
    .in = [](const Problem& p) { return p.op == Op::kAppend; },
    .validate = validate_append,
    .too_large = too_many_new_rows,
    .round = round_append,
    .bytes = bytes_of_rows,
    .add_inputs = add_rows,
    .add_outputs = add_caches,
    .make_up = make_up_append,
    .lay_out = lay_out_append,
    .good = append_good,
    .explain = explain_append};

}  // namespace attnforge
