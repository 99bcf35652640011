// plan.h - a plan: the kernel chosen for a problem, loaded and ready to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "attnforge/provenance.h"

namespace attnforge {

/// A tensor in device memory, borrowed. Strides are in elements; the last dimension is contiguous.
struct Tensor {
  void* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_row = 0;  // between sequence positions
  std::int64_t stride_head = 0;
};

/// lse in device memory, borrowed. Strides are in elements; that between rows is 1.
struct Rows {
  float* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_head = 0;
};

/// Scales of k or of v, fp32 in device memory, borrowed: that of group g of a row is element batch
/// * stride_batch + row * stride_row + head * stride_head + g. With KvScale::kHead and kTensor row
/// and g are 0, and batch is the sequence, also of packed ones and of pages. Else batch and row
/// are those of the row in k or v: with pages the page and the row in it. With problem.kv_zero it
/// is element ... + 2 * g, and its zero point the next one. Strides in elements. Only an append
/// writes them, those of rows.
struct ScaleTensor {
  float* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_row = 0;
  std::int64_t stride_head = 0;
};

/// The tables of a rope: [rows, rope_dim / 2] each, contiguous, aligned to 16 bytes. Key j takes
/// row offset + j, query i row offset + i + seqlen_kv - seqlen_q; all of them must be there.
struct RopeTables {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t rows = 0;
  std::int64_t offset = 0;
};

/// How long each sequence is, in device memory; no run reads it on the host. For Lengths::kPacked
/// [batch + 1] each, where every sequence begins among the rows of q and o, or of k and v,
/// ascending from 0, and where the last one ends. For Lengths::kUsed [batch] each, how many rows of
/// every sequence count; null: all. `kv` of pages is as for kUsed. Never more than the problem's
/// seqlen_q and seqlen_kv, nor than the tensors have rows.
struct LengthArrays {
  const int* q = nullptr;
  const int* kv = nullptr;
  // Packed: rows of q and o, and of k and v, in this run; 0: as many as the problem says, which are
  // the most that there may be.
  std::int64_t tokens_q = 0;
  std::int64_t tokens_kv = 0;
};

/// Which pages of k and v hold the keys of each sequence, in device memory; no run reads it on the
/// host. The tensors k and v of a run are pools of pages: their stride_batch is from page to page,
/// stride_row from row to row in a page.
struct PageTable {
  // [batch, pages_of_sequence(problem)]: the number of the page, below num_pages, that holds keys
  // column * page_size and on; -1: none. Only a column after a sequence's length may have none.
  const int* table = nullptr;
  std::int64_t stride_batch = 0;  // entries from the row of a sequence to the next one's
  std::int64_t num_pages = 0;     // of k, and of v: 1 to 2^31 - 1
};

/// The blocks of a block mask that are present, in device memory; no run reads it on the host. One
/// list for all rows of blocks, which are ordered [mask_batch, mask_heads, rows of a sequence of
/// seqlen_q]: the masks of problem.mask_heads heads are those of equal groups of query heads.
/// attnforge/block_mask.h makes and checks such lists.
struct BlockMaskRef {
  const int*
      row_begin = nullptr;  // [rows + 1]: entries row_begin[r] to row_begin[r + 1] are row r's
  // An entry is its block column * 2, + 1 where the block is partial. Ascending in a row.
  const int* columns = nullptr;
  // With problem.mask_bits, else null: blocks of mask_block_q rows of ceil(mask_block_kv / 32)
  // words, in which bit k % 32 of word k / 32 says whether key k of the block is seen. Aligned to
  // 16 bytes.
  const std::uint32_t* bits = nullptr;
  const int* bit_blocks = nullptr;  // and of an entry, which block of `bits` it has; -1: none
};

/// Gradients of a backward problem, in device memory. dout, the gradient of o, is read; dq, dk and
/// dv, which have the shapes of q, k and v, are written, or with problem.accumulate added to. With
/// problem.dlse the gradient of lse is read too, and with problem.sinks the gradients of the sinks,
/// fp32 [num_heads_q], are written.
struct Gradients {
  Tensor dout, dq, dk, dv;
  Rows dlse{};
  float* dsinks = nullptr;
};

/// What queries made of some of their keys: o, softmax(s) V over these keys, and lse, the natural
/// logarithm of the sum of exp(s). In device memory, borrowed, of any strides.
struct AttentionState {
  Tensor o{};
  Rows lse{};  // -inf: the row has seen no key, and its o is not read
};

/// What an append writes to: caches of k and v, and rows that sequences have afterwards, in device
/// memory.
struct AppendedCache {
  // [batch, seqlen_kv, num_heads_kv, head_dim], or with problem.page_size pools of pages, whose
  // stride_batch is from page to page.
  Tensor k{}, v{};
  // problem.lengths_after: [batch]. May be LengthArrays::kv itself, else they do not overlap.
  int* lengths_after = nullptr;
};

/// Everything that a run reads and writes. Backward reads o and lse. All memory is the caller's and
/// must stay alive until the stream has passed. A part that the problem does not have is ignored.
struct Tensors {
  Tensor q, k, v, o;
  Rows lse{};                 // problem.lse, or backward
  RopeTables rope{};          // problem.rope
  LengthArrays lengths{};     // problem.lengths
  BlockMaskRef block_mask{};  // problem.mask_block_q
  PageTable pages{};          // problem.page_size
  Gradients gradients{};      // backward
  // Merge: problem.parts of them, in host memory and read by run(). What they share with o and lse,
  // which go out, is the same in both.
  const AttentionState* parts = nullptr;
  // Append: k and v (and q) have the new rows, packed or not, `lengths.q` says where they begin if
  // they are, `lengths.kv` how many rows each sequence has before (null: none); o, where rotated
  // queries go, may be q.
  AppendedCache cache{};
  // problem.kv_scale, of those of k and v that are of a format of caches. Append: those of the
  // caches, which a run writes where rows have scales, and else reads. Of q where that is e4m3:
  // with kHead [num_heads_kv], or of each sequence; with kToken [batch, seqlen_q, num_heads_q] or
  // packed, as q has rows, and v_scale is as with kHead.
  ScaleTensor k_scale{}, v_scale{}, q_scale{};
  // problem.args: 8 bytes for each, in their order, in host memory and read by run(): the address
  // of an array in device memory, or a number's 4 bytes (float, int) and 4 more of any value. After
  // them, 8 bytes for each name in problem.dargs: the address of an fp32 array, of as many elements
  // as the array of that name, whatever its type, to which the run adds its gradient. The caller
  // clears it where nothing is to be added to: its size is not known here. With dargs="whole X" it
  // is an array as X is, which the run writes.
  const std::uint64_t* code_arguments = nullptr;
  // problem.sinks: [num_heads_q] logits in device memory. -inf: none; not NaN nor +inf.
  const float* sinks = nullptr;
};

/// Strides of contiguous tensors in problem.layout, with null pointers. For kPackedQkv, k and v
/// start at q + num_heads_q * head_dim and q + (num_heads_q + num_heads_kv) * head_dim elements,
/// and dk and dv so at dq. Gradients lie as that which they are of. o is [batch, seqlen_q,
/// num_heads_q, head_dim_v] unless the layout is kBhsd. lse is [batch, num_heads_q, seqlen_q]. For
/// Lengths::kPacked as of one sequence of all tokens; with pages k and v as of sequences of
/// page_size keys, and pages.stride_batch that of a table without gaps. Scales lie as rows of k and
/// v would with as many elements; of KvScale::kHead they are [num_heads_kv].
ATTNFORGE_API Tensors contiguous_tensors(const Problem& problem);

/// How much work may be spent on the choice of a kernel.
enum class Policy {
  kEstimate,    // cached winner, else that of a problem like it, else the model's first candidate:
                // one compile at most, no measurement
  kFirstRun,    // cached winner of a search that ended, else tune within time_limit_s, by worker
                // processes; where those cannot be (attnforge doctor says it), as kEstimate
  kCachedOnly,  // cached winner with its cubin, else Error(kNotReady)
};

ATTNFORGE_API std::string_view to_string(Policy policy);

/// A step of a tuning run, for progress displays.
struct Progress {
  enum class Phase { kCompile, kVerify, kMeasure, kFinal } phase = Phase::kCompile;
  int done = 0;  // of this phase
  int total = 0;
  int failed = 0;
  double best_us = 0;     // 0: none yet
  double default_us = 0;  // of the untuned choice; 0: not measured yet
  double elapsed_s = 0;
  double remaining_s = 0;  // estimate, 0: unknown
  std::string best_config{};
};
using ProgressFunction = std::function<void(const Progress&)>;  // called on the thread that called
                                                                // tune or make_plan

struct PlanOptions {
  Policy policy = Policy::kFirstRun;
  double time_limit_s = 8.0;  // of kFirstRun: for the whole make_plan, waiting for others included
  bool allow_compile = true;  // false: Error(kNotReady) where a compile would be needed
  std::string family{};       // "": any; else only this one
  std::string config{};       // "": choose; else exactly this config's text
  ProgressFunction on_progress{};
  std::function<bool()> cancelled{};  // asked often while kFirstRun tunes; true ends that as the
                                      // time limit does: what was measured is kept and decides
  // Where the first run will be enqueued (a CUstream). While it is captured into a graph, nothing
  // is tuned and kFirstRun is as kEstimate.
  void* stream = nullptr;
};

class PlanState;  // plan/plan_state.h

/// Runs one problem. A small value: copies are cheap and run the same kernel. Thread-safe. Borrows
/// from its Device: once that is gone a Plan may only be assigned and destroyed. Its own memory
/// (about half a KiB a problem) is freed with the last copy, after the Device has met 4096 other
/// problems.
class ATTNFORGE_API Plan {
 public:
  /// Enqueues the problem on `stream` (a CUstream; nullptr: the default stream). Packs arguments
  /// and launches: no allocation, no synchronisation; may be captured into a CUDA graph. (Kernels
  /// that count their tiles have counters in memory of the Device, 32 bytes for each stream and for
  /// each captured launch. They are there when the plan is made; a run adds to them when more than
  /// a few thousand are in use. Of a graph with such a launch, only one executable may run at a
  /// time.) `workspace`: workspace_bytes() of device memory aligned to 256, of any content, that no
  /// other run uses meanwhile; ignored when 0, as it is for problems of fixed lengths without a
  /// rope whose queries fill the GPU. Throws Error(kInvalidArgument) for null pointers, misaligned
  /// pointers or strides, and for strides that TMA cannot take (negative, 2^40 bytes and more):
  /// those want a plan for a problem with alignment=8. Throws Error(kCuda) if a launch fails. Only
  /// with ATTNFORGE_CHECK_INPUTS=1 in the environment a run that is not captured waits for the
  /// stream, reads lengths and page tables, and throws Error(kInvalidArgument) for wrong ones.
  void run(const Tensors& tensors, void* workspace = nullptr, void* stream = nullptr) const;

