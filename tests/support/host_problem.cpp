// host_problem.cpp - the tensors of a host problem as a run takes them, and what a run wrote where
// it should not have.
#include "tests/support/host_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/host_parts.h"

namespace attnforge::test {
namespace {

/// First byte of `now` that differs from `before` outside the elements of the tensor.
std::string first_trespass(const char* name, std::vector<std::byte> now,
                           const std::vector<std::byte>& before, const HostShape& shape,
                           const PlacedTensor& placed) {
  const int bytes = bytes_of(shape.dtype, 1);
  for_each_element(shape, placed.strides, [&](std::int64_t at, std::int64_t, int) {
    const auto offset = static_cast<std::size_t>(placed.offset_bytes + at * bytes);
    std::memcpy(&now[offset], &before[offset], static_cast<std::size_t>(bytes));
  });
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == before[i]) continue;
    const std::int64_t offset = static_cast<std::int64_t>(i) - placed.offset_bytes;
    return fmt::format("{} was written outside its elements, {} bytes from its first one", name,
                       offset);
  }
  return "";
}

}  // namespace

Tensors HostProblem::tensors() {
  std::vector<void*> bases;
  for (auto& storage : storages) bases.push_back(storage.data());
  return tensors(bases);
}

Tensors HostProblem::tensors(std::span<void* const> bases) const {
  const auto at = [&](const PlacedTensor& placed) {
    Tensor tensor = placed.strides;
    tensor.data = static_cast<std::byte*>(bases[static_cast<std::size_t>(placed.storage)]) +
                  placed.offset_bytes;
    return tensor;
  };
  const Tensor of_lse = at(lse);
  const auto table = [&](const PlacedTensor& placed) {
    return problem.rope == Rope::kNone ? nullptr : static_cast<const float*>(at(placed).data);
  };
  const auto lengths = [&](const PlacedTensor& placed) {
    return problem.lengths == Lengths::kFixed ? nullptr : static_cast<const int*>(at(placed).data);
  };
  const auto list = [&](const PlacedTensor& placed, bool there) {
    return there ? static_cast<const int*>(at(placed).data) : nullptr;
  };
  const auto scales = [&](const PlacedTensor& placed, DType dtype) -> ScaleTensor {
    if (!has_scales(problem, dtype)) return {};
    const Tensor tensor = at(placed);
    auto* const data = static_cast<float*>(tensor.data);
    if (problem.kv_scale == KvScale::kTensor) return {data};
    return {data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
  };
  const bool masked = has_block_mask(problem), backward = is_backward(problem);
  const Tensor of_dlse = at(dlse);
  return {.q = at(q),
          .k = at(k),
          .v = at(v),
          .o = at(o),
          .lse = {.data = problem.lse || backward ? static_cast<float*>(of_lse.data) : nullptr,
                  .stride_batch = of_lse.stride_batch,
                  .stride_head = of_lse.stride_head},
          .rope = {.cos = table(rope_cos),
                   .sin = table(rope_sin),
                   .rows = rope_rows(problem),
                   .offset = rope_offset(problem)},
          .lengths = {.q = lengths(lengths_q), .kv = lengths(lengths_kv)},
          .block_mask = {.row_begin = list(mask_row_begin, masked),
                         .columns = list(mask_columns, masked),
                         .bits = reinterpret_cast<const std::uint32_t*>(
                             list(mask_bits, problem.mask_bits)),
                         .bit_blocks = list(mask_bit_blocks, problem.mask_bits)},
          .pages = {.table = list(page_table, has_pages(problem)),
                    .stride_batch = table_stride,
                    .num_pages = num_pages},
          .gradients = {.dout = backward ? at(dout) : Tensor(),
                        .dq = backward ? at(dq) : Tensor(),
                        .dk = backward ? at(dk) : Tensor(),
                        .dv = backward ? at(dv) : Tensor(),
                        .dlse = {.data = problem.dlse ? static_cast<float*>(of_dlse.data) : nullptr,
                                 .stride_batch = of_dlse.stride_batch,
                                 .stride_head = of_dlse.stride_head},
                        .dsinks = backward && problem.sinks ? static_cast<float*>(at(dsinks).data)
                                                            : nullptr},
          .k_scale = scales(k_scale, problem.dtype_k),
          .v_scale = scales(v_scale, problem.dtype_v),
          .q_scale = scales(q_scale, problem.dtype_q),
          .sinks = problem.sinks ? static_cast<const float*>(at(sinks).data) : nullptr};
}

std::string HostProblem::trespass() const {
  if (is_backward(problem)) {
    const HostShape shapes[] = {shape_of_gradient(shape_of_q(*this), problem),
                                shape_of_gradient(shape_of_k(*this), problem),
                                shape_of_gradient(shape_of_v(*this), problem),
                                shape_of_sinks(problem)};
    const PlacedTensor* placed[] = {&dq, &dk, &dv, &dsinks};
    constexpr const char* kNames[] = {"dq", "dk", "dv", "dsinks"};
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      std::string found = first_trespass(kNames[i], storages[kStorageDq + i], gradients_before[i],
                                         shapes[i], *placed[i]);
      if (!found.empty()) return found;
    }
    return "";
  }
  const HostShape shape = shape_of_o(*this);
  std::string found = first_trespass("o", storages[kStorageO], poisoned_o, shape, o);
  if (!found.empty()) return found;
  HostShape lse_shape = shape_of_rows(*this);
  if (!problem.lse) lse_shape.sequences.clear();
  return first_trespass("lse", storages[kStorageLse], poisoned_lse, lse_shape, lse);
}

void HostProblem::poison_outputs() {
  if (is_backward(problem)) {
    std::ranges::copy(gradients_before, storages.begin() + kStorageDq);
    return;
  }
  storages[kStorageO] = poisoned_o;
  storages[kStorageLse] = poisoned_lse;
}

HostProblem make_host_problem(const Problem& problem, unsigned seed, Inputs inputs,
                              const Gaps& gaps, Blocks blocks) {
  HostProblem host;
  host.problem = problem;
  host.storages.resize(kStorages);
  place_lengths(host, seed);
  place_pages(host, seed);
  place_tensors(host, gaps);
  place_rope_tables(host);
  place_block_mask(host, blocks, seed);
  place_sinks(host, seed);
  host.poisoned_o = host.storages[kStorageO];
  host.poisoned_lse = host.storages[kStorageLse];
  fill_inputs(host, seed, inputs);
  place_gradients(host, gaps);
  fill_gradients(host, seed);
  if (is_backward(problem) && problem.score.empty() && problem.mask.empty())
    set_forward_outputs(host);
  return host;
}

}  // namespace attnforge::test
