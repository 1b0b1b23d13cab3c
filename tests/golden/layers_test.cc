// Values and gradients of layers against PyTorch's, in f64 to 1e-9 and in f32 to a bound from the
// number of roundings.
#include <functional>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using X = const std::vector<Tensor>&;

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile f = golden::load("layers");
  return f;
}
Tensor stored(const std::string& name, DType t = DType::kF64) {
  return raw::to(raw::clone(file().at(name)), t);
}

Tensor weight(X x) { return stored("weight", x[0].dtype()); }

struct Layer {
  const char* name;
  std::function<Tensor(X)> run;
  double terms = 16;  // length of the longest sum or chain behind an element of the result or of a gradient
};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all = {
      {"linear", [](X x) { return linear(x[0], x[1], x[2]); }},
      {"linear_without_bias", [](X x) { return linear(x[0], x[1]); }},
      {"matmul_batched", [](X x) { return matmul(x[0], x[1]); }},
      {"conv2d", [](X x) { return conv2d(x[0], x[1], x[2]); }, 64},
      {"conv2d_padding", [](X x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); }, 64},
      {"conv2d_stride", [](X x) { return conv2d(x[0], x[1], x[2], {.stride = 2, .padding = 1}); }, 64},
      {"conv2d_dilation", [](X x) { return conv2d(x[0], x[1], x[2], {.padding = 2, .dilation = 2}); }, 64},
      {"conv2d_groups", [](X x) { return conv2d(x[0], x[1], x[2], {.padding = 1, .groups = 2}); }, 64},
      {"conv2d_depthwise",
       [](X x) { return conv2d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 4}); }, 64},
      {"conv2d_1x1", [](X x) { return conv2d(x[0], x[1], x[2]); }, 64},
      {"conv2d_uneven",
       [](X x) {
         return conv2d(x[0], x[1], {}, {.stride = {2, 1}, .padding = {1, 2}});
       },
       64},
      {"max_pool2d", [](X x) { return max_pool2d(x[0], {.kernel = 2}); }},
      {"max_pool2d_overlapping",
       [](X x) { return max_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1}); }},
      {"max_pool2d_dilation",
       [](X x) { return max_pool2d(x[0], {.kernel = 2, .stride = 1, .dilation = 2}); }},
      {"max_pool2d_ceil",
       [](X x) { return max_pool2d(x[0], {.kernel = 2, .stride = 2, .ceil_mode = true}); }},
      {"avg_pool2d", [](X x) { return avg_pool2d(x[0], {.kernel = 2}); }},
      {"avg_pool2d_padding", [](X x) { return avg_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1}); }},
      {"avg_pool2d_exclude_padding",
       [](X x) {
         return avg_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false});
       }},
      {"avg_pool2d_ceil",
       [](X x) { return avg_pool2d(x[0], {.kernel = 2, .stride = 2, .ceil_mode = true}); }},
      {"adaptive_avg_pool2d_1", [](X x) { return adaptive_avg_pool2d(x[0], 1); }},
      {"adaptive_avg_pool2d_3x4",
       [](X x) {
         return adaptive_avg_pool2d(x[0], {3, 4});
       }},
      {"adaptive_max_pool2d_3x4",
       [](X x) {
         return adaptive_max_pool2d(x[0], {3, 4});
       }},
      {"softmax_0", [](X x) { return softmax(x[0], 0); }},
      {"softmax_1", [](X x) { return softmax(x[0], 1); }},
      {"softmax_2", [](X x) { return softmax(x[0], 2); }},
      {"log_softmax_0", [](X x) { return log_softmax(x[0], 0); }},
      {"log_softmax_1", [](X x) { return log_softmax(x[0], 1); }},
      {"log_softmax_2", [](X x) { return log_softmax(x[0], 2); }},
      {"logsumexp", [](X x) { return logsumexp(x[0], {1}); }},
      {"relu", [](X x) { return relu(x[0]); }},
      {"sigmoid", [](X x) { return sigmoid(x[0]); }},
      {"tanh", [](X x) { return tanh(x[0]); }},
      {"gelu", [](X x) { return gelu(x[0]); }},
      {"silu", [](X x) { return silu(x[0]); }},
      {"softplus", [](X x) { return softplus(x[0]); }},
      {"elu", [](X x) { return elu(x[0]); }},
      {"leaky_relu", [](X x) { return leaky_relu(x[0], 0.2); }},
      {"gelu_tanh", [](X x) { return gelu(x[0], Gelu::kTanh); }},
      {"std", [](X x) { return gradus::std(x[0], {1}); }},
      {"embedding", [](X x) { return index(x[0], {x[1]}); }},
      {"cross_entropy_mean", [](X x) { return cross_entropy(x[0], x[1]); }},
      {"cross_entropy_sum", [](X x) { return cross_entropy(x[0], x[1], {.reduction = Reduction::kSum}); }},
      {"cross_entropy_none", [](X x) { return cross_entropy(x[0], x[1], {.reduction = Reduction::kNone}); }},
      {"cross_entropy_weight", [](X x) { return cross_entropy(x[0], x[1], {.weight = weight(x)}); }},
      {"cross_entropy_smoothing", [](X x) { return cross_entropy(x[0], x[1], {.label_smoothing = 0.1}); }},
      {"cross_entropy_weight_smoothing",
       [](X x) { return cross_entropy(x[0], x[1], {.weight = weight(x), .label_smoothing = 0.2}); }},
      {"cross_entropy_ignore", [](X x) { return cross_entropy(x[0], x[1]); }},
      {"cross_entropy_ignore_all_options",
       [](X x) { return cross_entropy(x[0], x[1], {.weight = weight(x), .label_smoothing = 0.1}); }},
      {"cross_entropy_probabilities", [](X x) { return cross_entropy(x[0], x[1]); }},
      {"cross_entropy_probabilities_options",
       [](X x) { return cross_entropy(x[0], x[1], {.weight = weight(x), .label_smoothing = 0.1}); }},
      {"cross_entropy_image", [](X x) { return cross_entropy(x[0], x[1]); }},
      {"nll_loss_mean", [](X x) { return nll_loss(x[0], x[1], {.weight = weight(x)}); }},
      {"nll_loss_sum",
       [](X x) { return nll_loss(x[0], x[1], {.reduction = Reduction::kSum, .weight = weight(x)}); }},
      {"nll_loss_none",
       [](X x) { return nll_loss(x[0], x[1], {.reduction = Reduction::kNone, .weight = weight(x)}); }},
      {"mse_loss_mean", [](X x) { return mse_loss(x[0], x[1]); }},
      {"mse_loss_sum", [](X x) { return mse_loss(x[0], x[1], {.reduction = Reduction::kSum}); }},
      {"mse_loss_none", [](X x) { return mse_loss(x[0], x[1], {.reduction = Reduction::kNone}); }},
      {"batch_norm_eval",
       [](X x) {
         return batch_norm(x[0], x[1], x[2], stored("batch_norm_eval/mean", x[0].dtype()),
                           stored("batch_norm_eval/var", x[0].dtype()));
       },
       64},
      {"exp", [](X x) { return exp(x[0]); }},
      {"expm1", [](X x) { return expm1(x[0]); }},
      {"erf", [](X x) { return erf(x[0]); }},
      {"sin", [](X x) { return sin(x[0]); }},
      {"cos", [](X x) { return cos(x[0]); }},
      {"abs", [](X x) { return abs(x[0]); }},
      {"log", [](X x) { return log(x[0]); }},
      {"log1p", [](X x) { return log1p(x[0]); }},
      {"sqrt", [](X x) { return sqrt(x[0]); }},
      {"rsqrt", [](X x) { return rsqrt(x[0]); }},
      {"var", [](X x) { return var(x[0], {1}); }},
      {"var_biased",
       [](X x) {
         return var(x[0], {0, 2}, {.correction = 0});
       }},
      {"norm", [](X x) { return norm(x[0], {1}); }},
      {"prod", [](X x) { return prod(x[0], {1}); }},
      {"cumsum", [](X x) { return cumsum(x[0], 1); }},
  };
  return all;
}

