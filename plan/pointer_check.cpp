// pointer_check.cpp - the explanation of what is wrong with the tensors of a run.
#include "plan/pointer_check.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "attnforge/printable.h"
#include "generator/stored_rows.h"
#include "generator/user_code.h"
#include "reference/rope.h"

namespace attnforge {
namespace {

struct Dimension {
  std::string_view name;
  std::int64_t stride;
  std::int64_t size;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

/// Of `batch` tensors one after another, sequences or pages, with so many rows.
void check_tensor(std::string_view name, const Tensor& tensor, DType dtype, std::int64_t num_heads,
                  std::int64_t batch, std::int64_t seqlen, const Problem& problem) {
  const int alignment = problem.alignment_bytes;
  const StoredRows stored = stored_rows(problem);
  if (problem.batch == 0 || seqlen == 0) return;  // nothing of it is read or written
  if (tensor.data == nullptr)
    refuse(fmt::format("tensor {} is null; it needs device memory", name));
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<unsigned>(alignment) != 0) {
    refuse(
        fmt::format("tensor {} starts at {}, which is not a multiple of {} bytes; align it, or "
                    "make the plan for a "
                    "problem with a smaller alignment",
                    name, fmt::ptr(tensor.data), alignment));
  }
  const Dimension dimensions[] = {
      {"stride_batch", tensor.stride_batch, batch},
      {"stride_row", tensor.stride_row, stored.of_run ? problem.batch * seqlen : seqlen},
      {"stride_head", tensor.stride_head, num_heads}};
  for (const Dimension& dimension : dimensions) {
    if (dimension.size == 1) continue;
    // Low bits only: they are right whatever overflows.
    const std::uint64_t stride_bytes = static_cast<std::uint64_t>(dimension.stride) *
                                       static_cast<std::uint64_t>(size_bytes(dtype));
    if (stride_bytes % static_cast<std::uint64_t>(alignment) != 0) {
      refuse(
          fmt::format("tensor {} has {}={} elements of {} bytes, which is not a multiple of {} "
                      "bytes; copy it to aligned "
                      "rows, or make the plan for a problem with a smaller alignment",
                      name, dimension.name, dimension.stride, size_bytes(dtype), alignment));
    }
  }
}

/// Arrays of a run whose sequences are not all of one length.
void check_length_arrays(const Problem& problem, const LengthArrays& lengths) {
  const Tokens most = total_tokens(problem);
  const struct {
    std::string_view name;
    const int* array;
    std::int64_t tokens, most;
  } sides[] = {{"q", lengths.q, lengths.tokens_q, most.q},
               {"kv", lengths.kv, lengths.tokens_kv, most.kv}};
  for (const auto& side : sides) {
    const bool packed = side.name == "q" ? problem.lengths == Lengths::kPacked
                                         : has_packed_keys(problem);
    if (packed && side.array == nullptr) {
      refuse(
          fmt::format("lengths.{} is null, but the problem says lengths=packed; give it the {} "
                      "beginnings and ends of the sequences, as 32-bit integers in device memory",
                      side.name, problem.batch + 1));
    }
    if (reinterpret_cast<std::uintptr_t>(side.array) % alignof(int) != 0) {
      refuse(fmt::format("lengths.{} starts at {}, which is not a multiple of 4 bytes", side.name,
                         fmt::ptr(side.array)));
    }
    if (side.tokens < 0 || side.tokens > side.most) {
      refuse(
          fmt::format("lengths.tokens_{}={} must be from 0 to {}, the rows that this plan is for; "
                      "make one for a problem with more tokens",
                      side.name, side.tokens, side.most));
    }
  }
}

/// The table of a run with pages.
void check_page_table(const Problem& problem, const PageTable& pages, std::int64_t most) {
  if (problem.batch == 0 || problem.seqlen_kv == 0) return;  // nothing of it is read
  if (pages.table == nullptr) {
    refuse(
        fmt::format("pages.table is null, but the problem says page_size={}; give it the pages of "
                    "{} sequences, {} each, as 32-bit integers in device memory",
                    problem.page_size, problem.batch, pages_of_sequence(problem)));
  }
  if (reinterpret_cast<std::uintptr_t>(pages.table) % alignof(int) != 0) {
    refuse(fmt::format("pages.table starts at {}, which is not a multiple of 4 bytes",
                       fmt::ptr(pages.table)));
  }
  if (pages.num_pages < 1 || pages.num_pages > most) {
    refuse(fmt::format("pages.num_pages={} must be from 1 to {}: the pages that k, and v, have",
                       pages.num_pages, most));
  }
}

/// Lists of a run with a block mask.
void check_block_mask(const Problem& problem, const BlockMaskRef& mask,
                      std::uintptr_t bits_alignment) {
  const struct {
    std::string_view name;
    const void* list;
    std::uintptr_t alignment;
    bool needed;
  } lists[] = {{"row_begin", mask.row_begin, alignof(int), true},
               {"columns", mask.columns, alignof(int), true},
               {"bits", mask.bits, bits_alignment, problem.mask_bits},
               {"bit_blocks", mask.bit_blocks, alignof(int), problem.mask_bits}};
  for (const auto& [name, list, alignment, needed] : lists) {
    if (!needed) continue;
    if (list == nullptr) {
      refuse(
          fmt::format("block_mask.{} is null, but the problem says blocks={}:{}{}; give it device "
                      "memory (attnforge/block_mask.h makes the lists)",
                      name, problem.mask_block_q, problem.mask_block_kv,
                      problem.mask_bits ? " mask_bits" : ""));
    }
    if (reinterpret_cast<std::uintptr_t>(list) % alignment != 0) {
      refuse(fmt::format("block_mask.{} starts at {}, which is not a multiple of {} bytes", name,
                         fmt::ptr(list), alignment));
    }
  }
}

void check_rows(std::string_view name, const Rows& rows, const Problem& problem) {
  if (problem.batch == 0 || problem.seqlen_q == 0) return;
  if (rows.data == nullptr) {
    refuse(fmt::format("{} is null, but a bwd{} reads it; give it device memory", name,
                       name == "lse" ? "" : " with the word dlse"));
  }
  if (reinterpret_cast<std::uintptr_t>(rows.data) % alignof(float) != 0) {
    refuse(fmt::format("{} starts at {}, which is not a multiple of 4 bytes", name,
                       fmt::ptr(rows.data)));
  }
}

/// A number for each query head, of a problem with sinks.
void check_of_heads(std::string_view name, const float* data, std::string_view what,
                    const Problem& problem) {
  if (data == nullptr) {
    refuse(
        fmt::format("{} is null, but the problem says sinks; give it {} of {} query heads, fp32 in "
                    "device memory",
                    name, what, problem.num_heads_q));
  }
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(float) != 0) {
    refuse(
        fmt::format("{} starts at {}, which is not a multiple of 4 bytes", name, fmt::ptr(data)));
  }
}

/// What backward takes beside q, k, v and o.
void check_gradients(const Problem& p, const Tensors& tensors, std::int64_t batch) {
  const Gradients& g = tensors.gradients;
  check_rows("lse", tensors.lse, p);
  if (p.dlse) check_rows("dlse", g.dlse, p);
  check_tensor("dout", g.dout, p.dtype_o, p.num_heads_q, batch, p.seqlen_q, p);
  check_tensor("dq", g.dq, gradient_dtype(p, p.dtype_q), p.num_heads_q, batch, p.seqlen_q, p);
  check_tensor("dk", g.dk, gradient_dtype(p, p.dtype_k), p.num_heads_kv, batch, p.seqlen_kv, p);
  check_tensor("dv", g.dv, gradient_dtype(p, p.dtype_v), p.num_heads_kv, batch, p.seqlen_kv, p);
}

// ---- Whether the parts are good ----

constexpr std::uintptr_t kTableAlignment = 16;
constexpr std::int64_t kMostPages = 2147483647;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Whether there are floats or integers.
bool words_good(const void* words) { return words != nullptr && address(words) % 4 == 0; }

bool gradients_good(const Problem& problem, const Gradients& g) {
  std::uintptr_t bits = 0;
  bool present = true;
  const auto add = [&](const Tensor& tensor, DType dtype) {
    bits |= address(tensor.data) |
            static_cast<std::uintptr_t>(tensor.stride_batch | tensor.stride_row |
                                        tensor.stride_head) *
                static_cast<std::uintptr_t>(size_bytes(dtype));
    present &= tensor.data != nullptr;
  };
  add(g.dout, problem.dtype_o);
  add(g.dq, gradient_dtype(problem, problem.dtype_q));
  add(g.dk, gradient_dtype(problem, problem.dtype_k));
  add(g.dv, gradient_dtype(problem, problem.dtype_v));
  const auto misaligned = static_cast<std::uintptr_t>(problem.alignment_bytes) - 1;
  return present && (bits & misaligned) == 0 && (!problem.dlse || words_good(g.dlse.data)) &&
         (!problem.sinks || words_good(g.dsinks));
}

/// `count` words, whose bits say which are arrays, and which of these are of fp32 numbers.
bool code_words_good(const std::uint64_t* words, int count, std::uint32_t arrays,
                     std::uint32_t floats) {
  if (words == nullptr) return false;
  std::uint32_t null_words = 0, odd_words = 0;
  for (int i = 0; i < count; ++i) {
    null_words |= std::uint32_t{words[i] == 0} << i;
    odd_words |= std::uint32_t{words[i] % alignof(float) != 0} << i;
  }
  return (null_words & arrays) == 0 && (odd_words & floats) == 0;
}

bool lengths_good(const Problem& problem, const LengthArrays& lengths) {
  const bool present = problem.lengths == Lengths::kUsed ||
                       (lengths.q != nullptr && (lengths.kv != nullptr || has_pages(problem)));
  const Tokens most = total_tokens(problem);
  return present && (address(lengths.q) | address(lengths.kv)) % alignof(int) == 0 &&
         lengths.tokens_q >= 0 && lengths.tokens_q <= most.q && lengths.tokens_kv >= 0 &&
         lengths.tokens_kv <= most.kv;
}

bool pages_good(const PageTable& pages) {
  return words_good(pages.table) && pages.num_pages > 0 && pages.num_pages <= kMostPages;
}

bool mask_good(const Problem& problem, const BlockMaskRef& mask) {
  return words_good(mask.row_begin) && words_good(mask.columns) &&
         (!problem.mask_bits ||
          (mask.bits != nullptr && address(mask.bits) % kTableAlignment == 0 &&
           words_good(mask.bit_blocks)));
}

/// Tables that no plan could mind; explain() looks closer.
bool rope_good(const Problem& problem, const RopeTables& rope) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return rope.cos != nullptr && rope.sin != nullptr &&
         (address(rope.cos) | address(rope.sin)) % kTableAlignment == 0 &&
         rope.offset >= least_rope_offset(problem) && rope.rows >= 0 && rope.rows <= kMost &&
         rope.offset <= rope.rows - problem.seqlen_kv;
}

}  // namespace

