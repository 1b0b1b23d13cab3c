// Compares an op with a case of a family's file: y (results), dx (gradients for the given dy), in f64 and
// f32, in three layouts. add_golden_ops registers a GoogleTest per case.
#include "gradus/tests/golden/ops/golden_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "gradus/autograd/grad_manager.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::golden {
namespace {

std::string numbered(const std::string& name, const char* kind, size_t i) {
  return name + "/" + kind + std::to_string(i);
}

// Expects |given - expected| <= part * largest |expected| + absolute; NaN, infinities, integers exactly.
// Integer and bool results must also have the dtype of `expected`; floating ones depend on the inputs' dtype.
void expect_close(const Tensor& given, const Tensor& expected, double part, double absolute,
                  const std::string& what) {
  ASSERT_TRUE(given.defined()) << what << " is undefined";
  ASSERT_EQ(to_string(given.shape()), to_string(expected.shape())) << what;
  if (!is_floating(expected.dtype())) {
    ASSERT_EQ(name_of(given.dtype()), name_of(expected.dtype())) << what;
  }
  const std::vector<double> g = given.to_vector<double>(), e = expected.to_vector<double>();
  double scale = 0;
  for (double v : e) {
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  }
  const double allowed = is_floating(expected.dtype()) ? part * scale + absolute : 0;
  for (size_t i = 0; i < g.size(); ++i) {
    const bool fine = std::isnan(e[i])   ? std::isnan(g[i])
                      : std::isinf(e[i]) ? g[i] == e[i]
                                         : std::abs(g[i] - e[i]) <= allowed;
    ASSERT_TRUE(fine) << what << " at " << i << ": " << g[i] << ", expected " << e[i] << " (off by "
                      << std::abs(g[i] - e[i]) << ", allowed " << allowed << ")";
  }
}

// Returns a copy of x whose strides are doubled in every dimension.
Tensor strided(const Tensor& x) {
  Shape wide = x.shape();
  for (int64_t& n : wide) n *= 2;
  const Tensor base = empty(wide, {x.dtype(), x.device()});
  raw::fill_(base, 77);
  Strides strides = base.strides();
  for (int64_t& s : strides) s *= 2;
  const Tensor y = view_as_strided(base, x.shape(), strides, 0);
  raw::copy_(y, x);
  return y;
}

Tensor images_channels_last(const Tensor& x) {
  return x.dim() >= 3 && x.dim() <= 5 ? raw::channels_last(x) : x;
}

class Comparison {
 public:
  Comparison(const io::SafetensorsFile& file, const GoldenOp& op) : file_(file), op_(op) {}

  void run() {
    for (DType t : {DType::kF64, DType::kF32}) {
      check(t, "contiguous", [](const Tensor& x) { return x; });
      if (!op_.layouts) continue;
      check(t, "strided", strided);
      check(t, "channels-last", images_channels_last);
    }
  }

 private:
  template <class LayOut> void check(DType t, const char* layout, LayOut lay_out) {
    const std::string at = op_.name + " " + std::string(name_of(t)) + " " + layout + " ";
    std::vector<Tensor> x;
    for (size_t i = 0; file_.contains(numbered(op_.name, "x", i)); ++i) {
      const Tensor stored = file_.at(numbered(op_.name, "x", i));
      x.push_back(lay_out(raw::clone(is_floating(stored.dtype()) ? raw::to(stored, t) : stored)));
    }
    std::vector<Tensor> leaves;
    std::vector<size_t> leaf_number;
    const bool gradients = op_.gradients && file_.contains(op_.name + "/dy0");
    for (size_t i = 0; i < x.size(); ++i) {
      if (gradients && is_floating(x[i].dtype())) leaves.push_back(x[i]), leaf_number.push_back(i);
    }
    GradManager gm;
    if (!leaves.empty()) gm.attach(leaves);
    auto recording = gm.record();
    const std::vector<Tensor> y = op_.run(x);
    const auto error = [&](const std::string& key) {
      return t == DType::kF64 || !file_.contains(key + ".err") ? 0
                                                               : 2 * file_.at(key + ".err").item<double>();
    };
    // <key>.err is PyTorch's own f32 error.
    const double part = t == DType::kF64 ? 1e-12 : 1e-6;
    std::vector<Tensor> roots, dys;
    for (size_t i = 0; i < y.size(); ++i) {
      const std::string key = numbered(op_.name, "y", i);
      ASSERT_TRUE(file_.contains(key)) << at << "has more results than PyTorch's";
      expect_close(y[i], file_.at(key), part, error(key), at + "y" + std::to_string(i));
      if (gradients && is_floating(y[i].dtype())) {
        const std::string dy = numbered(op_.name, "dy", roots.size());
        if (!file_.contains(dy)) continue;
        roots.push_back(y[i]), dys.push_back(raw::to(file_.at(dy), t));
      }
    }
    ASSERT_FALSE(file_.contains(numbered(op_.name, "y", y.size())))
        << at << "has fewer results than PyTorch's";
    if (roots.empty()) return;
    gm.backward(roots, dys);
    for (size_t k = 0; k < leaves.size(); ++k) {
      const std::string key = numbered(op_.name, "dx", leaf_number[k]);
      Tensor g = leaves[k].grad();
      if (!g.defined())
        g = raw::to(scalar(0), t),
        g = raw::contiguous(view_as_strided(g, leaves[k].shape(), Dims::filled(leaves[k].dim(), 0), 0));
      ASSERT_EQ(name_of(g.dtype()), name_of(t)) << at << "dx" << leaf_number[k];
      expect_close(g, file_.at(key), part, error(key), at + "dx" + std::to_string(leaf_number[k]));
    }
  }

  const io::SafetensorsFile& file_;
  const GoldenOp op_;
};

class Test : public testing::Test {
 public:
  explicit Test(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  const std::function<void()> body_;
};

}  // namespace

io::SafetensorsFile load_golden(const std::string& family) {
  return io::load_safetensors("tests/golden/ops/" + family + ".safetensors");
}

std::set<std::string> case_names(const io::SafetensorsFile& file) {
  std::set<std::string> names;
  for (const auto& [key, tensor] : file.tensors) names.insert(key.substr(0, key.rfind('/')));
  return names;
}

size_t inputs_of(const io::SafetensorsFile& file, const std::string& name) {
  size_t n = 0;
  while (file.contains(numbered(name, "x", n))) ++n;
  return n;
}

void expect_golden(const io::SafetensorsFile& file, const GoldenOp& op) { Comparison(file, op).run(); }

bool add_golden_ops(const std::string& family, const std::vector<GoldenOp>& ops) {
  const auto file = std::make_shared<const io::SafetensorsFile>(load_golden(family));
  const auto add = [&](std::string title, std::function<void()> body) {
    for (char& c : title)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    testing::RegisterTest(("Golden_" + family).c_str(), title.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body]() -> testing::Test* { return new Test(body); });
  };
  std::set<std::string> left = case_names(*file);
  for (const GoldenOp& op : ops) {
    left.erase(op.name);
    add(op.name, [file, op] { expect_golden(*file, op); });
  }
  add("EveryCaseIsTested",
      [left] { EXPECT_EQ(left, std::set<std::string>()) << "cases of the file that nothing tests"; });
  return true;
}

}  // namespace gradus::golden
