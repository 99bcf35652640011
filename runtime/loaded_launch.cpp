#include "runtime/loaded_launch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "attnforge/error.h"
#include "generator/overrides.h"
#include "runtime/bind_arguments.h"

namespace attnforge {
namespace {

/// Whether all but grids and numbers is the same.
bool alike(const LaunchStep& a, const LaunchStep& b) {
  return a.kernel == b.kernel && a.block == b.block && a.smem_bytes == b.smem_bytes &&
         a.overlaps_previous == b.overlaps_previous && a.params.size() == b.params.size() &&
         a.args == b.args;
}

using Word = LoadedLaunch::Word;
constexpr std::size_t kWordBytes = sizeof(Word::value);
constexpr std::size_t kUsualWords = 8;  // that sizes decide of a launch, at most

constexpr std::size_t kLineBytes = 32;

/// Adds the words of `params` that `others` has not. Both are as large, and nearly all of their
/// lines are the same.
void add_words_that_differ(std::span<const std::byte> params, std::span<const std::byte> others,
                           std::vector<Word>& to) {
  for (std::size_t offset = 0; offset < params.size(); offset += kWordBytes) {
    while (offset + kLineBytes <= params.size() &&
           std::memcmp(params.data() + offset, others.data() + offset, kLineBytes) == 0)
      offset += kLineBytes;
    if (offset == params.size()) return;
    std::uint32_t value = 0, other = 0;
    std::memcpy(&value, params.data() + offset, kWordBytes);
    std::memcpy(&other, others.data() + offset, kWordBytes);
    if (value != other) to.push_back({static_cast<std::uint32_t>(offset), value});
  }
}

const std::vector<ScratchTensor> kNoScratch;

std::unique_ptr<const std::vector<ScratchTensor>> scratch_of(const LaunchStep& step) {
  if (step.from_workspace.empty()) return nullptr;
  return std::make_unique<const std::vector<ScratchTensor>>(step.from_workspace);
}

}  // namespace

LoadedKernels::LoadedKernels(std::span<const std::byte> image, const Source& source,
                             const Launch& launch) {
  for (const LaunchStep& step : launch.steps) {
    if (std::ranges::find(kernels_, step.kernel, &Named::first) != kernels_.end()) continue;
    int smem_bytes = 0;
    for (const LaunchStep& other : launch.steps) {
      if (other.kernel == step.kernel) smem_bytes = std::max(smem_bytes, other.smem_bytes);
    }
    kernels_.emplace_back(step.kernel,
                          Kernel::load(image, symbol_of(step.kernel, source), smem_bytes));
  }
  for (const LaunchStep& step : launch.steps) steps_.push_back({&at(step.kernel), step});
}

const Kernel& LoadedKernels::at(const std::string& name) const {
  const auto found = std::ranges::find(kernels_, name, &Named::first);
  ATTNFORGE_ASSERT(found != kernels_.end(),
                   "a launch uses only kernels that were loaded for its bucket");
  return found->second;
}

LoadedLaunch::LoadedLaunch(const Launch& launch, const LoadedKernels& kernels)
    : workspace_bytes_(launch.workspace_bytes), counted_steps_(attnforge::counted_steps(launch)) {
  steps_.reserve(launch.steps.size());
  words_.reserve(kUsualWords);
  for (std::size_t i = 0; i < launch.steps.size(); ++i) {
    const LaunchStep& step = launch.steps[i];
    ATTNFORGE_ASSERT(step.params.size() <= kMaxParamsBytes && step.params.size() % kWordBytes == 0,
                     "a kernel's argument is whole words and fits into the stack buffer of a run");
    ATTNFORGE_ASSERT(!step.overlaps_previous || !steps_.empty(),
                     "the first step overlaps with nothing: the run before may still read what it "
                     "writes");
    if (i < kernels.steps().size() && alike(step, kernels.steps()[i].launch)) {
      const LoadedStep& loaded = kernels.steps()[i];
      add_words_that_differ(step.params, loaded.launch.params, words_);
      steps_.push_back(
          {&loaded, step.grid, static_cast<std::uint32_t>(words_.size()), scratch_of(step), {}});
    } else {
      auto own = std::make_unique<const LoadedStep>(LoadedStep{&kernels.at(step.kernel), step});
      steps_.push_back({own.get(), step.grid, static_cast<std::uint32_t>(words_.size()),
                        scratch_of(step), std::move(own)});
    }
  }
  if (words_.size() > kUsualWords) words_.shrink_to_fit();
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of scratch_of()'s

void LoadedLaunch::run(const Tensors& tensors, const RunMemory& memory, CUstream stream) const {
  alignas(64) std::array<std::byte, kMaxParamsBytes> buffer;
  std::size_t word = 0;
  for (const Step& step : steps_) {
    const auto& [kernel, launch] = *step.loaded;
    const std::span<std::byte> params(buffer.data(), launch.params.size());
    std::copy(launch.params.begin(), launch.params.end(), params.begin());
    for (; word < step.words_end; ++word)
      std::memcpy(params.data() + words_[word].offset, &words_[word].value, kWordBytes);
    bind_arguments(launch.args, step.from_workspace ? *step.from_workspace : kNoScratch, tensors,
                   memory, params);
    kernel->launch(launch, step.grid, params, stream);
  }
}

}  // namespace attnforge
