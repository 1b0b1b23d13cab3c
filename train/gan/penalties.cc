// Gradient penalties of GAN discriminators (WGAN-GP, R1) and the drift penalty of scores. The gradient of the
// scores at the images is computed with autograd::grad; an open recording records that gradient too (double
// backward), so that the penalty is differentiable with respect to the discriminator's parameters. Images are
// detached. Computes in f32 or f64.
#include "gradus/train/gan/penalties.h"

#include "gradus/autograd/functional.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/layers/batch_norm.h"
#include "gradus/tensor/runtime/warning.h"

namespace gradus::gan {
namespace {

Tensor in_full_precision(const Tensor& x) { return x.dtype() == DType::kF64 ? x : to(x, DType::kF32); }

// Returns the gradient of the sum of all scores with respect to x, of x's shape [N, ...].
Tensor gradient_at(const internal::Discriminator& disc, const Tensor& x) {
  return autograd::grad([&](const Tensor& at) { return sum(disc(at)); }, x);
}

// Returns [N, 1, ..., 1], the shape of one number per sample that broadcasts with x [N, ...].
Shape one_for_each_sample(const Tensor& x) {
  Shape shape;
  for (int d = 0; d < x.dim(); ++d) shape.push_back(d == 0 ? x.size(0) : 1);
  return shape;
}

}  // namespace

Tensor gradient_penalty_of(const internal::Discriminator& disc, const Tensor& real, const Tensor& fake,
                           const Tensor& alpha, GradientPenaltyOptions o) {
  if (real.dim() < 1 || real.shape() != fake.shape())
    throw ShapeError("gradient_penalty", "expected real and fake [N,...] alike, got ", describe(real),
                     " and ", describe(fake));
  if (alpha.numel() != real.size(0))
    throw ShapeError("gradient_penalty", "expected alpha [", real.size(0), "], got ", describe(alpha));
  if (o.per_pixel && real.dim() < 3)
    throw ValueError("gradient_penalty", "expected images for per_pixel, got ", describe(real));
  const autograd::NoAutocast in_f32;
  const Tensor r = in_full_precision(detach(real)), f = to(detach(fake), r.dtype());
  const Tensor a = reshape(to(detach(alpha), r.dtype()), one_for_each_sample(r));
  const Tensor g = gradient_at(disc, f + a * (r - f));
  const Tensor norms = o.per_pixel ? norm(g, {1}) : norm(reshape(g, {g.size(0), -1}), {1});
  return mean(square(norms - o.target));
}

Tensor r1_of(const internal::Discriminator& disc, const Tensor& real) {
  if (real.dim() < 1 || real.size(0) < 1)
    throw ShapeError("r1", "expected real [N,...], got ", describe(real));
  const autograd::NoAutocast in_f32;
  const Tensor g = gradient_at(disc, in_full_precision(detach(real)));
  return sum(square(g)) / double(g.size(0));
}

Tensor drift(const Tensor& real) {
  if (!is_floating(real.dtype()))
    throw DTypeError("drift", "expected scores of a floating type, got ", describe(real));
  return mean(square(in_full_precision(real)));
}

void internal::warn_of_batch_norm(const char* penalty, const nn::Module& m) {
  const auto find = [](const auto& self, const nn::Module& at) -> const nn::Module* {
    if (const auto* bn = dynamic_cast<const nn::BatchNorm*>(&at); bn && bn->uses_batch_statistics())
      return &at;
    for (const nn::Module* child : at.children())
      if (const nn::Module* found = self(self, *child)) return found;
    return nullptr;
  };
  if (const nn::Module* norm = find(find, m))
    warn_once(concat(
        penalty, ": ", m.type_name(), " has batch norm (", norm->path(),
        "), so that each image's gradient depends on the whole batch; a penalty on it wants another norm, "
        "or none"));
}

}  // namespace gradus::gan
