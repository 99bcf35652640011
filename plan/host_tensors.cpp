#include "attnforge/host_tensors.h"

#include <algorithm>
#include <limits>

#include "plan/host_sizes.h"
#include "reference/half.h"
#include "reference/parallel.h"
#include "reference/rope.h"

namespace attnforge {
namespace {

std::size_t bytes_of(DType dtype, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::size_t>(a * b * c * d) * static_cast<std::size_t>(size_bytes(dtype));
}

/// The finalizer of SplitMix64: a good 64-bit hash of a counter, so that any piece can be filled by
/// any thread.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Four 16-bit uniform numbers summed and scaled: exact integers up to the one product, hence equal
/// on all machines.
float nearly_normal(std::uint64_t bits) {
  const int sum = static_cast<int>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                                   (bits >> 48));
  constexpr float kMean = 2 * 65535.0f;
  constexpr float kScale = 1.0f / 37837.2f;  // of four: sqrt(4 * (65536^2 - 1) / 12)
  return (static_cast<float>(sum) - kMean) * kScale;
}

void fill_random(DType dtype, std::vector<std::byte>& values, std::uint64_t seed) {
  constexpr std::int64_t kPiece = 1 << 16;
  const auto count = static_cast<std::int64_t>(values.size()) / size_bytes(dtype);
  parallel_for((count + kPiece - 1) / kPiece, 0, [&](std::int64_t piece) {
    for (std::int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) {
      const std::uint64_t counter = mixed(seed) +
                                    static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u;
      store_element(dtype, values.data(), i, nearly_normal(mixed(counter)));
    }
  });
}

}  // namespace

HostSizes host_sizes(const Problem& p) {
  validate(p);
  HostSizes sizes;
  if (p.layout == Layout::kPackedQkv) {
    sizes.q = bytes_of(p.dtype_q, p.batch, p.seqlen_q, p.num_heads_q + 2 * p.num_heads_kv,
                       p.head_dim);
  } else {
    sizes.q = bytes_of(p.dtype_q, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim);
    sizes.k = bytes_of(p.dtype_k, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim);
    sizes.v = bytes_of(p.dtype_v, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v);
  }
  sizes.o = bytes_of(p.dtype_o, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v);
  if (p.lse) sizes.lse_count = static_cast<std::size_t>(p.batch * p.num_heads_q * p.seqlen_q);
  return sizes;
}

HostTensors allocate_host_tensors(const Problem& problem) {
  const HostSizes sizes = host_sizes(problem);
  HostTensors host;
  host.q.resize(sizes.q);
  host.k.resize(sizes.k);
  host.v.resize(sizes.v);
  // All bits set is a NaN in each dtype.
  host.o.assign(sizes.o, std::byte{0xff});
  host.lse.assign(sizes.lse_count, std::numeric_limits<float>::quiet_NaN());
  set_rope_tables(problem, host);
  return host;
}

HostTensors random_host_tensors(const Problem& problem, std::uint64_t seed) {
  HostTensors host = allocate_host_tensors(problem);
  fill_random(problem.dtype_q, host.q, 3 * seed);
  fill_random(problem.dtype_k, host.k, 3 * seed + 1);
  fill_random(problem.dtype_v, host.v, 3 * seed + 2);
  return host;
}

void set_rope_tables(const Problem& problem, HostTensors& host, double base, std::int64_t offset) {
  if (problem.rope == Rope::kNone) return;
  if (offset < 0) offset = least_rope_offset(problem);
  check_rope_offset(problem, offset);
  host.rope_offset = offset;
  HostRopeTables tables = rope_tables(effective_rope_dim(problem),
                                      host.rope_offset + problem.seqlen_kv, base);
  host.rope_cos = std::move(tables.cos);
  host.rope_sin = std::move(tables.sin);
}

void values_to_float(DType from, const void* values, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = load_element(from, values, static_cast<std::int64_t>(i));
}

void values_from_float(DType to, const float* values, std::size_t count, void* out) {
  for (std::size_t i = 0; i < count; ++i)
    store_element(to, out, static_cast<std::int64_t>(i), values[i]);
}

}  // namespace attnforge
