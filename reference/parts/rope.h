// rope.h - the rotary embedding on the CPU: its tables, and the rotation of a row of q or k.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// [rows, rope_dim / 2] each: column i of row r is the cosine or sine of r / base^(2 i / rope_dim)
/// (Su et al. 2021).
struct HostRopeTables {
  std::vector<float> cos, sin;
};
HostRopeTables rope_tables(int rope_dim, std::int64_t rows, double base = 10000);

/// Rows of the tables that a key and a query take.
std::int64_t rope_row_of_key(const Tensors& tensors, std::int64_t key);
std::int64_t rope_row_of_query(const Problem& problem, const Tensors& tensors, std::int64_t query);

/// Rotates a row of q or k (head_dim elements) in place by row `table_row` of the tables, which are
/// in host memory. Does nothing for a problem without rope.
void rotate(const Problem& problem, const Tensors& tensors, std::int64_t table_row, double* row);

// ---- Rows of q and k as they are multiplied ----

/// Whether anything is made of them first. Kernels then round the rows once more.
bool changes_rows(const Problem& problem);

/// Sets the usual tables for that.
void set_usual_factor_tables(const Problem& problem, HostTensors& host);

/// Changes a row of q or k (head_dim elements) in place, exactly. Tables of the run are in host
/// memory.
void change_query(const Problem& problem, const Tensors& tensors, std::int64_t query, double* row);
void change_key(const Problem& problem, const Tensors& tensors, std::int64_t key, double* row);

/// Whether kernels may round rows of q or k once more: what is made of them, or k of fewer bits.
bool may_round_rows(const Problem& problem);

/// What a score may be off by then, relative to Reference::product_magnitude; 0 where rows are
/// those of the tensors.
double row_change_error(const Problem& problem);

}  // namespace attnforge
