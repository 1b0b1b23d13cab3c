// Every row of the op table on cuda:0 against the CPU, in each of the row's dtypes: values, also for inputs
// in other layouts, gradients, and gradients of gradients, within the row's tolerance. Values must have the
// CPU's bits and layout, except for ops in exceptions.txt: those that round or lie otherwise, or have no kernel
// yet. A missing or wrong exception is an error.
//
//   op_table_test [exceptions.txt] [--brief]     without the file any op may be an exception
//
// The emulator is slow, so on it inputs of more than 2000 elements are tried in other layouts, and have
// gradients, in the row's first dtype alone. Beyond the first dtype and the first float dtype, all inputs
// change their layout at once, and second gradients are not tested: a kernel is one template for all dtypes.
// --brief tries small inputs in the first dtype alone. `./run test` runs all in one order of the emulated
// threads, and --brief in another for ops whose threads share sums or memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

const Device kCuda = Device::parse("cuda:0");
using Tensors = std::vector<Tensor>;

std::set<std::string>& found() {
  static std::set<std::string> lines;
  return lines;
}

bool& is_brief() {
  static bool brief = false;
  return brief;
}

std::set<size_t>& rows_without_kernels() {
  static std::set<size_t> rows;
  return rows;
}

Tensor channels_last(const Tensor& x) { return x.dim() == 4 ? raw::channels_last(x) : x; }

class CudaTable : public testing::TestWithParam<size_t> {
 protected:
  CudaTable() { set_num_threads(1); }
  const OpCase& row() const { return all_rows()[GetParam()]; }
  std::string name() const { return row().op + (row().variant.empty() ? "" : "/" + row().variant); }

  // Runs a part of the row. Returns whether the kernels for it are there; if not, the op is an exception.
  template <class F> bool has_kernels(const char* what, F&& f) {
    try {
      f();
      return true;
    } catch (const DeviceError& e) {
      if (std::string(e.what()).find("has no kernel for cuda:0 yet") == std::string::npos) throw;
      found().insert(row().op + ": no kernel for the " + what);
      return false;
    }
  }

  void expect_same(const Tensor& got, const Tensor& want, double terms, bool is_value,
                   const std::string& where) {
    ASSERT_EQ(to_string(got.shape()), to_string(want.shape())) << where;
    ASSERT_EQ(name_of(got.dtype()), name_of(want.dtype())) << where;
    ASSERT_EQ(to_string(got.device()), to_string(kCuda)) << where;
    const bool is_laid_alike = want.numel() == 0 || to_string(got.strides()) == to_string(want.strides());
    if (!is_laid_alike)
      found().insert(row().op + (is_value ? ": results lie otherwise" : ": gradients lie otherwise"));
    const Tensor here = raw::to(got, kCPU);
    if (bits(here) == bits(want)) return;
    Array expected;
    expected.shape = want.shape(), expected.v = want.to_vector<double>();
    const std::vector<double> v = here.to_vector<double>();
    OpCase bound;
    bound.terms = terms;
    const double allowed = tolerance(bound, want.dtype(), expected);
    bool differs = false;
    for (size_t i = 0; i < v.size(); ++i) {
      const double e = expected.v[i];
      if (v[i] == e || (std::isnan(e) && std::isnan(v[i]))) continue;
      differs = true;
      ASSERT_LE(std::abs(v[i] - e), allowed)
          << where << ": element " << i << " is " << v[i] << ", on the CPU " << e;
    }
    if (differs && is_value) found().insert(row().op + ": rounds otherwise");
  }

  static Tensors moved(const Tensors& x) {
    Tensors there;
    for (const Tensor& t : x) there.push_back(raw::to(t, kCuda));
    return there;
  }

