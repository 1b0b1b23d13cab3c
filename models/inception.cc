// Inception v3 as in torchvision: tables of the branches of its blocks, whose results are concatenated, and the three
// pooling changes of the network of FID. Images and feature maps are [N,C,H,W].
#include "gradus/models/inception.h"

#include <string>
#include <utility>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

constexpr double kEps = 1e-3;        // of the batch norms
constexpr int64_t kInputSize = 299;  // height and width of the network's images
constexpr int64_t kFeatures = 2048;  // input of the last layer

struct ConvSizes {
  const char* name;
  int64_t out;
  Size2 kernel = 1;
  int64_t stride = 1;
  bool pads = true;  // with stride 1: keeps height and width
};

// relu(bn(conv(x))). In evaluation computes relu(conv(x, w s) + bias - mean s) with s = weight / sqrt(var + eps).
struct BasicConv2d final : nn::Layer {
  BasicConv2d(nn::Module* parent, std::string name, int64_t in, const ConvSizes& c)
      : Layer(parent, std::move(name)),
        conv{this,
             "conv",
             {.in = in,
              .out = c.out,
              .kernel = c.kernel,
              .stride = c.stride,
              .padding =
                  c.pads && c.stride == 1 ? Size2((c.kernel.h - 1) / 2, (c.kernel.w - 1) / 2) : Size2(0),
              .bias = false}},
        bn{this, "bn", {.features = c.out, .eps = kEps}} {}
  Tensor forward(const Tensor& x) override {
    if (bn.uses_batch_statistics()) return bn.relu(conv(x));
    const Tensor scale = bn.weight / sqrt(bn.running_var + kEps);
    return conv2d_relu(x, conv.weight * reshape(scale, {-1, 1, 1, 1}), bn.bias - bn.running_mean * scale,
                       {.stride = conv.options().stride, .padding = conv.options().padding});
  }
  nn::Conv2d conv;
  nn::BatchNorm2d bn;
};

enum class Pool {
  kNone,
  kAverage,        // 3x3, stride 1, padding 1, which counts as zeros
  kAverageInside,  // the same, but the mean is over elements of the image
  kMax,            // 3x3, stride 1, padding 1
  kHalve,          // maximum of 3x3, stride 2
};

Tensor pooled(Pool pool, const Tensor& x) {
  switch (pool) {
    case Pool::kAverage:
      return avg_pool2d(x, 3, 1, 1);
    case Pool::kAverageInside:
      return avg_pool2d(x, {.kernel = 3, .stride = 1, .padding = 1, .count_include_pad = false});
    case Pool::kMax:
      return max_pool2d(x, 3, 1, 1);
    case Pool::kHalve:
      return max_pool2d(x, 3, 2);
    case Pool::kNone:
      break;
  }
  return x;
}

struct BranchSizes {
  std::vector<ConvSizes> convs;  // applied one after the other
  bool forks = false;            // the last two convolutions have the same input, and both give results
  Pool pool = Pool::kNone;       // before the convolutions
};

// Concatenates the channels of the results of its branches.
struct Mixed final : nn::Layer {
  Mixed(nn::Module* parent, std::string name, int64_t in, const std::vector<BranchSizes>& branch_sizes)
      : Layer(parent, std::move(name)) {
    for (const BranchSizes& b : branch_sizes) {
      Branch& branch = branches.emplace_back(b.pool, b.forks);
      int64_t channels = in;
      for (size_t i = 0; i < b.convs.size(); ++i) {
        const ConvSizes& c = b.convs[i];
        branch.convs.push_back(std::make_unique<BasicConv2d>(this, c.name, channels, c));
        if (!b.forks || i + 2 < b.convs.size()) channels = c.out;
      }
    }
  }
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> results;
    for (const Branch& b : branches) {
      Tensor h = pooled(b.pool, x);
      const size_t chain = b.convs.size() - (b.forks ? 2 : 0);
      for (size_t i = 0; i < chain; ++i) h = (*b.convs[i])(h);
      if (!b.forks) results.push_back(h);
      for (size_t i = chain; i < b.convs.size(); ++i) results.push_back((*b.convs[i])(h));
    }
    return cat(results, 1);
  }

  struct Branch {
    Branch(Pool p, bool f) : pool(p), forks(f) {}
    Pool pool;
    bool forks;
    std::vector<std::unique_ptr<BasicConv2d>> convs = {};
  };
  std::vector<Branch> branches;
};

