// The tests of each row of the layer table (layer_table.h): PyTorch's values, every dtype and device against
// f64, numeric gradients, printing, errors; and that every layer of the headers has a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

const io::SafetensorsFile& golden_file(const std::string& family) {
  static std::map<std::string, io::SafetensorsFile> files;
  const auto it = files.find(family);
  if (it != files.end()) return it->second;
  return files[family] = io::load_safetensors("tests/nn/layers/" + family + ".safetensors");
}

class LayerTable : public testing::TestWithParam<size_t> {
 protected:
  const Row& row() const { return all_rows()[GetParam()]; }
  const Checks& checks() const { return row().checks; }
};

TEST_P(LayerTable, GivesPyTorchsValues) {
  if (checks().golden) golden::expect_golden(golden_file(row().family), row());
}

TEST_P(LayerTable, ErrorsSayWhatWasGiven) {
  for (const auto& expect : checks().errors) expect();
}

TEST_P(LayerTable, PrintsOptionsThatDifferFromTheirDefaults) {
  if (checks().prints.empty()) return;
  const auto m = row().make();
  EXPECT_EQ(m->type_name() + "(" + m->extra_repr() + ")", checks().prints);
}

// Returns the row's inputs, with `rows` samples: indices in i64, others in f64, the first multiplied by
// `factor`.
std::vector<Tensor> make_inputs(const Row& row, int64_t rows, double factor = 1) {
  std::vector<Tensor> inputs;
  for (Shape shape : row.checks.inputs) {
    for (int64_t& n : shape) n = n == kRows ? rows : n;
    const Tensor values = pattern(shape, inputs.empty() ? 1 : 30 + inputs.size());
    inputs.push_back(row.checks.indices ? raw::to(abs(values) * 2.0, DType::kI64)
                                        : values * (inputs.empty() ? factor : 1));
  }
  return inputs;
}

TEST_P(LayerTable, NumericGradientsOfBothOrders) {
  if (!checks().second_order) return;
  const auto m = row().make();
  m->to(DType::kF64).train(false);
  std::vector<Tensor> inputs;
  if (checks().golden) {
    for (size_t i = 0; golden_file(row().family).contains(concat(row().name, "/x", i)); ++i)
      inputs.push_back(golden_file(row().family).at(concat(row().name, "/x", i)));
  } else {
    inputs = make_inputs(row(), 1);
  }
  const auto count = std::ptrdiff_t(inputs.size());
  for (const Tensor& p : m->parameters()) inputs.push_back(p);
  const auto f = [&](const std::vector<Tensor>& in) {
    const nn::ParameterScope scope(*m, std::vector<Tensor>(in.begin() + count, in.end()));
    std::vector<Tensor> flat;
    for (const Tensor& y : row().run(*m, std::vector<Tensor>(in.begin(), in.begin() + count)))
      flat.push_back(reshape(y, {-1}));
    return cat(flat, 0);
  };
  const auto first = autograd::gradcheck(f, inputs), second = autograd::gradgradcheck(f, inputs);
  EXPECT_TRUE(first) << first.message;
  EXPECT_TRUE(second) << second.message;
}

// The dtypes of parameters and input, and that of autocast if it is on.
struct Mode {
  const char* name;
  DType parameters, input;
  std::optional<DType> autocast;
  double unit() const {  // the largest relative error of a rounding
    switch (autocast.value_or(parameters)) {
      case DType::kBF16:
        return 0x1p-8;
      case DType::kF16:
        return 0x1p-11;
      case DType::kF32:
        return 0x1p-24;
      default:
        return 0x1p-53;
    }
  }
};
const Mode kModes[] = {
    {"f64", DType::kF64, DType::kF64},
    {"f32", DType::kF32, DType::kF32},
    {"bf16", DType::kBF16, DType::kBF16},
    {"f16", DType::kF16, DType::kF16},
    {"autocast bf16", DType::kF32, DType::kF32, DType::kBF16},
    {"autocast f16", DType::kF32, DType::kF32, DType::kF16},
    {"autocast bf16, behind a layer", DType::kF32, DType::kBF16, DType::kBF16},
    {"autocast f16, behind a layer", DType::kF32, DType::kF16, DType::kF16},
};

