// Formatting of errors: "[op] text". `op` is the op that the user called on this thread (internal::called_op) or,
// outside of ops, the constructor's argument. Context is prepended to the whole text.
#include "gradus/tensor/base/error.h"

#include <sstream>
#include <utility>

namespace gradus {

void internal::print_literal(std::ostream& out, const void* text) { out << static_cast<const char*>(text); }

std::string internal::concat_printed(std::initializer_list<Printed> parts) {
  std::ostringstream out;
  for (const Printed& part : parts) part.print(out, part.value);
  return std::move(out).str();
}

Error::Error(std::string_view op, std::initializer_list<internal::Printed> parts)
    : std::runtime_error(""),
      op_(internal::called_op ? std::string_view(internal::called_op) : op),
      text_(concat('[', op_, "] ", internal::concat_printed(parts))) {}

const char* Error::what() const noexcept { return text_.c_str(); }

void Error::add_context(const std::string& where) { text_ = where + ": " + text_; }

void Error::set_module(const std::string& path) {
  if (has_module_ || path.empty()) return;
  has_module_ = true;
  add_context("in " + path);
}

}  // namespace gradus
