// merge_states_gpu_test.cpp - merge_states() on a real GPU against the same in fp64 on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "attnforge/merge_states.h"
#include "reference/half.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/memory.h"

namespace attnforge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// o [batch, seqlen, num_heads, head_dim] and lse [batch, num_heads, seqlen] in host memory, with
/// rows `gap` elements apart.
struct HostState {
  std::vector<std::byte> o;
  std::vector<float> lse;
  Tensor strides;
  Rows lse_strides;
};

HostState host_state(const StateSizes& s, DType dtype, int gap) {
  const std::int64_t row = s.num_heads * s.head_dim + gap;
  HostState state;
  state.strides = {nullptr, s.seqlen * row, row, s.head_dim};
  state.lse_strides = {nullptr, s.num_heads * s.seqlen, s.seqlen};
  state.o.assign(static_cast<std::size_t>(s.batch * s.seqlen * row * bytes_of(dtype, 1)),
                 std::byte{0xff});  // NaN
  state.lse.assign(static_cast<std::size_t>(s.batch * s.num_heads * s.seqlen),
                   std::numeric_limits<float>::quiet_NaN());
  return state;
}

struct OnGpu {
  Buffer o, lse;
  explicit OnGpu(const HostState& host)
      : o(Buffer::of(std::span(host.o))), lse(Buffer::of(std::span(host.lse))) {}
  AttentionState state(const HostState& host) const {
    AttentionState result{host.strides, host.lse_strides};
    result.o.data = o.data();
    result.lse.data = static_cast<float*>(lse.data());
    return result;
  }
};

struct MergeCase {
  StateSizes sizes;
  int parts;
  int gap = 0;
  bool in_place = false;
};

class MergeStatesGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    primary_.emplace(0);
    context_.emplace(*primary_);
    device_.emplace(DeviceOptions{.ordinal = 0, .cache_path = ":memory:"});
  }
  void expect_right(const MergeCase& c);

  std::optional<PrimaryContext> primary_;
  std::optional<ScopedContext> context_;
  std::optional<Device> device_;
};

void MergeStatesGpu::expect_right(const MergeCase& c) {
  const StateSizes& s = c.sizes;
  std::mt19937 random(static_cast<unsigned>(c.parts * 1000 + s.head_dim));
  std::normal_distribution<float> normal;
  std::vector<HostState> hosts;
  for (int i = 0; i < c.parts; ++i) {
    HostState& host = hosts.emplace_back(host_state(s, s.dtype, c.gap));
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.num_heads; ++h)
        for (std::int64_t q = 0; q < s.seqlen; ++q) {
          const std::int64_t row = (b * s.num_heads + h) * s.seqlen + q;
          // A third of the parts of a row have seen no key, their o is NaN; the first row has none.
          const bool empty = row == 0 || random() % 3 == 0;
          host.lse[static_cast<std::size_t>(row)] = empty ? -static_cast<float>(kInfinity)
                                                          : 20 * normal(random);
          for (int d = 0; d < s.head_dim && !empty; ++d)
            store_element(s.dtype, host.o.data(),
                          b * host.strides.stride_batch + q * host.strides.stride_row +
                              h * host.strides.stride_head + d,
                          normal(random));
        }
  }
  std::vector<OnGpu> gpu;
  std::vector<AttentionState> parts;
  for (const HostState& host : hosts) parts.push_back(gpu.emplace_back(host).state(host));
  HostState merged = host_state(s, s.dtype_o, c.gap);
  const OnGpu fresh(merged);
  const AttentionState result = c.in_place ? parts.front() : fresh.state(merged);
  merge_states(s, parts, result, *device_);
  check(driver().cuCtxSynchronize(), "wait for the merge");
  const OnGpu& out = c.in_place ? gpu.front() : fresh;
  out.o.copy_to_host(merged.o.data(), merged.o.size());
  out.lse.copy_to_host(merged.lse.data(), merged.lse.size() * sizeof(float));

  const double allowed = 4 * unit_roundoff(s.dtype_o) + 1e-6;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.num_heads; ++h)
      for (std::int64_t q = 0; q < s.seqlen; ++q) {
        const auto row = static_cast<std::size_t>((b * s.num_heads + h) * s.seqlen + q);
        double top = -kInfinity, total = 0;
        for (const HostState& host : hosts) top = std::max(top, double(host.lse[row]));
        for (const HostState& host : hosts)
          if (host.lse[row] > -kInfinity) total += std::exp(host.lse[row] - top);
        const double lse = total == 0 ? -kInfinity : top + std::log(total);
        if (total == 0)
          EXPECT_EQ(merged.lse[row], -kInfinity) << "row " << row;
        else
          EXPECT_NEAR(merged.lse[row], lse, 1e-5 * (1 + std::abs(lse))) << "row " << row;
        for (int d = 0; d < s.head_dim; ++d) {
          const std::int64_t at = b * merged.strides.stride_batch + q * merged.strides.stride_row +
                                  h * merged.strides.stride_head + d;
          double expected = 0;
          for (const HostState& host : hosts)
            if (host.lse[row] > -kInfinity)
              expected += std::exp(host.lse[row] - lse) * load_element(s.dtype, host.o.data(), at);
          const double got = load_element(s.dtype_o, merged.o.data(), at);
          ASSERT_NEAR(got, expected, allowed * (1 + std::abs(expected)))
              << "row " << row << ", column " << d;
        }
      }
}

TEST_F(MergeStatesGpu, IsTheSoftmaxOverTheKeysOfAllParts) {
  constexpr auto kFp32 = DType::kFp32, kFp16 = DType::kFp16, kBf16 = DType::kBf16;
  for (const MergeCase& c : std::vector<MergeCase>{
           {{kFp32, kBf16, 2, 5, 4, 128}, 2},
           {{kFp32, kFp32, 1, 7, 3, 64}, 3},
           {{kBf16, kBf16, 2, 3, 2, 72}, 5},
           {{kFp16, kFp16, 3, 1, 8, 512}, 9},
           {{kFp16, kFp32, 1, 33, 2, 8}, 17},
           {{kFp32, kFp16, 1, 2, 5, 200}, 32},
           {{kFp32, kBf16, 1, 4, 4, 128}, 1},
           {{kBf16, kFp16, 2, 5, 3, 64}, 4, 1},  // rows on odd multiples of 2 bytes
           {{kFp32, kFp32, 2, 5, 3, 40}, 2, 3},  // and of 4
           {{kBf16, kBf16, 2, 9, 4, 128}, 2, 0, true},
           {{kFp32, kFp32, 1, 9, 4, 256}, 20, 0, true},
       }) {
    SCOPED_TRACE(fmt::format("{} parts of {} into {}, head_dim {}", c.parts,
                             to_string(c.sizes.dtype), to_string(c.sizes.dtype_o),
                             c.sizes.head_dim));
    expect_right(c);
  }
}

}  // namespace
}  // namespace attnforge
