// factor_rows.h - rows of q and k as they are multiplied: those of the tensors, or what a problem
// makes of them first.
#pragma once

#include <cstdint>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Whether anything is made of them. Kernels then round the rows once more.
bool changes_rows(const Problem& problem);

/// Sets the usual tables for that.
void set_usual_factor_tables(const Problem& problem, HostTensors& host);

/// Changes a row of q or k (head_dim elements) in place, exactly. Tables of the run are in host
/// memory.
void change_query(const Problem& problem, const Tensors& tensors, std::int64_t query, double* row);
void change_key(const Problem& problem, const Tensors& tensors, std::int64_t key, double* row);

/// What a score may be off by then, relative to Reference::product_magnitude; 0 where rows are
/// those of the tensors.
double row_change_error(const Problem& problem);

}  // namespace attnforge