// The blocks' branches, with the papers' (torchvision's) letters.
std::vector<BranchSizes> block_a(int64_t pool_channels, Pool average) {
  return {{{{"branch1x1", 64}}},
          {{{"branch5x5_1", 48}, {"branch5x5_2", 64, 5}}},
          {{{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3}, {"branch3x3dbl_3", 96, 3}}},
          {.convs = {{"branch_pool", pool_channels}}, .pool = average}};
}
std::vector<BranchSizes> block_b() {
  return {{{{"branch3x3", 384, 3, 2}}},
          {{{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3}, {"branch3x3dbl_3", 96, 3, 2}}},
          {.convs = {}, .pool = Pool::kHalve}};
}
std::vector<BranchSizes> block_c(int64_t c, Pool average) {
  const Size2 row{1, 7}, column{7, 1};
  return {{{{"branch1x1", 192}}},
          {{{"branch7x7_1", c}, {"branch7x7_2", c, row}, {"branch7x7_3", 192, column}}},
          {{{"branch7x7dbl_1", c},
            {"branch7x7dbl_2", c, column},
            {"branch7x7dbl_3", c, row},
            {"branch7x7dbl_4", c, column},
            {"branch7x7dbl_5", 192, row}}},
          {.convs = {{"branch_pool", 192}}, .pool = average}};
}
std::vector<BranchSizes> block_d() {
  return {{{{"branch3x3_1", 192}, {"branch3x3_2", 320, 3, 2}}},
          {{{"branch7x7x3_1", 192},
            {"branch7x7x3_2", 192, {1, 7}},
            {"branch7x7x3_3", 192, {7, 1}},
            {"branch7x7x3_4", 192, 3, 2}}},
          {.convs = {}, .pool = Pool::kHalve}};
}
std::vector<BranchSizes> block_e(Pool pool) {
  return {{{{"branch1x1", 320}}},
          {.convs = {{"branch3x3_1", 384}, {"branch3x3_2a", 384, {1, 3}}, {"branch3x3_2b", 384, {3, 1}}},
           .forks = true},
          {.convs = {{"branch3x3dbl_1", 448},
                     {"branch3x3dbl_2", 384, 3},
                     {"branch3x3dbl_3a", 384, {1, 3}},
                     {"branch3x3dbl_3b", 384, {3, 1}}},
           .forks = true},
          {.convs = {{"branch_pool", 192}}, .pool = pool}};
}

// Returns the matrix [out,in] of bilinear interpolation at the positions i * in / out.
std::shared_ptr<const AxisTaps> tf_taps(int64_t in, int64_t out) {
  auto taps = std::make_shared<AxisTaps>();
  taps->in = in;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t left = i * in / out;
    const double t = double(i * in % out) / double(out);
    taps->add(left, 1 - t), taps->add(std::min(left + 1, in - 1), t);
    taps->end_output();
  }
  return taps;
}

}  // namespace

InceptionV3Options fid_inception_v3(InceptionV3Options o) {
  o.fid_pooling = true, o.classes = 1008;
  return o;
}

