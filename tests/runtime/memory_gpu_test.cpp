// memory_gpu_test.cpp - owners on a GPU: copies, fills, moves, events, captures that fail,
// contexts.
#include "runtime/memory.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "attnforge/error.h"
#include "gpu_fixture.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

class MemoryGpu : public GpuTest {};

TEST_F(MemoryGpu, CopiesThereAndBackWithOffsets) {
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), -3);
  Buffer buffer = Buffer::of(std::span<const int>(values));
  EXPECT_EQ(buffer.size_bytes(), values.size() * sizeof(int));
  EXPECT_EQ(buffer.address() % 256, 0u);
  EXPECT_EQ(buffer.to_host<int>(), values);

  const int replaced[2] = {70, 71};
  buffer.copy_from_host(replaced, sizeof(replaced), 10 * sizeof(int));
  int read[4] = {};
  buffer.copy_to_host(read, sizeof(read), 9 * sizeof(int));
  EXPECT_THAT(read, ::testing::ElementsAre(values[9], 70, 71, values[12]));
}

TEST_F(MemoryGpu, CopiesPastTheEndAreRefused) {
  Buffer buffer(16);
  char bytes[32] = {};
  EXPECT_THROW(buffer.copy_from_host(bytes, 17), Error);
  EXPECT_THROW(buffer.copy_to_host(bytes, 1, 16), Error);
  EXPECT_THROW(buffer.copy_to_host(bytes, 8, 9), Error);
  EXPECT_THROW(buffer.copy_to_host(bytes, static_cast<std::size_t>(-1), 2), Error);
}

TEST_F(MemoryGpu, FillsBytesAndWords) {
  const Stream stream;
  Buffer buffer(40);
  buffer.fill8(0xab, stream.get());
  stream.synchronize();
  EXPECT_THAT(buffer.to_host<std::uint8_t>(), ::testing::Each(0xab));
  buffer.fill32(0x7fc00001u, stream.get());
  stream.synchronize();
  EXPECT_THAT(buffer.to_host<std::uint32_t>(), ::testing::Each(0x7fc00001u));
  Buffer odd(5);
  EXPECT_THROW(odd.fill32(0), Error);
}

TEST_F(MemoryGpu, EmptyBufferDoesNothing) {
  Buffer buffer(0);
  EXPECT_EQ(buffer.data(), nullptr);
  buffer.fill8(1);
  buffer.fill32(1);
  EXPECT_TRUE(buffer.to_host<float>().empty());
}

TEST_F(MemoryGpu, MovesKeepSizeAndContent) {
  const std::vector<int> values = {1, 2, 3};
  Buffer first = Buffer::of(std::span<const int>(values));
  Buffer second = std::move(first);
  EXPECT_EQ(first.size_bytes(), 0u);
  EXPECT_EQ(first.data(), nullptr);
  Buffer third(400);
  third = std::move(second);
  EXPECT_EQ(third.size_bytes(), 12u);
  EXPECT_EQ(third.to_host<int>(), values);
}

TEST_F(MemoryGpu, TooLargeAnAllocationNamesItsSize) {
  try {
    Buffer buffer(std::size_t{1} << 50);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCuda);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("allocate 1125899906842624 bytes"));
  }
}

TEST_F(MemoryGpu, FreedMemoryIsGivenBack) {
  std::size_t before = 0, after = 0, total = 0;
  { Buffer warm_up(64 << 20); }
  check(driver().cuMemGetInfo(&before, &total), "ask for free memory");
  for (int i = 0; i < 8; ++i) Buffer buffer(512 << 20);
  check(driver().cuMemGetInfo(&after, &total), "ask for free memory");
  // Other processes on the GPU may allocate meanwhile; eight leaked buffers would be 4 GiB.
  EXPECT_GT(after + (std::size_t{2} << 30), before);
}

TEST_F(MemoryGpu, EventsMeasureTimeInMicroseconds) {
  const Stream stream;
  Buffer buffer(256 << 20);
  Event start, stop;
  start.record(stream.get());
  for (int i = 0; i < 10; ++i) buffer.fill8(static_cast<std::uint8_t>(i), stream.get());
  stop.record(stream.get());
  stop.synchronize();
  EXPECT_TRUE(stop.done());
  // 2.5 GiB are written: no GPU does that in 50 us, and none that is supported takes 5 s.
  EXPECT_GT(elapsed_us(start, stop), 50.0);
  EXPECT_LT(elapsed_us(start, stop), 5e6);
}

TEST_F(MemoryGpu, FailedCaptureThrowsAndLeavesTheStreamUsable) {
  const Stream stream;
  EXPECT_THROW(Graph(stream, [](CUstream) { Buffer not_allowed(1 << 20); }), Error);
  EXPECT_THROW(
      Graph(stream, [](CUstream) { throw Error(ErrorCode::kInternal, "the caller's own"); }),
      Error);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  check(driver().cuStreamIsCapturing(stream.get(), &status), "ask whether a stream is captured");
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  Buffer buffer(64);
  buffer.fill8(9, stream.get());
  stream.synchronize();
  EXPECT_THAT(buffer.to_host<std::uint8_t>(), ::testing::Each(9));
}

TEST_F(MemoryGpu, GraphReplaysFills) {
  const Stream stream;
  Buffer buffer(64);
  const Graph graph(stream, [&](CUstream on) { buffer.fill8(5, on); });
  buffer.fill8(1, stream.get());
  graph.launch(stream.get());
  stream.synchronize();
  EXPECT_THAT(buffer.to_host<std::uint8_t>(), ::testing::Each(5));
}

TEST_F(MemoryGpu, OwnersAreFreedWithNoCurrentContext) {
  // Moved to a thread that has no context; the destructors bring their own. A leak would fail the
  // last assertion.
  std::size_t before = 0, after = 0, total = 0;
  check(driver().cuMemGetInfo(&before, &total), "ask for free memory");
  for (int i = 0; i < 4; ++i) {
    auto buffer = std::make_unique<Buffer>(std::size_t{1} << 30);
    std::thread([owned = std::move(buffer)]() mutable { owned.reset(); }).join();
  }
  check(driver().cuMemGetInfo(&after, &total), "ask for free memory");
  EXPECT_GT(after + (std::size_t{2} << 30), before);
}

TEST_F(MemoryGpu, WithoutAContextTheErrorSaysSo) {
  std::string message;
  std::thread([&] {
    try {
      Buffer buffer(16);
    } catch (const Error& error) {
      message = error.what();
    }
  }).join();
  EXPECT_THAT(message, ::testing::HasSubstr("no CUDA context is current"));
}

TEST_F(MemoryGpu, ScopedContextUsesTheCallersAndRestoresNone) {
  CUcontext inside = nullptr;
  check(driver().cuCtxGetCurrent(&inside), "ask for the context");
  EXPECT_EQ(inside, primary_->get());
  {
    const ScopedContext nested(*primary_);
    CUcontext current = nullptr;
    check(driver().cuCtxGetCurrent(&current), "ask for the context");
    EXPECT_EQ(current, inside);
  }
  std::thread([&] {
    CUcontext current = nullptr;
    {
      const ScopedContext scoped(*primary_);
      check(driver().cuCtxGetCurrent(&current), "ask for the context");
      EXPECT_EQ(current, inside);
    }
    check(driver().cuCtxGetCurrent(&current), "ask for the context");
    EXPECT_EQ(current, nullptr);
  }).join();
}

}  // namespace
}  // namespace attnforge
