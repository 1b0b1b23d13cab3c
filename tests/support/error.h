// Assertions on the type and text of exceptions.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <source_location>
#include <string>

#include "gradus/tensor/base/error.h"

namespace gradus {

// The text of the E that f throws; "no error" if f throws nothing. Other exceptions pass through.
template <class E = Error, class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

// Expects f to throw an E whose text contains each of `parts`.
template <class E, class F>
void expect_error(F&& f, std::initializer_list<std::string> parts,
                  std::source_location where = std::source_location::current()) {
  try {
    f();
    ADD_FAILURE_AT(where.file_name(), int(where.line())) << "no error";
  } catch (const E& e) {
    for (const std::string& part : parts)
      if (std::string(e.what()).find(part) == std::string::npos)
        ADD_FAILURE_AT(where.file_name(), int(where.line())) << '"' << part << "\" is not in: " << e.what();
  }
}

}  // namespace gradus

// Expects a statement to throw: EXPECT_ERROR(ShapeError, matmul(a, b), "f32[2,3]", "f32[2,4]"). The strings
// are parts of the error's text.
#define EXPECT_ERROR(Type, statement, ...) gradus::expect_error<Type>([&] { statement; }, {__VA_ARGS__})
