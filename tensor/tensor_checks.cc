// The errors of the argument checks in tensor_checks.h, and the check of devices for traces on the meta device.
#include "gradus/tensor/tensor_checks.h"

#include <cctype>

#include "gradus/tensor/runtime/context.h"

namespace gradus {
namespace {

// Returns the C++ enumerator: "DType::kF32".
std::string enumerator_of(DType dtype) {
  if (dtype == DType::kBF16) return "DType::kBF16";
  std::string name(name_of(dtype));
  name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return "DType::k" + name;
}

}  // namespace

bool internal::are_compatible_with_meta(Device a, Device b) {
  return Context::current().skip_meta_kernels && (a.type == DeviceType::kMeta || b.type == DeviceType::kMeta);
}

std::string conversion_hint(std::string_view name, DType dtype) {
  return concat("; to(", name, ", ", enumerator_of(dtype), ") converts ", name);
}

namespace internal {

void throw_not_floating(std::string_view op, std::string_view name, const Tensor& x) {
  throw DTypeError(op, "expected floating point, got ", name, ' ', describe(x),
                   conversion_hint(name, DType::kF32));
}

void throw_not_integers(std::string_view op, std::string_view what, std::string_view name, const Tensor& x) {
  throw DTypeError(op, "expected ", what, " of an integer dtype, got ", name, ' ', describe(x),
                   conversion_hint(name, DType::kI64));
}

void throw_not_bool(std::string_view op, std::string_view name, const Tensor& x) {
  throw DTypeError(op, "expected bool, got ", name, ' ', describe(x), conversion_hint(name, DType::kBool));
}

void throw_dtype_mismatch(std::string_view op, std::string_view name, const Tensor& x,
                          std::string_view other_name, const Tensor& other) {
  const bool both_floating = is_floating(x.dtype()) && is_floating(other.dtype());
  throw DTypeError(op, name, " is ", x.dtype(), " but ", other_name, " is ", other.dtype(), ": ", name, ' ',
                   describe(x), ", ", other_name, ' ', describe(other), conversion_hint(name, other.dtype()),
                   both_floating ? concat(", net.to(", enumerator_of(x.dtype()), ") a module") : "");
}

void throw_not_one_element(std::string_view op, std::string_view what, const Tensor& x,
                           std::string_view alternative) {
  throw ShapeError(op, what, " must have one element", alternative, ", got ", describe(x),
                   "; its mean() or sum() has one");
}

}  // namespace internal
}  // namespace gradus