  std::size_t workspace_bytes() const;
  const Problem& problem() const;
  std::string config() const;  // text form, e.g. "fwd_mma_sm80 block_m=128 ..."
  Provenance provenance() const;
  Layer layer() const;         // where the winner was found that the config comes from
  double measured_us() const;  // of the bucket's problem; 0 where its code was not measured for it

 private:
  friend Plan make_plan(const Problem&, Device&, const PlanOptions&);
  explicit Plan(std::shared_ptr<const PlanState> state) : state_(std::move(state)) {}
  std::shared_ptr<const PlanState> state_;
};

/// Makes a plan from memory, else from the database, else as options.policy says. Thread-safe; a
/// problem is compiled or tuned once. One of the processes that share a database tunes, the others
/// wait for it and take its winner. A process that waits in vain goes on with the best so far or an
/// estimate; its later calls look for the winner, at most once a second, and plans made before run
/// on as they are. Device() makes a GPU's context, before the time limit begins. Throws
/// Error(kInvalidProblem), Error(kUnsupported) with every family's reason, Error(kNotReady) with
/// the problem's text, Error(kCompile), Error(kCuda).
ATTNFORGE_API Plan make_plan(const Problem& problem, Device& device,
                             const PlanOptions& options = {});

/// Whether a problem can be served on a device, and by which family first; cheap: no compile, no
/// GPU work.
struct Support {
  bool supported = false;
  std::string family{};
  std::string reason{};  // when not supported: one line per family
};
ATTNFORGE_API Support supported(const Problem& problem, const DeviceFacts& device);

}  // namespace attnforge
