// gradients.cpp - what a backward run takes in addition to q, k, v and o, and what it writes.
#include <fmt/format.h>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/stored_rows.h"
#include "generator/tensors/tensor_check.h"
#include "generator/tensors/tensor_elements.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

template <auto kMember, auto kTensor>
Operand gradient(std::string_view name, Role role) {
  return operand<kMember, &Tensors::gradients, kTensor, &Tensor::data>(name, role);
}

void bind_packed_gradients(const Problem& p, void* data, Tensors& t) {
  bind_packed(p, gradient_dtype(p, p.dtype_q), data, t.gradients.dq, t.gradients.dk,
              t.gradients.dv);
}

/// Lays each gradient out as the tensor that it is the gradient of.
void lay_out_gradients(const Problem&, Tensors& t) {
  t.gradients = {.dout = t.o, .dq = t.q, .dk = t.k, .dv = t.v, .dlse = t.lse};
}

/// What of a forward goes out, and the gradients of that.
void add_gradients_in(OperandList& list) {
  const Problem& p = list.problem;
  list.add(operand_of_o(Role::kInput), p.dtype_o, list.tokens.q, p.num_heads_q * p.head_dim_v);
  list.add(gradient<&HostTensors::dout, &Gradients::dout>("dout", Role::kInput), p.dtype_o,
           list.tokens.q, p.num_heads_q * p.head_dim_v);
  if (!p.dlse) return;
  list.add_words(operand<&HostTensors::dlse, &Tensors::gradients, &Gradients::dlse, &Rows::data>(
                     "dlse", Role::kInput),
                 p.num_heads_q * list.tokens.q);
}

void add_gradients_out(OperandList& list) {
  const Problem& p = list.problem;
  const Tokens& tokens = list.tokens;
  list.add_words(operand_of_lse(Role::kTable), p.num_heads_q * tokens.q);
  const std::size_t first = list.list().size();
  if (p.layout == Layout::kPackedQkv) {
    list.add(operand<&HostTensors::dq>("dq", Role::kOutput, bind_packed_gradients),
             gradient_dtype(p, p.dtype_q), tokens.q,
             (p.num_heads_q + 2 * p.num_heads_kv) * p.head_dim);
  } else {
    list.add(gradient<&HostTensors::dq, &Gradients::dq>("dq", Role::kOutput),
             gradient_dtype(p, p.dtype_q), tokens.q, p.num_heads_q * p.head_dim);
    list.add(gradient<&HostTensors::dk, &Gradients::dk>("dk", Role::kOutput),
             gradient_dtype(p, p.dtype_k), tokens.kv, p.num_heads_kv * p.head_dim);
    list.add(gradient<&HostTensors::dv, &Gradients::dv>("dv", Role::kOutput),
             gradient_dtype(p, p.dtype_v), tokens.kv, p.num_heads_kv * p.head_dim_v);
  }
  const std::span<Operand> all = list.list();
  for (std::size_t i = first; i < all.size(); ++i) {
    all[i].added_to = p.accumulate;
    if (i > first) all[i].key_elements = all[i].elements;
  }
  if (p.layout == Layout::kPackedQkv)
    all[first].key_elements = tokens.kv * 2 * p.num_heads_kv * p.head_dim;
}

bool gradients_good(const Problem& problem, std::uint64_t, const Tensors& t) {
  const Gradients& g = t.gradients;
  GoodTensors tensors;
  tensors.add(g.dout, problem.dtype_o);
  tensors.add(g.dq, gradient_dtype(problem, problem.dtype_q));
  tensors.add(g.dk, gradient_dtype(problem, problem.dtype_k));
  tensors.add(g.dv, gradient_dtype(problem, problem.dtype_v));
  return tensors.all(problem) && words_good(t.lse.data) &&
         (!problem.dlse || words_good(g.dlse.data));
}

void check_rows(std::string_view name, const Rows& rows, const Problem& problem) {
  if (problem.batch == 0 || problem.seqlen_q == 0) return;
  check_address(name, rows.data, alignof(float),
                fmt::format("but a bwd{} reads it; give it device memory",
                            name == "lse" ? "" : " with the word dlse"));
}

void explain_gradients(const Problem& p, const Tensors& tensors) {
  const Gradients& g = tensors.gradients;
  const std::int64_t batch = stored_rows(p).batch;
  check_rows("lse", tensors.lse, p);
  if (p.dlse) check_rows("dlse", g.dlse, p);
  check_tensor("dout", g.dout, p.dtype_o, p.num_heads_q, batch, p.seqlen_q, p);
  check_tensor("dq", g.dq, gradient_dtype(p, p.dtype_q), p.num_heads_q, batch, p.seqlen_q, p);
  check_tensor("dk", g.dk, gradient_dtype(p, p.dtype_k), p.num_heads_kv, batch, p.seqlen_kv, p);
  check_tensor("dv", g.dv, gradient_dtype(p, p.dtype_v), p.num_heads_kv, batch, p.seqlen_kv, p);
}

/// Bytes that backward reads in addition to q, k, v and o, and that it writes.
double gradient_bytes(const Problem& p) {
  const auto moved = [&](double elements, DType input) {
    return (p.accumulate ? 2.0 : 1.0) * bytes_of(gradient_dtype(p, input), elements);
  };
  const double rows = static_cast<double>(p.num_heads_q) * static_cast<double>(total_tokens(p).q);
  return bytes_of(p.dtype_o, elements_o(p)) + rows * (p.dlse ? 8.0 : 4.0) +
         moved(elements_q(p), p.dtype_q) + moved(elements_k(p), p.dtype_k) +
         moved(elements_v(p), p.dtype_v);
}

}  // namespace

Problem forward_of(const Problem& problem) {
  if (!is_backward(problem)) return problem;
  Problem forward = problem;
  forward.op = Op::kForward;
  forward.lse = true;
  forward.deterministic = forward.accumulate = forward.dlse = forward.fp32_gradients = false;
  forward.dargs.clear();
  return forward;
}

bool has_wider_gradients(const Problem& p) {
  return p.fp32_gradients &&
         (p.dtype_q != DType::kFp32 || p.dtype_k != DType::kFp32 || p.dtype_v != DType::kFp32);
}

extern const ProblemPart gradients_of_problem;
constinit const ProblemPart gradients_of_problem{
    .in = [](const Problem& p) { return is_backward(p); },
    .bytes = gradient_bytes,
    .work = 2.5,  // five products in place of two
    .add_inputs = add_gradients_in,
    .add_outputs = add_gradients_out,
    .lay_out = lay_out_gradients,
    .good = gradients_good,
    .explain = explain_gradients};

}  // namespace attnforge