bool PointerCheck::parts_good(const Problem& p, const Tensors& t) const {
  return (p.rope == Rope::kNone || rope_good(p, t.rope)) &&
         (p.lengths == Lengths::kFixed || lengths_good(p, t.lengths)) &&
         (!has_pages(p) || pages_good(t.pages)) &&
         (!has_block_mask(p) || mask_good(p, t.block_mask)) &&
         (code_words_ == 0 ||
          code_words_good(t.code_arguments, code_words_, code_arrays_, code_floats_)) &&
         (!is_backward(p) || gradients_good(p, t.gradients)) && (!p.sinks || words_good(t.sinks));
}

void check_code_arguments(const Problem& problem, const std::uint64_t* words) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  if (words == nullptr) {
    refuse(
        fmt::format("code_arguments is null, but the problem says args=\"{}\"; give it {} words of "
                    "8 bytes in host memory",
                    printable(problem.args), code_words_of_run(problem)));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_array || words[i] != 0) continue;
    refuse(
        fmt::format("code_arguments[{}] is null; it is the address of {}, an array of {} in "
                    "device memory",
                    i, arguments[i].name, to_string(arguments[i].type)));
  }
  std::size_t word = arguments.size();
  for (const std::size_t at : places_of_dargs(problem)) {
    if (words[word] == 0 || words[word] % alignof(float) != 0) {
      refuse(fmt::format(
          "code_arguments[{}] is {:#x}; with dargs=\"{}\" it is the address of an array of float "
          "in device memory, to which the gradient of {} is added: fp32, a multiple of 4 bytes",
          word, words[word], printable(problem.dargs), arguments[at].name));
    }
    ++word;
  }
}