void InceptionV3::build() {
  const Options& o = options();
  if (o.classes < 1 || o.classes > 1 << 24)
    throw ValueError("InceptionV3", "expected classes from 1 to 2^24, got ", o.classes);
  if (!(o.dropout >= 0 && o.dropout <= 1))
    throw ValueError("InceptionV3", "expected a dropout from 0 to 1, got ", o.dropout);
  const auto conv = [this](int64_t in, const ConvSizes& c, int64_t depth = 0) {
    stages_.push_back({std::make_unique<BasicConv2d>(this, c.name, in, c), depth});
  };
  const auto mixed = [this](const char* name, int64_t in, const std::vector<BranchSizes>& branches,
                            int64_t depth = 0) {
    stages_.push_back({std::make_unique<Mixed>(this, name, in, branches), depth});
  };
  const Pool average = o.fid_pooling ? Pool::kAverageInside : Pool::kAverage;
  conv(3, {.name = "Conv2d_1a_3x3", .out = 32, .kernel = 3, .stride = 2});
  conv(32, {.name = "Conv2d_2a_3x3", .out = 32, .kernel = 3, .pads = false});
  conv(32, {.name = "Conv2d_2b_3x3", .out = 64, .kernel = 3}, 64);
  conv(64, {.name = "Conv2d_3b_1x1", .out = 80});
  conv(80, {.name = "Conv2d_4a_3x3", .out = 192, .kernel = 3, .pads = false}, 192);
  mixed("Mixed_5b", 192, block_a(32, average));
  mixed("Mixed_5c", 256, block_a(64, average));
  mixed("Mixed_5d", 288, block_a(64, average));
  mixed("Mixed_6a", 288, block_b());
  mixed("Mixed_6b", 768, block_c(128, average));
  mixed("Mixed_6c", 768, block_c(160, average));
  mixed("Mixed_6d", 768, block_c(160, average));
  mixed("Mixed_6e", 768, block_c(192, average), 768);
  mixed("Mixed_7a", 768, block_d());
  mixed("Mixed_7b", 1280, block_e(average));
  mixed("Mixed_7c", kFeatures, block_e(o.fid_pooling ? Pool::kMax : average), kFeatures);
  fc_ = std::make_unique<nn::Linear>(this, "fc", nn::LinearOptions{.in = kFeatures, .out = o.classes});
  for (const auto& [name, p] : named_parameters())
    if (p.dim() > 1) nn::init::trunc_normal_(p, {.stddev = 0.1, .low = -2, .high = 2});
}

Tensor InceptionV3::features(const Tensor& x, int64_t depth) {
  Tensor h = x;
  for (const Stage& s : stages_) {
    h = (*s.layer)(h);
    if (s.depth == 64 || s.depth == 192) h = max_pool2d(h, 3, 2);
    if (s.depth == depth && depth != 0) return flatten(adaptive_avg_pool2d(h, 1), 1);
  }
  throw ValueError("InceptionV3", "expected features of depth 64, 192, 768 or 2048, got ", depth);
}

Tensor InceptionV3::logits(const Tensor& features, bool with_bias) const {
  return linear(features, fc_->weight, with_bias ? Tensor(fc_->bias) : Tensor());
}

Tensor InceptionV3::forward(const Tensor& x) {
  return logits(dropout(features(x), options().dropout, is_training()));
}

Tensor inception_input(const Tensor& images, InceptionResize resize, DType dtype) {
  constexpr const char* kName = "inception_input";
  if (!images.defined()) throw ValueError(kName, "images is undefined");
  if (images.dtype() != DType::kU8) throw DTypeError(kName, "expected images of u8, got ", describe(images));
  if (images.dim() != 4 || (images.size(1) != 1 && images.size(1) != 3) || images.size(2) < 1 ||
      images.size(3) < 1)
    throw ShapeError(kName, "expected images [N,C,H,W] of 1 or 3 channels, got ", describe(images));
  Tensor x = to(images, DType::kF64);
  if (resize == InceptionResize::kTf)
    x = resample(
        x, {.axes = {nullptr, tf_taps(images.size(2), kInputSize), tf_taps(images.size(3), kInputSize)}});
  else
    x = clamp(interpolate(
                  x, {.size = {kInputSize, kInputSize}, .mode = Interpolation::kBicubic, .antialias = true}),
              0, 255);
  x = to((x - 128) / 128, dtype);
  return expand(x, {x.size(0), 3, kInputSize, kInputSize});
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::InceptionV3Options, gradus::nn::Layer>;
