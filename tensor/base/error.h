// Exception types. The subclasses of Error in this file are mistakes of the caller or bad input; subclasses
// elsewhere can also be failures of the environment: DeviceFailure (device_failure.h: a device, a lack of
// memory) and dist::DistributedError (another rank, the network). InternalError is a bug in Gradus.
//
//   throw ShapeError("conv2d", "weight has ", w.size(1), " input channels but x has ", x.size(1),
//                    ": x ", describe(x));
//
// prints `[conv2d] weight has 16 input channels but x has 8: x f32[32,8,28,28] cpu`.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradus {

namespace internal {
// A value, and the function that prints it.
struct Printed {
  const void* value;
  void (*print)(std::ostream& out, const void* value);
};
void print_literal(std::ostream& out, const void* text);
template <size_t n> Printed printed(const char (&text)[n]) { return {text, &print_literal}; }
template <class T> Printed printed(const T& value) {
  return {std::addressof(value), [](std::ostream& out, const void* x) { out << *static_cast<const T*>(x); }};
}
std::string concat_printed(std::initializer_list<Printed> parts);
}  // namespace internal

// Concatenates the arguments as printed by operator<<.
template <class... Parts> std::string concat(const Parts&... parts) {
  return internal::concat_printed({internal::printed(parts)...});
}

namespace internal {
// The name of the op that the user called on this thread; null outside of ops. OpCall
// (gradus/tensor/op_call.h) sets it.
inline constinit thread_local const char* called_op = nullptr;
}  // namespace internal

// The base class of all errors but InternalError. op() is the op that the user called, or, outside of ops,
// the constructor's argument.
class Error : public std::runtime_error {
 public:
  template <class... Parts>
  explicit Error(std::string_view op, const Parts&... parts)
      : Error(op, std::initializer_list<internal::Printed>{internal::printed(parts)...}) {}
  const std::string& op() const { return op_; }
  const char* what() const noexcept override;
  // Prepends "<where>: " to the text, such as "while running backward of conv2d (layer3.1.conv2): ". For code that
  // catches and rethrows the error. Pointers of what() become invalid.
  void add_context(const std::string& where);
  // Prepends the path of the module in which the error happened. Only the first call has an effect: that of the
  // innermost module.
  void set_module(const std::string& path);

 private:
  Error(std::string_view op, std::initializer_list<internal::Printed> parts);

  std::string op_, text_;
  bool has_module_ = false;
};

struct ShapeError : Error {
  using Error::Error;
};  // a shape, stride or dimension is wrong
struct DTypeError : Error {
  using Error::Error;
};  // a dtype is wrong
struct DeviceError : Error {
  using Error::Error;
};  // tensors on different devices, or no kernel for a device
struct IndexError : Error {
  using Error::Error;
};  // an index out of range
struct ValueError : Error {
  using Error::Error;
};  // an argument out of its domain
struct StateError : Error {
  using Error::Error;
};  // a call in the wrong order: no recording, second backward, ...
struct FileError : Error {
  using Error::Error;
};  // a file is missing, truncated or malformed; the text names it

// A broken invariant of Gradus: a bug to report, never a mistake of the caller.
class InternalError : public std::logic_error {
 public:
  template <class... Parts>
  explicit InternalError(const Parts&... parts) : std::logic_error(concat("internal error: ", parts...)) {}
};

}  // namespace gradus
