// OpCall: an RAII object at the entry of a public op, which sets the op's name for errors and checks that
// arguments are defined:
//
//   Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
//     const OpCall call("linear", {{"x", x}, {"weight", w}});
//
// Errors thrown during its lifetime on this thread have this name. If ops call each other, the name is that of the
// outermost op, which the user called.
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

  explicit OpCall(const char* op) : outer_(internal::called_op) {
    if (!outer_) internal::called_op = op;
  }
  // Errors: StateError for an undefined argument.
  OpCall(const char* op, std::initializer_list<Argument> needed) : OpCall(op) {
    for (const Argument& a : needed)
      if (!a.tensor.defined()) [[unlikely]]
        throw_undefined(op, a.name);
  }
  OpCall(const char* op, const char* name, const std::vector<Tensor>& needed) : OpCall(op) {
    for (size_t i = 0; i < needed.size(); ++i)
      if (!needed[i].defined()) [[unlikely]]
        throw_undefined(op, concat(name, '[', i, ']'));
  }
  ~OpCall() { internal::called_op = outer_; }
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

 private:
  [[noreturn, gnu::cold]] static void throw_undefined(const char* op, std::string_view name);

  const char* outer_;
};

}  // namespace gradus
