// The tests of the op test table (op_table.h): each runs for each row that is linked into the program. There
// is one program per op_table_<family>.cc.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/graph/tracking.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/table/op_table.h"
#include "gradus/tests/ops/values.h"

namespace gradus::optest {
namespace {

// Result and expectation agree within the row's tolerance, element by element; NaN and infinities exactly.
void expect_close(const OpCase& row, const Tensor& y, const Array& expected, DType dtype,
                  const std::string& where) {
  ASSERT_EQ(to_string(y.shape()), to_string(expected.shape)) << where;
  const std::vector<double> v = y.to_vector<double>();
  const double allowed = tolerance(row, dtype, expected);
  for (size_t i = 0; i < v.size(); ++i) {
    const double e = expected.v[i];
    if (std::isnan(e) ? std::isnan(v[i]) : std::isinf(e) ? v[i] == e : std::abs(v[i] - e) <= allowed)
      continue;
    FAIL() << where << ": element " << i << " of " << describe(y) << " is " << v[i] << ", expected " << e
           << " (off by " << std::abs(v[i] - e) << ", allowed " << allowed << ")";
  }
}

class OpTable : public testing::TestWithParam<size_t> {
 protected:
  // Samples are too small for threads. ThreadsDoNotMatter sets its own number.
  OpTable() { set_num_threads(1); }
  const OpCase& row() const { return all_rows()[GetParam()]; }
  std::string at(size_t sample, DType t) const {
    std::string s =
        row().op + "/" + row().variant + " sample " + std::to_string(sample) + " " + std::string(name_of(t));
    for (const Input& i : row().samples[sample]) s += " " + to_string(i.shape);
    return s;
  }
  DType result_type(DType t) const { return row().fixed_result ? row().result : t; }
  // Among more than 400 elements some are close to a kink: a shorter step does not cross it.
  autograd::GradCheckOptions options(const std::vector<Tensor>& x) const {
    int64_t largest = 0;
    for (const Tensor& t : x) largest = std::max(largest, t.numel());
    if (largest <= 400) return {.step = row().step};
    return {.step = 1e-6, .directions = 1};
  }
  // Gradients of sum(dy * y) with respect to the floating inputs.
  std::vector<Tensor> gradients(const std::vector<Tensor>& x, const Tensor& dy) const {
    std::vector<size_t> wanted;
    std::vector<Tensor> floating;
    for (size_t k = 0; k < x.size(); ++k) {
      if (is_floating(x[k].dtype())) wanted.push_back(k), floating.push_back(x[k]);
    }
    const auto f = [&](const std::vector<Tensor>& v) {
      std::vector<Tensor> all = x;
      for (size_t k = 0; k < wanted.size(); ++k) all[wanted[k]] = v[k];
      return row().run(all);
    };
    return autograd::grad(f, floating, dy);
  }
  bool has(DType t) const { return std::count(row().dtypes.begin(), row().dtypes.end(), t) != 0; }
};

TEST_P(OpTable, ValueMatchesTheF64Reference) {
  if (!row().reference) GTEST_SKIP();
  for (DType t : row().dtypes) {
    for (size_t s = 0; s < row().samples.size(); ++s) {
      const std::vector<Tensor> x = make_inputs(row(), s, t);
      const Tensor y = row().run(x);
      EXPECT_EQ(name_of(y.dtype()), name_of(result_type(t))) << at(s, t);
      expect_close(row(), y, row().reference(to_arrays(x)), t, at(s, t));
    }
  }
}

TEST_P(OpTable, TwoRunsAgreeBitForBit) {
  for (DType t : row().dtypes) {
    for (size_t s = 0; s < row().samples.size(); ++s) {
      const std::vector<Tensor> x = make_inputs(row(), s, t);
      EXPECT_EQ(bits(row().run(x)), bits(row().run(x))) << at(s, t);
    }
  }
}

TEST_P(OpTable, InputsAndGivenGradientsAreNotChanged) {
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const DType t = row().dtypes[0];
    const std::vector<Tensor> x = make_inputs(row(), s, t);
    std::vector<std::string> before;
    for (const Tensor& v : x) before.push_back(bits(v));
    const Tensor y = row().run(x);
    if (row().differentiable && !x.empty()) {
      const Tensor dy = empty_like(y);
      raw::fill_(dy, 1.5);
      const std::string dy_before = bits(dy);
      gradients(x, dy);
      EXPECT_EQ(bits(dy), dy_before) << at(s, t) << ": backward wrote into the dy it was given";
    }
    for (size_t k = 0; k < x.size(); ++k)
      EXPECT_EQ(bits(x[k]), before[k]) << at(s, t) << ": input " << k << " changed";
  }
}

TEST_P(OpTable, ThreadsDoNotMatter) {
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const DType t = row().dtypes[0];
    const std::vector<Tensor> x = make_inputs(row(), s, t);
    const Tensor one = row().run(x);
    set_num_threads(3);
    const Tensor three = row().run(x);
    set_num_threads(1);
    Array expected;
    expected.shape = one.shape(), expected.v = one.to_vector<double>();
    expect_close(row(), three, expected, t, at(s, t) + " with 3 threads");
  }
}

