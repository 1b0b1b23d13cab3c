// Type promotion, result layouts, and checks of element-wise ops: the parts of elementwise.h's templates that
// do not depend on the functor. `op` is the name in errors.
#include "gradus/tensor/ops/elementwise.h"

#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// Returns the category of PyTorch's promotion: bool 0, integer 1, floating 2.
int kind(DType t) { return t == DType::kBool ? 0 : is_integral(t) ? 1 : 2; }

[[noreturn]] void throw_devices(const char* op, std::initializer_list<const Tensor*> operands) {
  std::string all;
  for (const Tensor* x : operands) all += (all.empty() ? "" : ", ") + describe(*x);
  throw DeviceError(op, "operands are on different devices: ", all);
}

}  // namespace

DType result_dtype(const Tensor& a, const Tensor& b) {
  const DType s = a.dtype(), t = b.dtype();
  if (s == t) return s;
  if (b.dim() == 0 && a.dim() > 0 && kind(t) <= kind(s)) return s;
  if (a.dim() == 0 && b.dim() > 0 && kind(s) <= kind(t)) return t;
  return promote(s, t);
}

DType result_dtype(const Tensor& x, Number number) {
  return kind(number.dtype()) > kind(x.dtype()) ? number.dtype() : x.dtype();
}

Tensor operand(Number number, const Tensor& x) {
  const DType t = result_dtype(x, number);
  // For 16-bit floats, which are computed in f32, the number is f32; except for a 0-dimensional x, which
  // would be promoted to f32 by it.
  const bool widen = (t == DType::kF16 || t == DType::kBF16) && x.dim() > 0;
  const TensorOptions options{widen ? DType::kF32 : t, x.device()};
  if (options.device.type != DeviceType::kCUDA) return scalar(number, options);
  const Tensor y = empty({}, options);
  fill_(y, number);  // passes the number as a kernel argument instead of a copy from the host
  return y;
}

Tensor empty_result(const char* op, DType dtype, std::initializer_list<const Tensor*> operands) {
  const Tensor& first = **operands.begin();
  const TensorOptions options{dtype, first.device()};
  bool same = true;
  for (const Tensor* x : operands) {
    if (!are_compatible_devices(x->device(), options.device)) throw_devices(op, operands);
    same = same && x->is_row_major() && x->shape() == first.shape();
  }
  if (same) return empty(first.shape(), options);

  // `full`: the first operand with the result's shape. `agree`: all such operands have its strides.
  Shape shape = first.shape();
  for (const Tensor* x : operands) shape = broadcast_shapes(shape, x->shape(), op);
  const Tensor* full = nullptr;
  bool agree = true, channels_last = false;
  for (const Tensor* x : operands) {
    channels_last = channels_last || x->is_channels_last();
    if (x->shape() != shape) continue;
    agree = agree && (!full || full->strides() == x->strides());
    if (!full) full = x;
  }
  if (full && agree) return empty_like(*full, dtype);
  return channels_last && shape.size() >= 3 && shape.size() <= 5 ? empty_channels_last(shape, options)
                                                                 : empty(shape, options);
}

Tensor source_for(const char* op, const Tensor& dst, const Tensor& src) {
  if (!are_compatible_devices(dst.device(), src.device())) throw_devices(op, {&dst, &src});
  if (kind(src.dtype()) > kind(dst.dtype()))
    throw DTypeError(op, "a result with ", src.dtype(), " does not fit into ", describe(dst), " in place");
  if (dst.shape() != src.shape() && broadcast_shapes(dst.shape(), src.shape(), op) != dst.shape())
    throw ShapeError(op, "operand does not broadcast to the destination: operand ", describe(src),
                     ", destination ", describe(dst));
  const TensorImpl &d = dst.impl(), &s = src.impl();
  if (d.storage != s.storage) return src;
  // Tensors of one storage may overlap, and are copied unless each element of dst is read only for itself.
  const bool identical =
      d.offset == s.offset && d.dtype == s.dtype && d.shape == s.shape && d.strides == s.strides;
  return identical ? src : clone(src);
}

namespace internal {

void throw_no_bool(const char* op, const Tensor& x) {
  throw DTypeError(op, "is not defined for bool: ", describe(x));
}

void check_integral(const char* op, const Tensor& x) {
  if (!is_integral(x.dtype())) throw DTypeError(op, "expected integers or bool, got ", describe(x));
}

void check_backward(const char* op, const Tensor& dy, const Tensor& x) {
  if (!is_floating(dy.dtype()) || !is_floating(x.dtype()))
    throw DTypeError(op, "expected floating-point tensors, got dy ", describe(dy), ", x ", describe(x));
}

void check_destination(const char* op, const Tensor& dst, bool only_floats) {
  if (only_floats && !is_floating(dst.dtype()))
    throw DTypeError(op, "expected a floating-point destination, got ", describe(dst));
  check_writable(op, dst);
}

}  // namespace internal

}  // namespace gradus::raw
