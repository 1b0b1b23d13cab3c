// Compares names, results, gradients, and buffers after one pass in training; golden.py documents the keys of
// the file.
#include "gradus/tests/nn/layers/golden_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "gradus/autograd/grad_manager.h"
#include "gradus/io/safetensors.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::golden {
namespace {

// Largest finite |element|.
double scale_of(const Tensor& x) {
  double scale = 0;
  for (double v : x.to_vector<double>())
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  return scale;
}

// The largest sum of a channel's |elements|, of x[N,C,...].
double largest_channel(const Tensor& x) {
  const std::vector<double> v = x.to_vector<double>();
  const int64_t channels = x.size(1), pixels = x.numel() / std::max<int64_t>(1, x.size(0) * channels);
  std::vector<double> sums(static_cast<size_t>(channels), 0.0);
  for (size_t i = 0; i < v.size(); ++i) sums[int64_t(i) / pixels % channels] += std::abs(v[i]);
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

// Expects |given - expected| <= part * largest |expected| + absolute; NaN, infinities, integers exactly.
void expect_close(const Tensor& given, const Tensor& expected, double part, double absolute,
                  const std::string& what) {
  ASSERT_TRUE(given.defined()) << what << " is undefined";
  ASSERT_EQ(to_string(given.shape()), to_string(expected.shape())) << what;
  const std::vector<double> g = given.to_vector<double>(), e = expected.to_vector<double>();
  const double allowed = is_floating(expected.dtype()) ? part * scale_of(expected) + absolute : 0;
  for (size_t i = 0; i < g.size(); ++i) {
    const bool fine = std::isnan(e[i])   ? std::isnan(g[i])
                      : std::isinf(e[i]) ? g[i] == e[i]
                                         : std::abs(g[i] - e[i]) <= allowed;
    ASSERT_TRUE(fine) << what << " at " << i << ": " << g[i] << ", expected " << e[i] << " (off by "
                      << std::abs(g[i] - e[i]) << ", allowed " << allowed << ")";
  }
}

std::string joined_names(const nn::StateDict& state) {
  std::string text;
  for (const auto& [name, t] : state) text += (text.empty() ? "" : ",") + name;
  return text;
}

class Comparison {
 public:
  Comparison(const io::SafetensorsFile& file, const GoldenLayer& layer) : file_(file), layer_(layer) {}

  void run() {
    ASSERT_TRUE(file_.metadata.count(layer_.name)) << layer_.name << " is not in the file";
    for (const DType t : {DType::kF64, DType::kF32})
      for (const char* mode : {"train", "eval"})
        if (has(std::string(mode) + "/y0")) check(t, mode);
  }

 private:
  bool has(const std::string& key) const { return file_.contains(layer_.name + "/" + key); }
  Tensor stored(const std::string& key) const { return file_.at(layer_.name + "/" + key); }
  // A copy of a tensor of the file, in dtype `t` if it is floating.
  Tensor load(const std::string& key, DType t) const {
    const Tensor x = stored(key);
    return raw::clone(is_floating(x.dtype()) ? raw::to(x, t) : x);
  }

  void check(DType t, const std::string& mode) {
    const std::string at = layer_.name + " " + std::string(name_of(t)) + " " + mode + " ";
    double largest_gradient = 0;
    for (const auto& [key, x] : file_.tensors)
      if (key.starts_with(layer_.name + "/" + mode + "/d/") && !key.ends_with(".err"))
        largest_gradient = std::max(largest_gradient, scale_of(x));
    // A bias in front of a normalization has the gradient 0, but for rounding: it is the sum by channel of
    // the gradient g of its layer's result. In f32 each g is rounded by up to 2^-24 of itself, and so are the
    // means that all of them share, so that errors add up to at most 2^-23 of the sum of all |g|. The results
    // of such layers:
    std::map<std::string, Tensor> results;  // by the key of the bias's gradient
    const auto rounding = [&](const std::string& key) {
      const auto it = results.find(key);
      if (it == results.end() || !it->second.grad().defined()) return 0.0;
      return 0x1p-23 * largest_channel(it->second.grad());
    };
    const auto compare = [&](const Tensor& given, const std::string& key) {
      const std::string error_key = layer_.name + "/" + key + ".err";
      // In f32, twice PyTorch's own largest error in f32.
      const double error =
          t == DType::kF64 || !file_.contains(error_key) ? 0 : 2 * file_.at(error_key).item<double>();
      if (t == DType::kF64)
        expect_close(given, stored(key), 1e-12, key.starts_with(mode + "/d/") ? 1e-12 * largest_gradient : 0,
                     at + key);
      else
        expect_close(given, stored(key), layer_.single, error + 1e-6 + rounding(key), at + key);
    };

    const std::unique_ptr<nn::Module> module = layer_.make();
    module->to(t).train(mode == "train");
    const nn::StateDict own = module->state_dict();
    ASSERT_EQ(joined_names(own), file_.metadata.at(layer_.name)) << at;
    nn::StateDict state;
    for (const auto& [name, own_tensor] : own) state.emplace_back(name, stored("state/" + name));
    module->load_state_dict(state);

    std::vector<Tensor> x, leaves;
    std::vector<std::string> keys;
    const bool gradients = has(mode + "/dy0");
    for (size_t i = 0; has("x" + std::to_string(i)); ++i) {
      x.push_back(load("x" + std::to_string(i), t));
      const std::string key = mode + "/dx" + std::to_string(i);
      if (has(key)) leaves.push_back(x.back()), keys.push_back(key);
    }
    if (gradients)
      for (const auto& [name, p] : module->named_parameters())
        leaves.push_back(p), keys.push_back(mode + "/d/" + name);
    GradManager gm;
    if (!leaves.empty()) gm.attach(leaves);
    if (gradients && t == DType::kF32)
      for (const auto& [name, m] : module->named_modules()) {
        const std::string key = mode + "/d/" + name + ".bias";
        nn::Layer* const layer = dynamic_cast<nn::Layer*>(m);
        if (!layer || !has(key) || scale_of(stored(key)) > 1e-12 * largest_gradient) continue;
        layer->register_forward_hook([&gm, &results, key](nn::Layer&, const Tensor&, const Tensor& y) {
          gm.attach(y);
          results[key] = y;
        });
      }
    auto recording = gm.record();
    const std::vector<Tensor> y = layer_.run(*module, x);
    std::vector<Tensor> roots, dys;
    for (size_t i = 0; i < y.size(); ++i) {
      const std::string n = std::to_string(i);
      ASSERT_TRUE(has(mode + "/y" + n)) << at << "has more results than PyTorch's";
      compare(y[i], mode + "/y" + n);
      if (has(mode + "/dy" + n)) roots.push_back(y[i]), dys.push_back(load(mode + "/dy" + n, t));
    }
    ASSERT_FALSE(has(mode + "/y" + std::to_string(y.size()))) << at << "has fewer results than PyTorch's";
    if (!roots.empty()) {
      gm.backward(roots, dys);
      for (size_t k = 0; k < leaves.size(); ++k) {
        Tensor g = leaves[k].grad();
        if (!g.defined()) raw::fill_(g = empty(leaves[k].shape(), {.dtype = t}), 0);
        compare(g, keys[k]);
      }
    }
    if (mode != "train") return;
    for (const auto& [name, b] : module->named_buffers()) {
      const Tensor expected = stored("after/" + name);
      expect_close(b, expected, t == DType::kF64 ? 1e-12 : 2e-6, 0, at + "buffer " + name);
    }
  }

  const io::SafetensorsFile& file_;
  const GoldenLayer layer_;
};

}  // namespace

void expect_golden(const io::SafetensorsFile& file, const GoldenLayer& layer) {
  Comparison(file, layer).run();
}

void expect_all_tested(const io::SafetensorsFile& file, const std::set<std::string>& names) {
  for (const auto& [name, keys] : file.metadata)
    EXPECT_TRUE(names.count(name) || name == "torch" || name == "made_by")
        << name << " is in the file but not tested";
}

bool add_golden_layers(const std::string& file_name, const std::vector<GoldenLayer>& layers) {
  const auto file = std::make_shared<const io::SafetensorsFile>(io::load_safetensors(file_name));
  std::set<std::string> names;
  const auto add = [&](std::string title, std::function<void()> body) {
    class Test : public testing::Test {
     public:
      explicit Test(std::function<void()> body) : body_(std::move(body)) {}
      void TestBody() override { body_(); }

     private:
      const std::function<void()> body_;
    };
    for (char& c : title)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    testing::RegisterTest("GoldenLayers", title.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body]() -> testing::Test* { return new Test(body); });
  };
  for (const GoldenLayer& layer : layers) {
    names.insert(layer.name);
    add(layer.name, [file, layer] { expect_golden(*file, layer); });
  }
  add("EveryCaseIsTested", [file, names] { expect_all_tested(*file, names); });
  return true;
}

}  // namespace gradus::golden