TEST_P(OpTable, LayoutOfInputsDoesNotMatter) {
  if (!row().layouts) GTEST_SKIP();
  const auto compare = [&](Tensor (*lay_out)(const Tensor&), bool images_only, const char* name) {
    for (DType t : row().dtypes) {
      for (size_t s = 0; s < row().samples.size(); ++s) {
        const std::vector<Tensor> x = make_inputs(row(), s, t);
        // Each input alone, then all together.
        for (size_t k = 0; k <= x.size(); ++k) {
          std::vector<Tensor> other = x;
          for (size_t i = 0; i < x.size(); ++i) {
            if ((k == i || k == x.size()) && (!images_only || x[i].dim() == 4)) other[i] = lay_out(x[i]);
          }
          Array expected;
          const Tensor plain = row().run(x);
          expected.shape = plain.shape(), expected.v = plain.to_vector<double>();
          expect_close(row(), row().run(other), expected, t,
                       at(s, t) + " with " + name + " input " + std::to_string(k));
        }
      }
    }
  };
  compare(&strided, false, "strided");
  compare(&reversed_order, false, "reversed-order");
  compare(&raw::channels_last, true, "channels-last");
}

TEST_P(OpTable, GradientMatchesDifferences) {
  if (!row().differentiable || !has(DType::kF64)) GTEST_SKIP();
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const std::vector<Tensor> x = make_inputs(row(), s, DType::kF64);
    const auto check = autograd::gradcheck(row().run, x, options(x));
    EXPECT_TRUE(check) << at(s, DType::kF64) << ": " << check.message;
  }
}

// Pipeline stages split backward: gradients of the stage's input, here each input in turn, then of the
// parameters, here the other inputs. Both together agree with one backward.
TEST_P(OpTable, GradientInTwoPartsIsThatInOne) {
  if (!row().differentiable || !has(DType::kF64)) GTEST_SKIP();
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const std::vector<Tensor> x = make_inputs(row(), s, DType::kF64);
    std::vector<Tensor> floating;
    for (const Tensor& t : x)
      if (is_floating(t.dtype())) floating.push_back(t);
    GradManager gm;
    gm.attach(floating);
    std::vector<std::vector<double>> want;
    for (size_t input = 0; input <= floating.size(); ++input) {  // last: one backward
      const bool whole = input == floating.size();
      for (const Tensor& t : floating) t.set_grad({});
      Context::current().generator->manual_seed(1);
      auto recording = gm.record();
      const Tensor y = row().run(x);
      if (!autograd::is_tracked(y)) break;
      const Tensor dy = random_tensor(y.shape(), y.dtype(), 7);
      if (whole) {
        recording.backward(y, dy);
      } else {
        recording.backward_inputs(floating[input], y, dy);
        recording.backward_weights();
      }
      std::vector<double> all;
      for (const Tensor& t : floating) {
        const auto v = t.grad().defined() ? t.grad().to_vector<double>() : std::vector<double>(1);
        all.insert(all.end(), v.begin(), v.end());
      }
      want.push_back(all);
    }
    if (want.empty()) continue;
    double largest = 0;
    for (double v : want.back()) largest = std::max(largest, std::abs(v));
    for (size_t input = 0; input + 1 < want.size(); ++input) {
      ASSERT_EQ(want[input].size(), want.back().size()) << at(s, DType::kF64);
      for (size_t i = 0; i < want[input].size(); ++i)
        ASSERT_TRUE(want[input][i] == want.back()[i] ||
                    std::abs(want[input][i] - want.back()[i]) <= 1e-12 * largest ||
                    (std::isnan(want[input][i]) && std::isnan(want.back()[i])))
            << at(s, DType::kF64) << " input " << input << " element " << i;
    }
  }
}