PointerCheck::PointerCheck(const Problem& problem)
    : misaligned_(static_cast<std::uint8_t>(problem.alignment_bytes - 1)),
      bytes_q_(static_cast<std::uint8_t>(size_bytes(problem.dtype_q))),
      bytes_k_(static_cast<std::uint8_t>(size_bytes(problem.dtype_k))),
      bytes_v_(static_cast<std::uint8_t>(size_bytes(problem.dtype_v))),
      bytes_o_(static_cast<std::uint8_t>(size_bytes(problem.dtype_o))),
      needs_lse_(problem.lse || is_backward(problem)),
      has_parts_(problem.rope != Rope::kNone || problem.lengths != Lengths::kFixed ||
                 has_block_mask(problem) || !problem.args.empty() || is_backward(problem) ||
                 problem.sinks) {
  static_assert(kMostCodeArguments <= 32, "a bit for each word, gradients among them");
  for (const CodeArgument& argument : code_arguments(problem.args))
    code_arrays_ |= std::uint32_t{argument.is_array} << code_words_++;
  for (std::size_t i = places_of_dargs(problem).size(); i > 0; --i) {
    code_arrays_ |= std::uint32_t{1} << code_words_;
    code_floats_ |= std::uint32_t{1} << code_words_++;
  }
}

