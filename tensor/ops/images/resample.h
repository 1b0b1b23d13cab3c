// Raw separable linear resampling over 1 to 3 spatial dims: along each axis, an output position is a weighted sum
// of input positions. Used for interpolation, reflection padding, and the gradients of both.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// A sparse matrix [out, in] in CSR format: y[i] = sum of weight[k] * x[from[k]] for k in [start[i], start[i+1]).
struct AxisTaps {
  int64_t in = 0, out = 0;
  std::vector<int64_t> start{0}, from;  // out + 1 row offsets; positions in [0, in)
  std::vector<double> weight;

  // Appends an input position with its weight to the row of the current output position.
  void add(int64_t position, double w) { from.push_back(position), weight.push_back(w); }
  // Ends the row. The next output position begins.
  void end_output() { start.push_back(int64_t(from.size())), ++out; }
};

// One matrix for each spatial axis of [N,C,(D,(H,))W]. Null: the identity, also for axes that x lacks.
struct Resampling {
  std::array<std::shared_ptr<const AxisTaps>, 3> axes;  // D, H, W

  // Returns the transposed matrices, which compute the gradient.
  Resampling transposed() const;
};

namespace raw {

// Returns x, of 3 to 5 dims, resampled. The result is channels-last.
// Errors: ShapeError unless the sizes of x are those of the matrices; DTypeError unless floating.
Tensor resample(const Tensor& x, const Resampling& map);

// y and x: f32 or f64, channels-last, not empty.
extern KernelSlot<void(const Tensor& y, const Tensor& x, Resampling map)> resample_kernel;

}  // namespace raw
}  // namespace gradus
