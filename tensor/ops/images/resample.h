// Raw resampling of signals, images and volumes: every output cell is a weighted sum of input cells, one axis
// after the other. Interpolation, padding by reflection, and the gradients of both have this form.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// A sparse matrix [out, in]: output cell i is the sum over k in [start[i], start[i+1])
// of weight[k] x[from[k]].
struct AxisTaps {
  int64_t in = 0, out = 0;
  std::vector<int64_t> start{0}, from;
  std::vector<double> weight;

  void add(int64_t cell, double w) { from.push_back(cell), weight.push_back(w); }
  // Ends the list of the next output cell.
  void end_cell() { start.push_back(int64_t(from.size())), ++out; }
};

// One matrix for each axis of [N,C,(D,(H,))W]. Without a matrix the axis stays as it is.
struct Resampling {
  std::array<std::shared_ptr<const AxisTaps>, 3> axes;  // D, H, W

  Resampling transposed() const;
};

namespace raw {

// Returns x, of 3 to 5 dims, resampled. The result is channels-last.
// Errors: ShapeError, DTypeError unless floating.
Tensor resample(const Tensor& x, const Resampling& map);

// y and x: f32 or f64, dense with channels innermost, not empty.
extern KernelSlot<void(const Tensor& y, const Tensor& x, Resampling map)> resample_kernel;

}  // namespace raw
}  // namespace gradus
