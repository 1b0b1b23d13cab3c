// Flatten and Unflatten layers.
#include "gradus/nn/layers/flatten.h"

#include "gradus/autograd/ops/view.h"

namespace gradus::nn {

Tensor Flatten::forward(const Tensor& x) { return flatten(x, options().start, options().end); }

Tensor Unflatten::forward(const Tensor& x) {
  const int dim = wrap_dim(*options().dim, x.dim(), "Unflatten");
  Shape shape;
  for (int d = 0; d < dim; ++d) shape.push_back(x.size(d));
  int64_t known = 1, unknown = 0;
  for (const int64_t n : *options().sizes) n == -1 ? ++unknown : known *= n;
  const bool fits = unknown == 0   ? known == x.size(dim)
                    : unknown == 1 ? known > 0 && x.size(dim) % known == 0
                                   : false;
  if (!fits)
    throw ShapeError("Unflatten", "sizes ", *options().sizes, " do not multiply to size ", x.size(dim),
                     " of dim ", dim, ": x ", describe(x));
  for (const int64_t n : *options().sizes) shape.push_back(n == -1 ? x.size(dim) / known : n);
  for (int d = dim + 1; d < x.dim(); ++d) shape.push_back(x.size(d));
  return reshape(x, shape);
}

template class ModuleWith<FlattenOptions, Layer>;
template class ModuleWith<UnflattenOptions, Layer>;
}  // namespace gradus::nn