  // The row as a function of its floating inputs alone.
  struct Followed {
    std::vector<size_t> numbers;
    Tensors inputs;
  };
  static Followed floating(const Tensors& x) {
    Followed f;
    for (size_t k = 0; k < x.size(); ++k)
      if (is_floating(x[k].dtype())) f.numbers.push_back(k), f.inputs.push_back(x[k]);
    return f;
  }
  // The gradients of <dy, row> with respect to the floating inputs.
  Tensors gradients(const Tensors& x, const Tensor& dy) const {
    const Followed followed = floating(x);
    const auto f = [&](const Tensors& v) {
      Tensors all = x;
      for (size_t k = 0; k < v.size(); ++k) all[followed.numbers[k]] = v[k];
      return row().run(all);
    };
    return autograd::grad(f, followed.inputs, dy);
  }
  // The gradients of the sum of their squares, with respect to the same and to dy.
  Tensors second_gradients(const Tensors& x, const Tensor& dy) const {
    Followed followed = floating(x);
    followed.inputs.push_back(dy);
    const auto f = [&](const Tensors& v) {
      Tensors all = x;
      for (size_t k = 0; k < followed.numbers.size(); ++k) all[followed.numbers[k]] = v[k];
      Tensor total;
      for (const Tensor& g : gradients(all, v.back())) {
        const Tensor squares = sum(to(g * g, DType::kF64));
        total = total ? total + squares : squares;
      }
      return total;
    };
    return autograd::grad(f, followed.inputs);
  }
  // Output gradients: multiples of 1/16, exact in every dtype.
  static Tensor seed_like(const Tensor& y) {
    std::vector<double> v(size_t(y.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = (i % 2 ? -1 : 1) * (0.5 + double(i * 7 % 16) / 16);
    return raw::to(tensor(v, y.shape()), y.dtype());
  }
  static int64_t largest(const Tensors& x) {
    int64_t n = 0;
    for (const Tensor& t : x) n = std::max(n, t.numel());
    return n;
  }
  // Whether inputs in this dtype are tried in other layouts, and gradients are computed.
  bool looks_closer(const Tensors& x, DType t) const {
    const bool is_first = t == row().dtypes[0], is_small = !is_emulated_ || largest(x) <= 2000;
    return is_brief() ? is_first && is_small : is_first || is_small;
  }
  // Whether each input changes its layout alone too, and gradients have gradients.
  bool looks_closest(DType t) const {
    const auto first_floating = std::ranges::find_if(row().dtypes, [](DType d) { return is_floating(d); });
    return !is_emulated_ || t == row().dtypes[0] || (is_floating(t) && t == *first_floating);
  }

  const bool is_emulated_ =
      internal::runtime_of(kCuda).properties(0).name.find("emulated") != std::string::npos;
};

TEST_P(CudaTable, IsAsOnTheCpu) {
  auto& allocator = internal::DeviceAllocator::of(kCuda);
  allocator.disable_caching(is_emulated_);
  for (size_t s = 0; s < row().samples.size(); ++s) {
    for (const DType t : row().dtypes) {
      const std::string where = name() + " sample " + std::to_string(s) + " " + std::string(name_of(t));
      const Tensors x = make_inputs(row(), s, t);
      if (x.empty()) continue;  // no input selects the device
      const bool runs = has_kernels(
          "value", [&] { expect_same(row().run(moved(x)), row().run(x), row().terms, true, where); });
      if (!runs) rows_without_kernels().insert(GetParam());
      if (!runs || HasFatalFailure()) return;
      if (!row().layouts || !looks_closer(x, t)) continue;
      for (Tensor (*const lay_out)(const Tensor&) : {&strided, &reversed_order, &channels_last}) {
        const bool images = std::any_of(x.begin(), x.end(), [](const Tensor& v) { return v.dim() == 4; });
        if (lay_out == &channels_last && !images) continue;
        for (size_t k = x.size() > 1 && looks_closest(t) ? 0 : x.size(); k <= x.size(); ++k) {
          Tensors here = x, there = moved(x);
          for (size_t i = 0; i < x.size(); ++i)
            if (k == i || k == x.size()) here[i] = lay_out(here[i]), there[i] = lay_out(there[i]);
          has_kernels("value", [&] {
            expect_same(row().run(there), row().run(here), row().terms, true,
                        where + " in another layout, input " + std::to_string(k));
          });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  allocator.disable_caching(false);
  if (!row().differentiable) return;
  for (size_t s = 0; s < row().samples.size(); ++s) {
    for (const DType t : row().dtypes) {
      const Tensors x = make_inputs(row(), s, t), there = moved(x);
      if (floating(x).inputs.empty() || !looks_closer(x, t)) continue;
      const std::string where = name() + " sample " + std::to_string(s) + " " + std::string(name_of(t));
      const auto compare = [&](const Tensors& got, const Tensors& want, double factor, const char* what) {
        ASSERT_EQ(got.size(), want.size());
        for (size_t k = 0; k < got.size(); ++k) {
          // A gradient may sum over all elements of the result; rounding errors grow like a random walk.
          const double terms = factor * (8 + row().terms + 2 * std::sqrt(double(largest(x))));
          if (want[k]) expect_same(got[k], want[k], terms, false, where + what + std::to_string(k));
        }
      };
      has_kernels("gradient", [&] {
        const Tensor dy = seed_like(row().run(x));
        if (!is_floating(dy.dtype())) return;
        const Tensor there_dy = raw::to(dy, kCuda);
        compare(gradients(there, there_dy), gradients(x, dy), 1, " gradient ");
        if (HasFatalFailure() || !row().second_order || !looks_closest(t)) return;
        has_kernels("gradient of the gradient", [&] {
          compare(second_gradients(there, there_dy), second_gradients(x, dy), 4, " second gradient ");
        });
      });
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<size_t> row_numbers() {
  std::vector<size_t> n(all_rows().size());
  for (size_t i = 0; i < n.size(); ++i) n[i] = i;
  return n;
}

INSTANTIATE_TEST_SUITE_P(All, CudaTable, testing::ValuesIn(row_numbers()), [](const auto& info) {
  const OpCase& r = all_rows()[info.param];
  std::string name = r.op + (r.variant.empty() ? "" : "_" + r.variant);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name + "_" + std::to_string(info.param);
});

}  // namespace

// Compares the exceptions found by all rows with those in the file. An op listed as rounding otherwise need
// not do so: how the CPU rounds depends on the processor. Nor need one whose results or gradients lie otherwise, which
// may depend on the dtype.
void compare_exceptions(const char* path) {
  std::ifstream file(path);
  std::set<std::string> known;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') known.insert(line);
  for (const std::string& line : found())
    if (!known.contains(line)) ADD_FAILURE() << "not in " << path << ": " << line;
  for (const std::string& line : known)
    if (!line.ends_with(" otherwise") && !found().contains(line))
      ADD_FAILURE() << "an exception no more: " << line;
}

}  // namespace gradus::optest

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  struct AllRows : testing::Environment {
    const char* path = nullptr;
    void TearDown() override {
      using namespace gradus::optest;  // NOLINT
      for (const std::string& line : found()) std::cout << line << '\n';
      std::cout << all_rows().size() << " rows, " << rows_without_kernels().size() << " without kernels\n";
      if (path && testing::GTEST_FLAG(filter) == "*") compare_exceptions(path);
    }
  };
  auto* const all = new AllRows;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--brief")
      gradus::optest::is_brief() = true;
    else
      all->path = argv[i];
  testing::AddGlobalTestEnvironment(all);
  return RUN_ALL_TESTS();
}
