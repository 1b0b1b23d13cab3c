// Exception types. Error and its subclasses are mistakes of the caller or bad input; InternalError is a bug in
// Gradus.
//
//   throw ShapeError("conv2d", "weight has ", w.size(1), " input channels but x has ", x.size(1),
//                    ": x ", describe(x));
//
// prints `[conv2d] weight has 16 input channels but x has 8: x f32[32,8,28,28] cpu`.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace gradus {

// Concatenates the arguments as printed by operator<<.
template <class... Parts> std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

namespace internal {
// The name of the op that the user called on this thread; null outside of ops. OpCall
// (gradus/tensor/op_call.h) sets it.
inline constinit thread_local const char* called_op = nullptr;
}  // namespace internal

// A wrong use of Gradus, or bad input. op() is the op that the user called, or, outside of ops, the constructor's
// argument.
class Error : public std::runtime_error {
 public:
  template <class... Parts>
  explicit Error(std::string_view op, const Parts&... parts)
      : std::runtime_error(""),
        op_(internal::called_op ? std::string_view(internal::called_op) : op),
        text_(concat('[', op_, "] ", parts...)) {}
  const std::string& op() const { return op_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // Prepends "<where>: " to the text, such as "while running backward of conv2d (layer3.1.conv2): ". For code that
  // catches and rethrows the error.
  void add_context(const std::string& where) { text_ = where + ": " + text_; }
  // Prepends the path of the module in which the error happened. Only the first call has an effect: that of the
  // innermost module.
  void set_module(const std::string& path) {
    if (has_module_ || path.empty()) return;
    has_module_ = true;
    add_context("in " + path);
  }

 private:
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
