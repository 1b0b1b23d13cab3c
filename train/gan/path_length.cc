// The lengths come from autograd::grad, whose computation the open recording records: the penalty's gradient is a
// second derivative of the generator.
#include "gradus/train/gan/path_length.h"

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/functional.h"

namespace gradus::gan {

Tensor path_lengths(const Tensor& images, const Tensor& ws, const Tensor& noise) {
  if (images.dim() != 4 || noise.shape() != images.shape())
    throw ShapeError("path_lengths", "expected images [N,C,H,W] and noise alike, got ", describe(images),
                     " and ", describe(noise));
  if (ws.dim() != 3 || ws.size(0) != images.size(0))
    throw ShapeError("path_lengths", "expected ws [", images.size(0), ",L,D], got ", describe(ws));
  const double pixels = double(images.size(2) * images.size(3));
  const Tensor y = detach(noise) / std::sqrt(pixels);
  const std::vector<Tensor> gradients = autograd::grad({images}, {ws}, {to(y, images.dtype())});
  if (!gradients[0].defined()) throw StateError("path_lengths", "images do not depend on ws");
  return norm(reshape(gradients[0], {ws.size(0), -1}), {1}) / std::sqrt(double(ws.size(1)));
}

PathLengthPenalty::PathLengthPenalty(PathLengthPenaltyOptions options)
    : options_(std::move(options)), mean_(zeros({}, {.dtype = DType::kF64})) {
  if (!(options_.decay >= 0 && options_.decay <= 1))
    throw ValueError("PathLengthPenalty", "expected a decay in [0,1], got ", options_.decay);
}

Tensor PathLengthPenalty::operator()(const Tensor& images, const Tensor& ws, const Tensor& noise) {
  const Tensor lengths = path_lengths(images, ws, noise);
  mean_ = to(mean_, lengths.device());
  Tensor batch_mean = mean(lengths);
  if (options_.group.size() > 1)
    batch_mean = dist::functional::all_reduce(batch_mean, dist::ReduceOp::kMean, {options_.group});
  const Tensor old_mean = to(mean_, lengths.dtype());
  const Tensor new_mean = old_mean + options_.decay * (batch_mean - old_mean);
  // The steps of losses that are not finite are skipped, and leave the mean as it is.
  copy_(mean_, where(isfinite(detach(new_mean)), detach(new_mean), old_mean));
  return mean(square(lengths - new_mean));
}

optim::State PathLengthPenalty::state_dict() const {
  optim::State state;
  state.tensors.emplace_back("mean", mean_);
  return state;
}

void PathLengthPenalty::load_state_dict(const optim::State& state) {
  optim::StateReader in(state);
  const Tensor loaded = in.tensor("mean", {}, {.dtype = DType::kF64, .device = mean_.device()});
  in.on_success([&] { copy_(mean_, loaded); });
  in.finish("PathLengthPenalty");
}

}  // namespace gradus::gan
