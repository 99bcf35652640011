#include "generator/launch.h"

#include "attnforge/plan.h"

namespace attnforge {

using MapOperand = TensorMapSpec::Operand;

constinit const MapOperand MapOperand::kQ{"q", false, [](Tensors& t) -> Tensor& { return t.q; }};
constinit const MapOperand MapOperand::kK{"k", true, [](Tensors& t) -> Tensor& { return t.k; }};
constinit const MapOperand MapOperand::kV{"v", true, [](Tensors& t) -> Tensor& { return t.v; }};

}  // namespace attnforge
