// pages.cpp - the page table of a run, and how many pages its pools have.
#include <fmt/format.h>

#include <algorithm>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"
#include "generator/tensors/tensor_elements.h"

namespace attnforge {
namespace {

constexpr std::int64_t kMostPages = 2147483647;

void add_page_table(OperandList& list) {
  list.add_words(operand<&HostTensors::page_table, &Tensors::pages, &PageTable::table>(
                     "page_table", Operand::Role::kTable),
                 list.problem.batch, pages_of_sequence(list.problem));
}

void lay_out_pages(const Problem& problem, Tensors& tensors) {
  tensors.pages.stride_batch = pages_of_sequence(problem);
}

void complete_pages(const Problem&, const BoundOperands& run, Tensors& tensors) {
  for (const Operand& operand : run.list) {
    if (operand.any_rows) tensors.pages.num_pages = rows_in(operand, run.host);
  }
}

/// k and v are pools of as many pages.
void check_pools(const Problem&, std::span<const Operand> list, const HostTensors& host) {
  const Operand* k = nullptr;
  for (const Operand& operand : list) {
    if (!operand.any_rows) continue;
    if (k == nullptr) {
      k = &operand;
    } else if (rows_in(*k, host) != rows_in(operand, host)) {
      refuse_tensors("host tensors {} and {} have {} and {} pages; they must have as many", k->name,
                     operand.name, rows_in(*k, host), rows_in(operand, host));
    }
  }
}

bool pages_good(const Problem&, std::uint64_t, const Tensors& t) {
  return words_good(t.pages.table) && t.pages.num_pages > 0 && t.pages.num_pages <= kMostPages;
}

void explain_pages(const Problem& problem, const Tensors& t) {
  if (problem.batch == 0 || problem.seqlen_kv == 0) return;  // nothing of it is read
  check_address("pages.table", t.pages.table, alignof(int),
                fmt::format("but the problem says page_size={}; give it the pages of {} sequences, "
                            "{} each, as 32-bit integers in device memory",
                            problem.page_size, problem.batch, pages_of_sequence(problem)));
  if (t.pages.num_pages < 1 || t.pages.num_pages > kMostPages) {
    refuse_tensors("pages.num_pages={} must be from 1 to {}: the pages that k, and v, have",
                   t.pages.num_pages, kMostPages);
  }
}

constexpr std::int64_t kMostPagesOfPool = std::int64_t{1} << 30;  // a page's number is an int

void validate_pages(const Problem& p) {
  if (!has_pages(p)) return;
  if (p.layout == Layout::kPackedQkv) {
    reject_problem("page_size={} does not go with layout=packed_qkv: q does not lie in pages",
                   p.page_size);
  }
}

std::string too_many_pages(const Problem& p) {
  const auto pages = static_cast<double>(pages_of_pool(p));
  const auto row = static_cast<double>(p.num_heads_kv * std::max(p.head_dim, p.head_dim_v));
  if (pages <= static_cast<double>(kMostPagesOfPool) && pages * p.page_size * row <= kMostElements)
    return "";
  return fmt::format(
      "batch={} sequences of seqlen_kv={} in pages of page_size={} rows are more than 2^30 pages "
      "or "
      "2^48 elements",
      p.batch, p.seqlen_kv, p.page_size);
}

}  // namespace

extern const ProblemPart pages_of_problem;
constinit const ProblemPart pages_of_problem{
    .in = [](const Problem& p) { return has_pages(p); },
    .validate = validate_pages,
    .too_large = too_many_pages,
    .make_typical = [](const Problem&,
                       Problem& typical) { typical.page_size = 0; },  // as many bytes
    .add_inputs = add_page_table,
    .complete = complete_pages,
    .check_host = check_pools,
    .lay_out = lay_out_pages,
    .good = pages_good,
    .explain = explain_pages};

}  // namespace attnforge