void PointerCheck::explain(const Problem& problem, const Tensors& tensors, const void* workspace,
                           std::size_t workspace_bytes) const {
  const std::int64_t batch = stored_rows(problem).batch;
  const std::int64_t batch_kv = has_pages(problem) ? tensors.pages.num_pages : batch;
  const std::int64_t rows_kv = has_pages(problem) && problem.seqlen_kv != 0 ? problem.page_size
                                                                            : problem.seqlen_kv;
  check_tensor("q", tensors.q, problem.dtype_q, problem.num_heads_q, batch, problem.seqlen_q,
               problem);
  check_tensor("k", tensors.k, problem.dtype_k, problem.num_heads_kv, batch_kv, rows_kv, problem);
  check_tensor("v", tensors.v, problem.dtype_v, problem.num_heads_kv, batch_kv, rows_kv, problem);
  check_tensor("o", tensors.o, problem.dtype_o, problem.num_heads_q, batch, problem.seqlen_q,
               problem);
  if (is_backward(problem)) check_gradients(problem, tensors, batch);
  if (problem.lse && tensors.lse.data == nullptr) {
    refuse(
        "lse is null, but the problem says lse; give it device memory, or make the plan without "
        "lse");
  }
  if (problem.lse && reinterpret_cast<std::uintptr_t>(tensors.lse.data) % alignof(float) != 0) {
    refuse(fmt::format("lse starts at {}, which is not a multiple of 4 bytes",
                       fmt::ptr(tensors.lse.data)));
  }
  if (problem.rope != Rope::kNone) {
    check_rope_tables(problem, tensors);
    for (const auto& [name, table] :
         {std::pair("rope_cos", tensors.rope.cos), std::pair("rope_sin", tensors.rope.sin)}) {
      if (reinterpret_cast<std::uintptr_t>(table) % kTableAlignment != 0) {
        refuse(fmt::format("{} starts at {}, which is not a multiple of {} bytes", name,
                           fmt::ptr(table), kTableAlignment));
      }
    }
  }
  if (problem.lengths != Lengths::kFixed) check_length_arrays(problem, tensors.lengths);
  if (has_pages(problem)) check_page_table(problem, tensors.pages, kMostPages);
  if (has_block_mask(problem)) check_block_mask(problem, tensors.block_mask, kTableAlignment);
  if (!problem.args.empty()) check_code_arguments(problem, tensors.code_arguments);
  if (problem.sinks) {
    check_of_heads("sinks", tensors.sinks, "the logits", problem);
    if (is_backward(problem))
      check_of_heads("dsinks", tensors.gradients.dsinks, "memory for the gradients of the sinks",
                     problem);
  }
  if (workspace_bytes == 0) return;
  if (workspace == nullptr) {
    refuse(fmt::format("the workspace is null, but this plan needs {} bytes of device memory",
                       workspace_bytes));
  }
  if (reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    refuse(fmt::format("the workspace starts at {}, which is not a multiple of {} bytes", workspace,
                       kWorkspaceAlignment));
  }
}

}  // namespace attnforge
