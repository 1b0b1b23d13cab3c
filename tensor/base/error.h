// Typed errors. A mistake of the user is an Error, or a class derived from it. A bug in Gradus
// is an InternalError.
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

// Joins the arguments, each as operator<< prints it.
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

// A mistake in how Gradus is used, or bad input from outside. `op()` names the op that the user called.
// Outside of ops it is the constructor's `op`: the function that found the mistake.
class Error : public std::runtime_error {
 public:
  template <class... Parts>
  explicit Error(std::string_view op, const Parts&... parts)
      : std::runtime_error(""),
        op_(internal::called_op ? std::string_view(internal::called_op) : op),
        text_(concat('[', op_, "] ", parts...)) {}
  const std::string& op() const { return op_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // Puts "<where>: " in front of the text: "while running backward of conv2d (layer3.1.conv2): ". Code that
  // catches and rethrows the error calls this.
  void add_context(const std::string& where) { text_ = where + ": " + text_; }
  // Names the module in which the error happened. Only the first path counts, which is
  // the innermost module's.
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
};  // a shape, stride or dimension does not fit
struct DTypeError : Error {
  using Error::Error;
};  // a dtype does not fit
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
};  // called in the wrong order: no recording, second backward, ...
struct FileError : Error {
  using Error::Error;
};  // a file is missing, truncated or malformed; the text names it

// A broken invariant of Gradus itself: a bug to report, never the caller's mistake.
class InternalError : public std::logic_error {
 public:
  template <class... Parts>
  explicit InternalError(const Parts&... parts) : std::logic_error(concat("internal error: ", parts...)) {}
};

}  // namespace gradus
