// OpCall: an RAII object at the entry of a public op, which names the op in errors (and in reports of device
// memory) and checks that tensor arguments are defined:
//
//   Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
//     const OpCall call("linear", {{"x", x}, {"weight", w}});
//     ...
//   }
//
// Errors that are thrown on this thread during the lifetime of an OpCall have its op's name. If ops call each
// other, errors have the name of the outermost op, which the user called. Pass op names as string literals: only
// the pointer is kept.
#pragma once

#include <initializer_list>
#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

class OpCall {
 public:
  struct Argument {
    const char* name;
    const Tensor& tensor;
  };

  // Checks no arguments.
  explicit OpCall(const char* op) : outer_(internal::called_op) {
    if (!outer_) internal::called_op = op;
  }
  // Errors: StateError if one of the `required` tensors is undefined.
  OpCall(const char* op, std::initializer_list<Argument> required) : OpCall(op) {
    for (const Argument& a : required)
      if (!a.tensor.defined()) [[unlikely]]
        throw_undefined(op, a.name);
  }
  // For an argument `name` that is a list of tensors; errors name the tensor "name[i]".
  // Errors: StateError if one of the `required` tensors is undefined.
  OpCall(const char* op, const char* name, const std::vector<Tensor>& required) : OpCall(op) {
    for (size_t i = 0; i < required.size(); ++i)
      if (!required[i].defined()) [[unlikely]]
        throw_undefined(op, concat(name, '[', i, ']'));
  }
  ~OpCall() { internal::called_op = outer_; }
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

 private:
  [[noreturn, gnu::cold]] static void throw_undefined(const char* op, std::string_view name);

  const char* outer_;  // the name of the OpCall around this one; null for the outermost
};

}  // namespace gradus
