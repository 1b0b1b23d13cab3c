#include "gradus/autograd/ops/distance.h"

#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"

namespace gradus {
namespace {

// The shape that both broadcast to.
Shape check(const char* op, const Tensor& a, const Tensor& b) {
  if (!is_floating(a.dtype()) || !is_floating(b.dtype()))
    throw DTypeError(op, "expected floating-point tensors, given ", describe(a), " and ", describe(b));
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  if (shape.size() == 0) throw ShapeError(op, "expected vectors, given ", describe(a), " and ", describe(b));
  return shape;
}

// max(|x|, eps) along `dim`; where eps takes over it is a constant.
Tensor length(const Tensor& x, int64_t dim, double eps) { return maximum(norm(x, {dim}, 2, true), eps); }

}  // namespace

Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& o) {
  check("pairwise_distance", a, b);
  return norm(a - b + o.eps, {-1}, o.p, o.keepdim);
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityOptions& o) {
  const char* op = "cosine_similarity";
  const Shape shape = check(op, a, b);
  if (o.dim < -shape.size() || o.dim >= shape.size())
    throw IndexError(op, "dim ", o.dim, " is out of range for ", shape.size(), " dims: ", describe(a),
                     " and ", describe(b));
  // Counted from the back, it is the same dim of both, whatever broadcasts in front.
  const int64_t dim = o.dim < 0 ? o.dim : o.dim - shape.size();
  const Tensor x = expand(a, shape), y = expand(b, shape);
  return sum((x / length(x, dim, o.eps)) * (y / length(y, dim, o.eps)), dim);
}

}  // namespace gradus
