// In-place random numbers: each op throws if an open recording follows x, then fills x by the raw:: op of the
// same name, which maps a draw of the Context's generator and the element's index to a number.
#include "gradus/autograd/ops/random.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/op_call.h"

namespace gradus {

void uniform_(const Tensor& x, double low, double high) {
  const OpCall call("uniform_", {{"x", x}});
  autograd::check_in_place("uniform_", x);
  raw::uniform_(x, low, high);
}

void normal_(const Tensor& x, double mean, double std) {
  const OpCall call("normal_", {{"x", x}});
  autograd::check_in_place("normal_", x);
  raw::normal_(x, mean, std);
}

void bernoulli_(const Tensor& x, double p) {
  const OpCall call("bernoulli_", {{"x", x}});
  autograd::check_in_place("bernoulli_", x);
  raw::bernoulli_(x, p);
}

}  // namespace gradus
