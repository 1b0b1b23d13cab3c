// The StateError for an undefined tensor among the arguments of an op (OpCall's constructors).
#include "gradus/tensor/op_call.h"

namespace gradus {

void OpCall::throw_undefined(const char* op, std::string_view name) {
  throw StateError(op, name, " is undefined (none) where a tensor is needed");
}

}  // namespace gradus