void check(const Layer& layer, DType t) {
  const std::string name = layer.name;
  std::vector<Tensor> x, floating;
  for (int i = 0; file().contains(name + "/x" + std::to_string(i)); ++i) {
    const Tensor v = file().at(name + "/x" + std::to_string(i));
    x.push_back(is_floating(v.dtype()) ? stored(name + "/x" + std::to_string(i), t) : v);
    if (is_floating(v.dtype())) floating.push_back(x.back());
  }
  ASSERT_FALSE(x.empty()) << name << " is not in the file";
  GradManager gm;
  gm.attach(floating);
  Tensor y;
  {
    auto recording = gm.record();
    y = layer.run(x);
    gm.backward(y, stored(name + "/dy", t));
  }
  const double tolerance =
      t == DType::kF64 ? 1e-9 : (4 + layer.terms) * double(std::numeric_limits<float>::epsilon());
  golden::expect_near(y, file().at(name + "/y"), tolerance, name + " y");
  for (size_t i = 0; i < x.size(); ++i) {
    const std::string key = name + "/dx" + std::to_string(i);
    if (file().contains(key)) golden::expect_near(x[i].grad(), file().at(key), tolerance, key);
  }
}

class Layers : public testing::TestWithParam<size_t> {};
TEST_P(Layers, AgreeInF64) { check(layers()[GetParam()], DType::kF64); }
TEST_P(Layers, AgreeInF32) { check(layers()[GetParam()], DType::kF32); }
INSTANTIATE_TEST_SUITE_P(PyTorch, Layers, testing::Range(size_t(0), layers().size()),
                         [](const auto& info) { return std::string(layers()[info.param].name); });

// In training, the running statistics move too.
void check_batch_norm(const std::string& name, double momentum, DType t) {
  const Tensor mean = stored(name + "/mean", t), var = stored(name + "/var", t);
  check(
      {name.c_str(),
       [&](X x) { return batch_norm(x[0], x[1], x[2], mean, var, {.training = true, .momentum = momentum}); },
       64},
      t);
  const double tolerance = t == DType::kF64 ? 1e-9 : 1e-5;
  golden::expect_near(mean, file().at(name + "/new_mean"), tolerance, name + " running mean");
  golden::expect_near(var, file().at(name + "/new_var"), tolerance, name + " running variance");
}

TEST(BatchNorm, TrainsLikePyTorch) {
  for (DType t : {DType::kF64, DType::kF32}) {
    check_batch_norm("batch_norm_train", 0.1, t);
    check_batch_norm("batch_norm_train_momentum", 0.3, t);
    check_batch_norm("batch_norm_1d", 0.1, t);
  }
}

}  // namespace
}  // namespace gradus
