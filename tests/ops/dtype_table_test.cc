// The dtypes of results against PyTorch's (tests/golden/ops/dtypes.txt) and the table of docs/api/dtypes.md.
// A line of the file: op, dtype of a, dtype of b or kind of number, the result's dtype (- for an error), and
// that with b or a 0-dimensional.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"

namespace gradus {
namespace {

const DType kAll[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                      DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

DType by_name(const std::string& name) {
  for (DType t : kAll) {
    if (name_of(t) == name) return t;
  }
  throw ValueError("by_name", "no dtype is named ", name);
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;)
    if (word != "|") all.push_back(word);
  return all;
}

using Op = std::function<Tensor(const Tensor&, const Tensor&)>;
using OfNumber = std::function<Tensor(const Tensor&, Number)>;

const std::map<std::string, Op> kOps = {
    {"add", [](const Tensor& a, const Tensor& b) { return add(a, b); }},
    {"mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }},
    {"sub", [](const Tensor& a, const Tensor& b) { return sub(a, b); }},
    {"div", [](const Tensor& a, const Tensor& b) { return div(a, b); }},
    {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
    {"floor_divide", [](const Tensor& a, const Tensor& b) { return floor_divide(a, b); }},
    {"remainder", [](const Tensor& a, const Tensor& b) { return remainder(a, b); }},
    {"eq", [](const Tensor& a, const Tensor& b) { return eq(a, b); }},
    {"lt", [](const Tensor& a, const Tensor& b) { return lt(a, b); }},
    {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
    {"bitwise_and", [](const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }},
    {"where",
     [](const Tensor& a, const Tensor& b) { return where(ones({2}, {.dtype = DType::kBool}), a, b); }},
};
Tensor chosen() { return ones({2}, {.dtype = DType::kBool}); }
template <class F> OfNumber in_place(F f) {
  return [f](const Tensor& a, Number b) { return f(a, b), a; };
}
const std::map<std::string, OfNumber> kOfNumbers = {
    {"add", [](const Tensor& a, Number b) { return add(a, b); }},
    {"mul", [](const Tensor& a, Number b) { return b * a; }},
    {"sub", [](const Tensor& a, Number b) { return sub(a, b); }},
    {"div", [](const Tensor& a, Number b) { return div(a, b); }},
    {"pow", [](const Tensor& a, Number b) { return pow(a, b); }},
    {"floor_divide", [](const Tensor& a, Number b) { return floor_divide(a, b); }},
    {"remainder", [](const Tensor& a, Number b) { return remainder(a, b); }},
    {"eq", [](const Tensor& a, Number b) { return eq(a, b); }},
    {"lt", [](const Tensor& a, Number b) { return lt(a, b); }},
    {"where", [](const Tensor& a, Number b) { return where(chosen(), a, b); }},
    {"fmod", [](const Tensor& a, Number b) { return fmod(a, b); }},
    {"rsub", [](const Tensor& a, Number b) { return b - a; }},
    {"rpow", [](const Tensor& a, Number b) { return pow(b, a); }},
    {"clamp", [](const Tensor& a, Number b) { return clamp(a, b); }},
    {"clamp_max", [](const Tensor& a, Number b) { return clamp(a, {}, b); }},
    {"div_trunc", [](const Tensor& a, Number b) { return div(a, b, RoundingMode::kTrunc); }},
    {"div_floor", [](const Tensor& a, Number b) { return div(a, b, RoundingMode::kFloor); }},
    {"add_alpha", [](const Tensor& a, Number b) { return add(a, a, b); }},
    {"add_", in_place([](const Tensor& a, Number b) { add_(a, b); })},
    {"mul_", in_place([](const Tensor& a, Number b) { mul_(a, b); })},
    {"div_", in_place([](const Tensor& a, Number b) { div_(a, b); })},
    {"clamp_", in_place([](const Tensor& a, Number b) { clamp_(a, b, {}); })},
    {"masked_fill", [](const Tensor& a, Number b) { return masked_fill(a, chosen(), b); }},
    {"where_numbers", [](const Tensor&, Number b) { return where(chosen(), b, b); }},
};
const std::map<std::string, std::vector<Number>> kNumbers = {
    {"int", {2}}, {"float", {2.0, 0.5, 3.f, double(INFINITY)}}, {"truth", {true}}};

// Lines in which Gradus differs on purpose: it subtracts bools as 0 or 1 and takes a bool as alpha, which
// PyTorch refuses, and refuses alpha between bools and powers of bools, which PyTorch takes.
bool is_ours(const std::vector<std::string>& w) {
  const bool bools = w[1] == "bool" && (w[2] == "bool" || w[2] == "truth");
  if (w[0] == "sub" || w[0] == "rsub") return w[3] == "-" && !bools;
  return (w[0] == "add_alpha" && (w[2] == "truth" || w[1] == "bool")) ||
         (w[0] == "pow" && w[2] == "truth" && bools);
}

// "-" for an error.
template <class F> std::string result(F f) {
  try {
    return std::string(name_of(f().dtype()));
  } catch (const DTypeError&) {
    return "-";
  }
}

TEST(DTypeTable, ResultsHavePyTorchsDtypes) {
  std::ifstream file("tests/golden/ops/dtypes.txt");
  ASSERT_TRUE(file) << "dtypes.txt is missing";
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    const auto w = words(line);
    ASSERT_GE(w.size(), 4u) << line;
    ++lines;
    const DType s = by_name(w[1]);
    const Tensor a = ones({2}, {.dtype = s}), p = ones({}, {.dtype = s});
    if (is_ours(w)) continue;
    if (const auto numbers = kNumbers.find(w[2]); numbers != kNumbers.end()) {
      for (const Number number : numbers->second) {
        const bool beyond = w[0] == "masked_fill" && is_integral(s) && std::isinf(number.to_double());
        if (beyond) continue;
        EXPECT_EQ(result([&] { return kOfNumbers.at(w[0])(clone(a), number); }), w[3])
            << line << ": " << number;
      }
      continue;
    }
    const DType t = by_name(w[2]);
    const Tensor b = ones({2}, {.dtype = t}), q = ones({}, {.dtype = t});
    const Op& op = kOps.at(w[0]);
    EXPECT_EQ(result([&] { return op(a, b); }), w[3]) << line;
    EXPECT_EQ(result([&] { return op(a, q); }), w[4]) << line << " (b 0-dimensional)";
    EXPECT_EQ(result([&] { return op(p, b); }), w[5]) << line << " (a 0-dimensional)";
  }
  EXPECT_GT(lines, 1900);
}

TEST(DTypeTable, ThePageSaysWhatTheCodeDoes) {
  std::ifstream page("docs/api/dtypes.md");
  ASSERT_TRUE(page) << "docs/api/dtypes.md is missing";
  std::vector<std::string> columns;
  int cells = 0;
  for (std::string line; std::getline(page, line);) {
    const auto w = words(line);
    if (line.rfind("| | f64 |", 0) == 0) columns = w;
    const bool is_row = std::ranges::count(line, '|') == int64_t(columns.size()) + 2;  // of that table
    if (columns.empty() || !is_row || w.size() != columns.size() + 1 || w[0] == "---") continue;
    for (size_t k = 0; k < columns.size(); ++k, ++cells) {
      const DType s = by_name(w[0]), t = by_name(columns[k]);
      EXPECT_EQ(name_of(promote(s, t)), w[k + 1]) << line;
      EXPECT_EQ(name_of(add(ones({2}, {.dtype = s}), ones({2}, {.dtype = t})).dtype()), w[k + 1]) << line;
    }
  }
  EXPECT_EQ(cells, 100);
}

}  // namespace
}  // namespace gradus
