// pairwise_distance, cosine_similarity, normalize and cdist, composed of differentiable norms, sums and
// quotients, which record the gradients. Formulas and shapes are in the header. Results have the promoted
// dtype of the inputs. cdist materializes all differences [..., m, n, d], in the inputs' dtype.
#include "gradus/autograd/ops/linalg/distance.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Returns the shape that a and b broadcast to.
// Errors: DTypeError unless both are floating point; ShapeError for scalars and for shapes without broadcast.
Shape check(const char* op, const Tensor& a, const Tensor& b) {
  check_floating(op, "a", a);
  check_floating(op, "b", b);
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  if (shape.size() == 0) throw ShapeError(op, "expected vectors, got ", describe(a), " and ", describe(b));
  return shape;
}

// 16-bit floats are computed in f32: results are rounded once, and the eps values that prevent a division by
// 0 would be 0 in f16.
using autograd::at_least_f32;

// Returns max(|x|, eps), with the Euclidean norm along `dim`, which is kept with size 1. Below eps the result
// is a constant, so its gradient is 0.
Tensor length(const Tensor& x, int64_t dim, double eps) { return maximum(norm(x, {dim}, 2, true), eps); }

}  // namespace

Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& o) {
  const OpCall call("pairwise_distance", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"pairwise_distance"}) return pairwise_distance(cast(a), cast(b), o);
  check("pairwise_distance", a, b);
  return to(norm(at_least_f32(a) - at_least_f32(b) + o.eps, {-1}, o.p, o.keepdim),
            promote(a.dtype(), b.dtype()));
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityOptions& o) {
  const OpCall call("cosine_similarity", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"cosine_similarity"}) return cosine_similarity(cast(a), cast(b), o);
  const char* op = "cosine_similarity";
  const Shape shape = check(op, a, b);
  if (o.dim < -shape.size() || o.dim >= shape.size())
    throw IndexError(op, "dim ", o.dim, " is out of range for ", shape.size(), " dims: ", describe(a),
                     " and ", describe(b));
  // A dim counted from the end is the same for both operands, even if their numbers of dims differ.
  const int64_t dim = o.dim < 0 ? o.dim : o.dim - shape.size();
  const Tensor x = expand(at_least_f32(a), shape), y = expand(at_least_f32(b), shape);
  return to(sum((x / length(x, dim, o.eps)) * (y / length(y, dim, o.eps)), dim),
            promote(a.dtype(), b.dtype()));
}

Tensor normalize(const Tensor& x, const NormalizeFuncOptions& o) {
  const OpCall call("normalize", {{"x", x}});
  if (autograd::Casting cast{"normalize"}) return normalize(cast(x), o);
  raw::check_reducible_float(x, {o.dim}, "normalize");
  const Tensor v = at_least_f32(x);
  return to(v / maximum(norm(v, {o.dim}, o.p, true), o.eps), x.dtype());
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  const OpCall call("cdist", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"cdist"}) return cdist(cast(a), cast(b), p);
  if (!is_floating(a.dtype()) || !is_floating(b.dtype()))
    throw DTypeError("cdist", "expected floating-point tensors, got ", describe(a), " and ", describe(b));
  autograd::check_same_device("cdist", "a", a, "b", b);
  if (a.dim() < 2 || b.dim() < 2 || a.size(-1) != b.size(-1))
    throw ShapeError("cdist", "expected [...,m,d] and [...,n,d]: a ", describe(a), ", b ", describe(b));
  if (!(p >= 0)) throw ValueError("cdist", "expected p of at least 0, got ", p);
  // [..., m, 1, d] - [..., 1, n, d] -> [..., m, n, d]
  const Tensor differences = unsqueeze(a, -2) - unsqueeze(b, -3);
  // Vectors of 0 elements have distance 0; norm would throw for an infinite p.
  return a.size(-1) == 0 ? sum(differences, -1) : norm(differences, {-1}, p);
}

}  // namespace gradus
