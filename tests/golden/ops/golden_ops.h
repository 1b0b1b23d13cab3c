// Compares ops with values that PyTorch computed: each line of a family's table is a case, run in f64 and f32
// on contiguous, strided and channels-last inputs. <family>.py in this folder writes the values to
// <family>.safetensors; golden.py documents the file.
//
//   static const bool added = add_golden_ops("norm", {
//       {"layer_norm", [](X x) { return layer_norm(x[0], {4}, x[1], x[2]); }},
//       {"sort", [](X x) { auto [v, i] = sort(x[0], 1); return std::vector<Tensor>{v, i}; }},
//   });
//
// f64: |y - PyTorch's| <= 1e-12 of the largest |y|; gradients alike. f32: at most twice PyTorch's own error
// plus 1e-6 of that scale. Integers and bools are equal. A case of the file that no line names is a failure.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/tensor/tensor.h"

namespace gradus::golden {

using X = const std::vector<Tensor>&;  // a case's inputs, in the file's order

struct GoldenOp {
  std::string name;
  std::function<std::vector<Tensor>(X)> run;
  bool layouts = true;    // inputs may be strided or channels-last
  bool gradients = true;  // compare them where the file has them

  template <class F>
  GoldenOp(std::string case_name, F f, bool any_layout = true, bool with_gradients = true)
      : name(std::move(case_name)), layouts(any_layout), gradients(with_gradients) {
    if constexpr (std::is_same_v<std::invoke_result_t<F, X>, Tensor>)
      run = [f](X x) { return std::vector<Tensor>{f(x)}; };
    else
      run = f;
  }
};

// Reads PyTorch's values from tests/golden/ops/<family>.safetensors, relative to the working directory.
// Errors: FileError.
io::SafetensorsFile load_golden(const std::string& family);
// The names of the file's cases, and the number of inputs of a case.
std::set<std::string> case_names(const io::SafetensorsFile& file);
size_t inputs_of(const io::SafetensorsFile& file, const std::string& name);
// Expects `op.run` on the inputs of the case `op.name` to give its results and gradients.
void expect_golden(const io::SafetensorsFile& file, const GoldenOp& op);
// Registers a test for each op, which runs all dtypes and layouts, and one that fails if the file has a case
// without an op. Each op must be a case of the file. Returns true, for static initializers.
bool add_golden_ops(const std::string& family, const std::vector<GoldenOp>& ops);

}  // namespace gradus::golden