struct Outcome {
  std::string error;
  DType dtype = DType::kF64;  // of the result, if there is one
  std::vector<std::pair<std::string, Tensor>> tensors;
};

Outcome run(const Row& row, const Mode& mode, bool training, Device device, int64_t rows, double factor = 1) {
  manual_seed(1);
  const std::unique_ptr<nn::Module> net = row.make();
  uint64_t seed = 2;
  for (const Tensor& p : net->parameters()) raw::copy_(p, pattern(p.shape(), ++seed) * 0.5);
  for (const Tensor& b : net->buffers())
    if (is_floating(b.dtype())) raw::copy_(b, abs(pattern(b.shape(), ++seed)) + 0.5);
  net->to(mode.parameters).to(device).train(training);

  std::vector<Tensor> inputs = make_inputs(row, rows, factor);
  for (Tensor& t : inputs) t = raw::to(row.checks.indices ? t : raw::to(t, mode.input), device);
  const Tensor x = inputs[0];

  Outcome outcome;
  try {
    GradManager gm;
    gm.attach(net->parameters());
    if (!row.checks.indices) gm.attach(x);
    auto recording = gm.record();
    std::vector<Tensor> results;
    {
      std::optional<Autocast> amp;
      if (mode.autocast) amp.emplace(*mode.autocast);
      results = row.run(*net, inputs);
    }
    if (results.size() == 1) outcome.dtype = results[0].dtype();
    std::vector<Tensor> flat;
    for (const Tensor& y : results) flat.push_back(reshape(to(y, DType::kF64), {-1}));
    const Tensor y = cat(flat, 0);
    gm.backward(sum(y * raw::to(pattern(y.shape(), 7), device)));
    outcome.tensors.emplace_back("y", detach(y));
  } catch (const Error& e) {
    outcome.error = e.what();
    return outcome;
  }
  if (!row.checks.indices) outcome.tensors.emplace_back("gradient of x", x.grad());
  for (const auto& [name, p] : net->named_parameters())
    outcome.tensors.emplace_back("gradient of " + name, p.grad());
  for (const auto& [name, b] : net->named_buffers()) outcome.tensors.emplace_back(name, b);
  for (const auto& [name, p] : net->named_parameters())
    if (p.grad().defined()) {
      EXPECT_EQ(p.grad().dtype(), p.dtype()) << name;
      EXPECT_EQ(p.grad().device(), device) << name;
    }
  return outcome;
}

// Largest difference, in multiples of a rounding's largest error at the scale of `want`.
double roundings_apart(const Tensor& got, const Tensor& want, double unit) {
  if (!got.defined() || !want.defined())
    return got.defined() == want.defined() ? 0 : std::numeric_limits<double>::infinity();
  if (!(got.shape() == want.shape())) return std::numeric_limits<double>::infinity();
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  double most = 0, scale = 1;  // terms are of about 1, also where they cancel
  for (const double v : b) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i)
    most =
        std::isfinite(a[i]) ? std::max(most, std::abs(a[i] - b[i])) : std::numeric_limits<double>::infinity();
  return most / (unit * scale);
}

