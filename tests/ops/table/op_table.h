// The op test table: one row per op (or variant of an op). From each row op_table_test.cc makes the tests:
// value against an f64 reference, strided and channels-last inputs, gradients of first and second order,
// dtypes, the asynchronous cpu:1, meta shapes and error texts. A public op without a row fails
// EveryPublicOpHasARow, one without an error case EveryOpShowsItsErrors.
//
//   add_row({.op = "exp", .samples = {{in({3, 4})}, {in({})}}, .run = RUN(exp(x[0])),
//            .reference = unary([](double v) { return std::exp(v); })});
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/tensor.h"

namespace gradus::optest {

// --- inputs ---

// What the elements of a sample input look like. Values are a function of (row, sample,
// input, element) alone.
enum class Fill {
  kUniform,   // in [lo, hi)
  kNonzero,   // in +-[0.1, hi): away from a kink at 0
  kDistinct,  // a shuffled grid in [lo, hi]: no ties, neighbors at least (hi - lo) / n apart
  kInteger,   // whole numbers in [lo, hi)
  kMask,      // 0 or 1
};

struct Input {
  Shape shape;
  Fill fill = Fill::kUniform;
  double lo = -1.5, hi = 1.5;
  bool fixed = false;  // keeps `dtype`; otherwise it takes the dtype that the test runs in
  DType dtype = DType::kF32;
  std::vector<double> values;  // given element by element; overrides `fill`
};

Input in(const Shape& shape, double lo = -1.5, double hi = 1.5);
Input off_zero(const Shape& shape, double hi = 1.5);
Input distinct(const Shape& shape, double lo = -2, double hi = 2);
Input indices(const Shape& shape, int64_t below);  // i64 in [0, below)
Input indices(const Shape& shape, std::vector<double> values);
Input mask(const Shape& shape);  // bool

using Sample = std::vector<Input>;
using X = const std::vector<Tensor>&;

// --- references ---

// Numbers with checked indices: a reference that fits its sample's sizes alone throws std::out_of_range at
// others.
struct Numbers : std::vector<double> {
  using std::vector<double>::vector;
  Numbers(std::vector<double> v) : std::vector<double>(std::move(v)) {}
  double& operator[](size_t i) { return at(i); }
  const double& operator[](size_t i) const { return at(i); }
};

// A row-major f64 array: what references compute with, without any of Gradus' ops.
struct Array {
  Shape shape;
  Numbers v;

  Array() = default;
  explicit Array(const Shape& s, double fill = 0) : shape(s), v(size_t(s.product()), fill) {}
  explicit Array(std::initializer_list<int64_t> sizes, double fill = 0)
      : Array(Shape(std::span(sizes.begin(), sizes.size())), fill) {}
  double& at(std::initializer_list<int64_t> i) { return v[size_t(offset(i))]; }
  double at(std::initializer_list<int64_t> i) const { return v[size_t(offset(i))]; }
  // Errors: std::out_of_range for an index beyond the shape.
  int64_t offset(std::initializer_list<int64_t> i) const;
  int64_t size(int d) const { return shape[d < 0 ? d + shape.size() : d]; }
  int dim() const { return shape.size(); }
};
using A = const std::vector<Array>&;
using Reference = std::function<Array(A)>;

// Element `i` of `shape` (row-major) read from `a`, which broadcasts to `shape`.
double broadcast_at(const Array& a, const Shape& shape, int64_t i);
Reference unary(std::function<double(double)> f);
Reference binary(std::function<double(double, double)> f);  // with broadcasting
Reference ternary(std::function<double(double, double, double)> f);
// Calls f(values along `dim`) for every line of x along `dim`: a reduction when f returns one value.
Array along(const Array& x, int dim, bool keepdim,
            const std::function<std::vector<double>(std::vector<double>)>& f);
Array transpose_to(const Array& x, const std::vector<int>& order);

// --- rows ---

// A row's function of its inputs: RUN(add(x[0], x[1])).
#define RUN(...) [=](X x) { return __VA_ARGS__; }

struct ErrorCase {
  std::string what;  // "mismatched shapes"
  std::function<void()> call;
  std::vector<std::string> says;  // parts of the error's text, e.g. both shapes
  std::string op = "";            // the op that the error names, if not the row's
};

// A call that fails, and parts of its error's text: ERROR_CASE(add(a, b), "[2,3]", "[2,4]").
#define ERROR_CASE(call, ...)             \
  ErrorCase {                             \
    #call, [=] { call; }, { __VA_ARGS__ } \
  }

struct OpCase {
  std::string op;            // the public function's name
  std::string variant = "";  // distinguishes rows of one op
  std::vector<Sample> samples;
  std::function<Tensor(X)> run;
  Reference reference = nullptr;  // none: the value is tested elsewhere
  // Tolerance: eps(dtype) * (4 + terms) * max(1, |expected|max), where `terms` is the length of the longest
  // sum or chain of roundings behind an element.
  double terms = 4;
  // Result does not take the inputs' dtype: kBool for comparisons, kI64 for argmax.
  bool fixed_result = false;
  DType result = DType::kBool;
  bool differentiable = true;
  bool second_order = true;
  std::vector<DType> dtypes = {DType::kF32, DType::kF64};
  bool layouts = true;  // strided and channels-last inputs are accepted
  std::vector<ErrorCase> errors = {};
  bool takes_all = false;        // an undefined tensor is its only wrong argument
  double step = 1e-4;            // of the gradient check
  bool shape_from_data = false;  // the result's shape depends on values: not run on the meta device
  bool mixes_devices = false;    // accepts inputs on two devices
};

// Adds a row while the program starts: each family's file, op_table_<family>.cc, does so in an initializer.
void add_row(OpCase row);
const std::vector<OpCase>& all_rows();
// Public functions that a test elsewhere covers, with its name.
void covered_elsewhere(const std::string& op, const std::string& test);
const std::vector<std::pair<std::string, std::string>>& ops_covered_elsewhere();

// One input; its values depend on `key` and `stream`.
Tensor make_input(const Input& want, uint64_t key, uint64_t stream, DType dtype);
// The row's inputs for one sample; floating ones in `dtype`.
std::vector<Tensor> make_inputs(const OpCase& row, size_t sample, DType dtype, Device device = kCPU);
// The same elements with the stride of each dim doubled, or with the dims in reverse order in memory.
Tensor strided(const Tensor& x);
Tensor reversed_order(const Tensor& x);
// The bytes of the elements, row-major.
std::string bits(const Tensor& x);
std::vector<Array> to_arrays(X x);
double tolerance(const OpCase& row, DType dtype, const Array& expected);

}  // namespace gradus::optest
