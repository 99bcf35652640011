// plans.h - what is known of calls of ops: which plan runs one like an earlier one, and how its
// struct is filled.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attnforge_torch {

/// Rows of packed tensors, which keys do not say: calls of other numbers of them run by one recipe.
enum RowsOf : int32_t { kNoRows = -1, kQueries, kKeys };

/// A new tensor of a call. rows: those of which it has, in the place of its first size, or of lse's
/// second one.
struct Output {
  std::vector<int64_t> sizes, strides;
  int32_t dtype;
  RowsOf rows = kNoRows;
  bool zeros = false;  // before the run, which does not write all of it or adds to it
};

/// How a call runs; immutable once it is in the table. The plan is Python's, which keeps it until
/// forget().
struct Recipe {
  struct Place {
    int64_t source;  // a tensor: of a call's arguments in their order, then its outputs. Of
                     // pointers: the place of what is pointed to
    int64_t at;      // in bytes
    int64_t more;    // bytes that are added to an address
  };
  struct Rows {
    int64_t of, at, most;  // RowsOf; no more than `most` are written
  };
  struct Pair {
    int64_t output, other, below,
        above;  // they may share memory if below < address of output - address of other < above
  };

  void* plan = nullptr;  // or none, and the call is Python's, which knows it by a number
  int64_t number = 0;    // 0: it does not
  int64_t workspace_bytes = 0;
  std::string bytes;  // an attnforge_tensors and the structs it points to, without addresses
  std::vector<Place> pointers, addresses;
  std::vector<Rows> rows;
  int64_t context = 0, rest = 0, num_rests = 0;  // where attnforge_rest structs are, in bytes
  std::vector<Pair> pairs;
  std::vector<int64_t> zeros;  // the outputs that are zeros before the run
  std::vector<Output> outputs;
};

/// The most bytes of a Recipe, and tensors of a call.
constexpr size_t kMostBytes = 1024, kMostTensors = 24, kMostOutputs = 8;

/// All that a call is, but addresses: op, options, sizes, strides and so on. Of fixed size, as it
/// is made anew for each call.
class Key {
 public:
  void add(int64_t word) {
    if (size_ < words_.size())
      words_[size_++] = word;
    else
      whole_ = false;
  }
  void add(std::string_view text);
  bool whole() const { return whole_; }  // whether it was long enough
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(words_.data()), size_ * 8};
  }

 private:
  std::array<int64_t, 256> words_;
  size_t size_ = 0;
  bool whole_ = true;
};

/// Thread-safe.
class Plans {
 public:
  struct Known {
    std::shared_ptr<const Recipe> recipe;  // null: none
    uint64_t epoch = 0;                    // for run()
  };
  Known find(const Key& key) const;
  /// Calls `run`, which may not ask torch or Python for anything, as forget() waits for it; false
  /// where a forget() came after the find() of that epoch: the plan is gone.
  template <typename Run>
  bool run(uint64_t epoch, Run run) const {
    { const std::lock_guard forgetting_comes_first(gate_); }
    const std::shared_lock lock(mutex_);
    return epoch == epoch_ && run();
  }
  uint64_t epoch() const {
    const std::shared_lock lock(mutex_);
    return epoch_;
  }
  /// epoch: of when the recipe's plan was known to be there. After a forget() it may be gone, and
  /// nothing is kept; nor is it while others run theirs.
  void put(const Key& key, Recipe recipe, uint64_t epoch);
  void forget();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>{}(bytes); }
  };
  mutable std::mutex gate_;  // held by a forget() that waits
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Recipe>, Hash, std::equal_to<>> recipes_;
  uint64_t epoch_ = 0;
};

/// The least of 1, 16, 64, 128, ..., 1024, and then four steps to each power of two, that is not
/// below: rounded() of lengths.py, by which packed calls share a plan.
int64_t rounded(int64_t rows);

/// The words that Python says a recipe in: workspace_bytes, context, rest and num_rests, then each
/// with its count before: pointers, addresses, rows, pairs, zeros. False where they are none.
bool parse(std::span<const int64_t> words, Recipe& recipe);

}  // namespace attnforge_torch