TEST_P(LayerTable, IsCloseToF64InEveryDTypeOnEveryDevice) {
  if (checks().inputs.empty()) return;
  for (const bool training : {true, false}) {
    for (const int64_t rows : {4, 1, 0}) {
      const bool refuses = training && rows == 1 && !checks().one_row_trains;
      const Outcome exact = run(row(), kModes[0], training, kCPU, rows);
      for (const Mode& mode : kModes)
        for (const Device device : {kCPU, Device::parse("cpu:1")}) {
          const Outcome outcome = run(row(), mode, training, device, rows);
          const std::string where =
              concat(row().name, training ? " train " : " eval ", rows, " rows, ", mode.name, " on ", device);
          EXPECT_EQ(!outcome.error.empty(), refuses) << where << ": " << outcome.error;
          if (!outcome.error.empty() || !exact.error.empty()) continue;
          if (!mode.autocast && outcome.dtype != DType::kF64) {
            EXPECT_EQ(outcome.dtype, mode.input) << where;
          }
          ASSERT_EQ(outcome.tensors.size(), exact.tensors.size()) << where;
          for (size_t i = 0; i < exact.tensors.size(); ++i) {
            const auto& [name, want] = exact.tensors[i];
            const Tensor& got = outcome.tensors[i].second;
            EXPECT_LE(roundings_apart(got, want, mode.unit()), checks().roundings) << where << ": " << name;
            if (rows == 0 && name.starts_with("gradient") && got.defined()) {
              EXPECT_EQ(sum(abs(to(got, DType::kF64))).item<double>(), 0) << where << ": " << name;
            }
          }
        }
    }
  }
}

// For inputs of 0 the eps of divisions must not underflow in 16 bits.
TEST_P(LayerTable, IsFiniteForZerosWhereF64Is) {
  if (checks().inputs.empty()) return;
  for (const bool training : {true, false}) {
    const Outcome exact = run(row(), kModes[0], training, kCPU, 4, 0);
    for (const Mode& mode : kModes) {
      const Outcome outcome = run(row(), mode, training, kCPU, 4, 0);
      EXPECT_EQ(outcome.error, "") << row().name;
      for (size_t i = 0; i < outcome.tensors.size(); ++i) {
        const auto& [name, want] = exact.tensors[i];
        const Tensor& got = outcome.tensors[i].second;
        if (!want.defined()) continue;
        const auto a = got.to_vector<double>(), b = want.to_vector<double>();
        for (size_t k = 0; k < a.size(); ++k) {
          const bool fits = std::abs(b[k]) < 65504;  // the largest f16
          ASSERT_TRUE(!fits || std::isfinite(a[k]))
              << row().name << (training ? " train, " : " eval, ") << mode.name << ": " << name;
        }
      }
    }
  }
}

std::vector<size_t> row_numbers() {
  std::vector<size_t> n(all_rows().size());
  for (size_t i = 0; i < n.size(); ++i) n[i] = i;
  return n;
}
INSTANTIATE_TEST_SUITE_P(All, LayerTable, testing::ValuesIn(row_numbers()), [](const auto& info) {
  std::string name = all_rows()[info.param].name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

TEST(LayerTableCoverage, EveryCaseOfPyTorchsFilesHasARow) {
  std::map<std::string, std::set<std::string>> names;
  for (const Row& row : all_rows())
    if (row.checks.golden) names[row.family].insert(row.name);
  for (const auto& [family, rows] : names) golden::expect_all_tested(golden_file(family), rows);
}

TEST(LayerTableCoverage, EveryLayerAndLossOfTheHeadersHasARow) {
  std::set<std::string> rows{"ModuleList", "ModuleDict", "ParameterList",
                             "ParameterDict"};  // their elements are called by others
  for (const Row& row : all_rows()) rows.insert(row.name.substr(0, row.name.find('/')));
  // A final class, an alias of a layer's or loss's template, or a function that changes a layer.
  const std::regex declared(
      R"(^class (\w+) final : public|^using (\w+) = (?:Loss|OpLayer|Pool|MaxUnpool|PadLayer|Conv|\w+NormOf|DropoutOf|Recurrent)<)"
      R"(|^L& (\w+)\(L& layer)");
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("nn")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream header(entry.path());
    for (std::string line; std::getline(header, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, declared)) continue;
      ++found;
      const std::string name = match.format("$1$2$3");
      EXPECT_TRUE(rows.count(name)) << name << " of " << entry.path() << " has no row in this table";
    }
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace gradus::layers
