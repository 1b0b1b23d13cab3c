// slerp, from differentiable ops, for each vector of the last dim: with the angle w between a and b,
//   (sin((1 - t) w) a / |a| + sin(t w) b / |b|) / sin(w) * ((1 - t) |a| + t |b|)
#include "gradus/train/gan/latents.h"

#include "gradus/autograd/ops/ops.h"

namespace gradus::gan {

Tensor slerp(const Tensor& a, const Tensor& b, double t) {
  if (a.shape() != b.shape() || a.dim() == 0)
    throw ShapeError("slerp", "expected vectors of one shape, got ", describe(a), " and ", describe(b));
  if (!is_floating(a.dtype()) || !is_floating(b.dtype()))
    throw DTypeError("slerp", "expected floating point, got ", describe(a), " and ", describe(b));
  if (!(t >= 0 && t <= 1)) throw ValueError("slerp", "expected t in [0,1], got ", t);
  const auto norm = [](const Tensor& x) { return sqrt(sum(x * x, -1, true)); };
  const Tensor length_a = norm(a), length_b = norm(b);
  const Tensor cosine = clamp(sum(a * b, -1, true) / clamp(length_a * length_b, 1e-30), -1, 1);
  const Tensor angle = acos(cosine), sine = sin(angle);
  const Tensor direction =
      a / clamp(length_a, 1e-30) * sin((1 - t) * angle) + b / clamp(length_b, 1e-30) * sin(t * angle);
  const Tensor on_arc = direction / sine * ((1 - t) * length_a + t * length_b);
  return where(gt(sine, 1e-4), on_arc, (1 - t) * a + t * b);
}

}  // namespace gradus::gan
