// The loss of flow matching, and explicit Runge-Kutta methods with steps of equal size.
#include "gradus/train/flow/flow_matching.h"

#include "gradus/autograd/ops/ops.h"

namespace gradus::flow {
namespace {

// Errors: ShapeError unless the velocity has the shape of x.
Tensor checked(const char* op, const Tensor& velocity, const Tensor& x) {
  if (velocity.shape() != x.shape())
    throw ShapeError(op, "expected a velocity of the shape of x, ", describe(x), ", got ",
                     describe(velocity));
  return velocity;
}

}  // namespace

Tensor matching_loss(const Velocity& velocity, const Tensor& images, const Tensor& noise,
                     const Tensor& times) {
  const char* const op = "matching_loss";
  if (images.dim() == 0 || noise.shape() != images.shape())
    throw ShapeError(op, "expected images and noise of one shape [N,...], got ", describe(images), " and ",
                     describe(noise));
  if (times.dim() != 1 || times.size(0) != images.size(0))
    throw ShapeError(op, "expected one time for each of ", images.size(0), " images, got ", describe(times));
  for (const Tensor& x : {images, noise, times})
    if (!is_floating(x.dtype())) throw DTypeError(op, "expected floating point, got ", describe(x));
  std::vector<int64_t> column(size_t(images.dim()), 1);
  column[0] = images.size(0);
  const Tensor target = images - noise, x = noise + reshape(times, Shape(column)) * target;
  const Tensor error = checked(op, velocity(x, times), x) - target;
  return mean(square(error.dtype() == DType::kF64 ? error : to(error, DType::kF32)));
}

Tensor logit_normal_times(const Tensor& normal, LogitNormalOptions o) {
  if (!(o.stddev >= 0)) throw ValueError("logit_normal_times", "expected stddev >= 0, got ", o.stddev);
  return sigmoid(o.mean + o.stddev * normal);
}

Tensor drop_labels(const Tensor& labels, const Tensor& dropped, int64_t classes) {
  return where(dropped, classes, labels);
}

Tensor sample(const Velocity& velocity, const Tensor& noise, const SampleOptions& o) {
  if (o.steps < 1) throw ValueError("sample", "expected 1 step or more, got ", o.steps);
  if (o.guidance != 1 && !o.unconditional)
    throw ValueError("sample", "expected an unconditional velocity for a guidance of ", o.guidance);
  const auto v = [&](const Tensor& x, double time) {
    const Tensor t = full({x.size(0)}, time, {.dtype = x.dtype(), .device = x.device()});
    const Tensor at = checked("sample", velocity(x, t), x);
    return o.guidance == 1 ? at : lerp(checked("sample", o.unconditional(x, t), x), at, o.guidance);
  };
  const double h = 1 / double(o.steps);
  Tensor x = noise;
  for (int64_t i = 0; i < o.steps; ++i) {
    const double t = double(i) / double(o.steps), middle = (double(i) + 0.5) / double(o.steps),
                 end = double(i + 1) / double(o.steps);
    switch (o.method) {
      case Method::kEuler:
        x = x + h * v(x, t);
        break;
      case Method::kMidpoint:
        x = x + h * v(x + h / 2 * v(x, t), middle);
        break;
      case Method::kHeun: {
        const Tensor k1 = v(x, t), k2 = v(x + h * k1, end);
        x = x + h / 2 * (k1 + k2);
        break;
      }
      case Method::kRungeKutta4: {
        const Tensor k1 = v(x, t), k2 = v(x + h / 2 * k1, middle), k3 = v(x + h / 2 * k2, middle),
                     k4 = v(x + h * k3, end);
        x = x + h / 6 * (k1 + 2 * (k2 + k3) + k4);
        break;
      }
    }
  }
  return x;
}

}  // namespace gradus::flow