TEST_P(OpTable, GradientIsTheSameForChannelsLastInputs) {
  if (!row().differentiable || !row().layouts || !has(DType::kF64)) GTEST_SKIP();
  for (size_t s = 0; s < row().samples.size(); ++s) {
    std::vector<Tensor> x = make_inputs(row(), s, DType::kF64);
    if (std::none_of(x.begin(), x.end(), [](const Tensor& t) { return t.dim() == 4; })) continue;
    for (Tensor& t : x) {
      if (t.dim() == 4) t = raw::channels_last(t);
    }
    const auto check = autograd::gradcheck(row().run, x, options(x));
    EXPECT_TRUE(check) << at(s, DType::kF64) << ": " << check.message;
  }
}

// Difference quotients check the f64 kernels; f32 has kernels of its own.
TEST_P(OpTable, GradientInF32MatchesF64) {
  if (!row().differentiable || !has(DType::kF64) || !has(DType::kF32)) GTEST_SKIP();
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const std::vector<Tensor> x = make_inputs(row(), s, DType::kF32);
    std::vector<Tensor> wide = x, channels_last = x;
    for (size_t k = 0; k < x.size(); ++k) {
      if (x[k].dtype() == DType::kF32) wide[k] = raw::to(x[k], DType::kF64);
      if (x[k].dim() == 4 && row().layouts) channels_last[k] = raw::channels_last(x[k]);
    }
    const Tensor y = row().run(x);
    std::vector<double> v(size_t(y.numel()));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = (i % 2 ? -1 : 1) * (0.5 + double(i * 7 % 16) / 16);  // exact in f32
    const Tensor dy = tensor(v, y.shape());
    const std::vector<Tensor> expected = gradients(wide, dy);
    for (const std::vector<Tensor>& inputs : {x, channels_last}) {
      const std::vector<Tensor> g = gradients(inputs, raw::to(dy, y.dtype()));
      ASSERT_EQ(g.size(), expected.size());
      for (size_t k = 0; k < g.size(); ++k) {
        ASSERT_EQ(name_of(g[k].dtype()), "f32") << at(s, DType::kF32);
        Array e = to_arrays({expected[k]})[0];
        // A gradient may be a sum over all of the result, whose rounding errors grow like a random walk.
        OpCase bound;
        bound.terms = 8 + row().terms + 2 * std::sqrt(double(y.numel()));
        expect_close(bound, g[k], e, DType::kF32, at(s, DType::kF32) + " gradient " + std::to_string(k));
      }
    }
  }
}

TEST_P(OpTable, GradientOfTheGradientMatchesDifferences) {
  if (!row().differentiable || !row().second_order || !has(DType::kF64)) GTEST_SKIP();
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const std::vector<Tensor> x = make_inputs(row(), s, DType::kF64);
    const auto check = autograd::gradgradcheck(row().run, x, options(x));
    EXPECT_TRUE(check) << at(s, DType::kF64) << ": " << check.message;
  }
}

