// Helpers of tests of GANs on several ranks: deterministic weights and samples (golden::uniform), and the
// comparison of states of networks and optimizers.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/module.h"
#include "gradus/optim/optimizer.h"
#include "gradus/tests/golden/uniform.h"

namespace gradus::dist {

using State = std::map<std::string, std::vector<double>>;

inline void add(State& state, const std::string& prefix, const nn::StateDict& tensors) {
  for (const auto& [name, t] : tensors) state[prefix + name] = t.to_vector<double>();
}
inline void add(State& state, const std::string& prefix, const optim::State& optimizer) {
  add(state, prefix, optimizer.tensors);
  for (const auto& [name, number] : optimizer.numbers) state[prefix + name] = {number};
}

// Lists the values that differ by more than `tolerance` (absolute); "" for none.
inline std::string difference(const State& state, const State& expected, double tolerance) {
  std::string wrong;
  for (const auto& [name, values] : expected) {
    const auto at = state.find(name);
    double largest = at == state.end() || at->second.size() != values.size() ? INFINITY : 0;
    for (size_t i = 0; i < values.size() && std::isfinite(largest); ++i)
      largest = std::max(largest, std::isfinite(values[i]) ? std::abs(at->second[i] - values[i]) : INFINITY);
    if (!(largest <= tolerance)) wrong += name + " is off by " + std::to_string(largest * 1e10) + "e-10\n";
  }
  if (state.size() != expected.size()) wrong += "the state has other tensors\n";
  return wrong;
}

// Makes a network f64, with weights that depend on name and rank. Data parallelism broadcasts those of rank
// 0.
inline void set_weights(nn::Module& net, int rank) {
  net.to(DType::kF64);
  for (const auto& [name, p] : net.named_parameters()) {
    std::vector<double> v = golden::uniform(name, p.numel());
    const double scale = p.dim() > 1 ? 1 / std::sqrt(double(p.numel() / p.size(0))) : 0.125;
    const bool is_orig = name.ends_with("weight_orig"), is_norm = p.dim() == 1 && name.ends_with("weight");
    for (double& x : v) x = (is_orig ? 2 : scale) * x + (is_norm ? 1 : 0) + 0.1 * rank;
    copy_(p, tensor(v, p.shape()));
  }
}

// The samples rank, rank + world, ... of part `part` of `parts` equal parts of the batch `name`.
inline Tensor samples(const std::string& name, int64_t batch, const Shape& sample, double scale, int rank,
                      int world, int part = 0, int parts = 1) {
  Shape shape = {batch}, split = {parts, batch / parts / world, world};
  for (const int64_t size : sample) shape.push_back(size), split.push_back(size);
  std::vector<double> v = golden::uniform(name, shape.product());
  for (double& x : v) x *= scale;
  return contiguous(select(select(reshape(tensor(v, shape), split), 0, part), 1, rank));
}

}  // namespace gradus::dist
