#include "tuner/patch.h"

#include <algorithm>
#include <random>

namespace attnforge {
namespace {

constexpr std::int64_t kPatchRows = 8;
constexpr std::size_t kPatchesLeast = 4, kPatchesMost = 96;
constexpr double kElementsMost = 1e6;
constexpr double kFlopsPerSm = 50e-3 * 1e12 / 132;

void move(Tensor& tensor, std::int64_t batch, std::int64_t row, int element_bytes) {
  const std::int64_t elements = batch * tensor.stride_batch + row * tensor.stride_row;
  tensor.data = static_cast<char*>(tensor.data) + elements * element_bytes;
}

double elements(const Problem& problem) {
  return static_cast<double>(problem.batch) * static_cast<double>(problem.num_heads_q) *
         static_cast<double>(problem.seqlen_q) * problem.head_dim_v;
}

}  // namespace

PatchProblem patch_problem(const Problem& problem, const Patch& patch) {
  const Window window = effective_window(problem);
  PatchProblem result{problem, 0};
  Problem& small = result.problem;
  small.layout = Layout::kBshd;
  small.batch = patch.batch_end - patch.batch_begin;
  small.seqlen_q = patch.row_end - patch.row_begin;

  // A row's position is its index + seqlen_kv - seqlen_q. With `keys` keys the patch's rows keep
  // their positions; each key more moves them by one to the right, and the window's bounds move
  // back. Keys past the last row's window are not needed.
  const std::int64_t keys = problem.seqlen_kv - (problem.seqlen_q - patch.row_end);
  const std::int64_t after = problem.seqlen_q -
                             patch.row_end;  // keys after the last row's position
  const std::int64_t shift = window.right < 0 ? after : std::min(after, window.right);
  small.causal = false;
  small.window_right = window.right < 0 ? -1 : window.right - shift;
  small.window_left = window.left < 0 ? -1 : window.left + shift;
  small.seqlen_kv = std::max<std::int64_t>(0, keys + shift);

  // Keys before the first row's window.
  if (window.left >= 0) {
    const std::int64_t first = patch.row_begin + problem.seqlen_kv - problem.seqlen_q - window.left;
    result.kv_begin = std::clamp<std::int64_t>(first, 0, small.seqlen_kv);
    small.seqlen_kv -= result.kv_begin;
  }
  return result;
}

Tensors patch_tensors(const Problem& problem, const Tensors& tensors, const Patch& patch,
                      const PatchProblem& small) {
  Tensors result = tensors;
  move(result.q, patch.batch_begin, patch.row_begin, size_bytes(problem.dtype_q));
  move(result.k, patch.batch_begin, small.kv_begin, size_bytes(problem.dtype_k));
  move(result.v, patch.batch_begin, small.kv_begin, size_bytes(problem.dtype_v));
  // The problem's key kv_begin is key 0 now; the first query, whose position counts from the last
  // key, must keep its row of rope's tables.
  result.rope_offset += small.kv_begin;
  const std::int64_t position = patch.row_begin + problem.seqlen_kv - problem.seqlen_q;
  result.rope_query_shift += position - small.kv_begin -
                             (small.problem.seqlen_kv - small.problem.seqlen_q);
  result.o = {};
  result.lse = nullptr;
  result.lse_stride_batch = result.lse_stride_head = 0;
  return result;
}

std::vector<Patch> patches(const Problem& problem, const DeviceFacts& device, unsigned seed) {
  if (problem.batch == 0 || problem.seqlen_q == 0) return {};
  const double flops_most = kFlopsPerSm * std::max(device.num_sms, 1);
  const Patch whole{0, problem.batch, 0, problem.seqlen_q};
  if (elements(problem) <= kElementsMost && flops(problem) <= flops_most) return {whole};

  // Where rows go wrong: ends, and edges of tiles of any usual size.
  std::mt19937_64 random(seed);
  const std::int64_t last_begin = std::max<std::int64_t>(0, problem.seqlen_q - kPatchRows);
  std::vector<std::int64_t> begins = {0, last_begin};
  for (std::int64_t tile : {64, 80, 96, 112, 176}) {
    const std::int64_t edges = problem.seqlen_q / tile;
    if (edges == 0) continue;
    const auto edge = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(edges)) + 1;
    begins.push_back(std::min(edge * tile - kPatchRows / 2, last_begin));
  }
  while (begins.size() < kPatchesMost) {
    begins.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(last_begin + 1)));
  }

  std::vector<Patch> result;
  double elements_left = kElementsMost, flops_left = flops_most;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    std::int64_t batch = static_cast<std::int64_t>(random() %
                                                   static_cast<std::uint64_t>(problem.batch));
    if (i == 0) batch = 0;
    if (i == 1) batch = problem.batch - 1;
    const Patch patch{batch, batch + 1, begins[i],
                      std::min(begins[i] + kPatchRows, problem.seqlen_q)};
    if (std::find(result.begin(), result.end(), patch) != result.end()) continue;
    const Problem small = patch_problem(problem, patch).problem;
    elements_left -= elements(small);
    flops_left -= flops(small);
    if (result.size() >= kPatchesLeast && (elements_left < 0 || flops_left < 0)) break;
    result.push_back(patch);
  }
  return result;
}

}  // namespace attnforge