TEST_P(OpTable, AsynchronousDeviceGivesTheSame) {
  const Device other{DeviceType::kCPU, 1};
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const DType t = row().dtypes[0];
    const std::vector<Tensor> x = make_inputs(row(), s, t);
    if (x.empty()) continue;  // no input names a device
    const Tensor y = row().run(make_inputs(row(), s, t, other));
    EXPECT_EQ(to_string(y.device()), to_string(other)) << at(s, t);
    synchronize(other);
    EXPECT_EQ(bits(raw::to(y, kCPU)), bits(row().run(x))) << at(s, t);
  }
}

TEST_P(OpTable, MetaDeviceGivesTheShape) {
  if (row().shape_from_data) GTEST_SKIP();
  const Device meta{DeviceType::kMeta, 0};
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const DType t = row().dtypes[0];
    const std::vector<Tensor> x = make_inputs(row(), s, t);
    if (x.empty()) continue;
    std::vector<Tensor> shapes;
    for (const Tensor& v : x) shapes.push_back(empty(v.shape(), {.dtype = v.dtype(), .device = meta}));
    const Tensor y = row().run(shapes), real = row().run(x);
    EXPECT_EQ(to_string(y.shape()), to_string(real.shape())) << at(s, t);
    EXPECT_EQ(name_of(y.dtype()), name_of(real.dtype())) << at(s, t);
    EXPECT_EQ(to_string(y.strides()), to_string(real.strides())) << at(s, t);
    EXPECT_EQ(to_string(y.device()), "meta") << at(s, t);
  }
}

TEST_P(OpTable, InputsOnTwoDevicesAreAnError) {
  if (row().mixes_devices) GTEST_SKIP();
  const Device other{DeviceType::kCPU, 1};
  for (size_t s = 0; s < row().samples.size(); ++s) {
    std::vector<Tensor> x = make_inputs(row(), s, row().dtypes[0]);
    if (x.size() < 2) continue;
    x.back() = raw::to(x.back(), other);
    try {
      row().run(x);
      ADD_FAILURE() << at(s, row().dtypes[0]) << ": last input on cpu:1, no error";
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find("cpu:1"), std::string::npos) << e.what();
    }
  }
}

TEST_P(OpTable, AnUndefinedInputIsAnErrorOrStandsForNone) {
  // An undefined index selects a whole dim; an error then concerns the remaining indices.
  const bool indexes = row().op == "index" || row().op == "index_put" || row().op == "Indexed";
  for (size_t s = 0; s < row().samples.size(); ++s) {
    for (size_t k = 0; k < row().samples[s].size(); ++k) {
      std::vector<Tensor> x = make_inputs(row(), s, row().dtypes[0]);
      x[k] = {};
      try {
        row().run(x);
      } catch (const Error& e) {
        if (e.op() == "Tensor") continue;  // the row's own lambda used the input
        if (indexes && k > 0) continue;
        EXPECT_THAT(e.what(),
                    testing::MatchesRegex("\\[[a-z0-9_]+\\] [a-z_0-9]+(\\[[0-9]+\\])? is undefined.*"))
            << at(s, row().dtypes[0]) << " without input " << k;
      }
    }
  }
}

TEST_P(OpTable, ErrorsSayWhatWasGiven) {
  for (const ErrorCase& c : row().errors) {
    try {
      c.call();
      ADD_FAILURE() << row().op << ": " << c.what << ": no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), c.op.empty() ? row().op : c.op) << e.what();
      for (const std::string& part : c.says) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
            << row().op << ": " << c.what << ": \"" << part << "\" is not in: " << e.what();
      }
    }
  }
}

std::vector<size_t> row_numbers() {
  std::vector<size_t> n(all_rows().size());
  for (size_t i = 0; i < n.size(); ++i) n[i] = i;
  return n;
}

INSTANTIATE_TEST_SUITE_P(All, OpTable, testing::ValuesIn(row_numbers()), [](const auto& info) {
  const OpCase& r = all_rows()[info.param];
  std::string name = r.op + (r.variant.empty() ? "" : "_" + r.variant);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name + "_" + std::to_string(info.param);
});

}  // namespace
}  // namespace gradus::optest
