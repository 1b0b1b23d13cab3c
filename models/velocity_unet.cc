// VelocityUNet: residual blocks and self-attention of diffusion models (Ho et al., NeurIPS 2020) in a U-Net.
#include "gradus/models/velocity_unet.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

const char* const kName = "VelocityUNet";

nn::Conv2dOptions same_size(int64_t in, int64_t out) {
  return {.in = in, .out = out, .kernel = 3, .padding = 1};
}

// Errors: ValueError unless the option `what` is in [min, 2^20]: products of three such numbers fit in int64.
void check_count(const char* what, int64_t value, int64_t min = 1) {
  if (value < min || value > int64_t{1} << 20)
    throw ValueError(kName, "expected ", what, " in [", min, ", ", int64_t{1} << 20, "], got ", value);
}

void check(const VelocityUNetOptions& o) {
  check_count("size", o.size);
  check_count("channels", o.channels);
  check_count("width", o.width, 2);
  check_count("levels (multipliers)", int64_t(o.multipliers.size()));
  check_count("blocks", o.blocks);
  check_count("patch", o.patch);
  check_count("heads", o.heads);
  check_count("groups", o.groups);
  check_count("classes", o.classes, 0);
  if (o.width % 2 != 0) throw ValueError(kName, "expected an even width, got ", o.width);
  for (const int64_t m : o.multipliers) {
    check_count("multipliers", m);
    check_count("channels of a level", o.width * m);
    if (o.width * m % o.groups != 0 || o.width * m % o.heads != 0)
      throw ValueError(kName, "expected channels of all levels that ", o.groups, " groups and ", o.heads,
                       " heads divide, got ", o.width * m);
  }
  std::vector<int64_t> sizes = {o.size / o.patch};
  while (sizes.size() < o.multipliers.size()) sizes.push_back(sizes.back() / 2);
  if (sizes.back() == 0 || (sizes.back() * o.patch << (sizes.size() - 1)) != o.size)
    throw ValueError(kName, "expected a size that a patch of ", o.patch, " and ", sizes.size() - 1,
                     " halvings divide, got ", o.size);
  for (const int64_t size : o.attention)
    if (std::ranges::find(sizes, size) == sizes.end())
      throw ValueError(kName, "expected attention at heights of levels, from ", sizes.front(), " to ",
                       sizes.back(), ", got ", size);
}

// x + proj(attention(norm(x))): each pixel attends to all pixels.
class Attention final : public nn::Layer {
 public:
  Attention(nn::Module* parent, std::string name, int64_t channels, const VelocityUNetOptions& o)
      : Layer(parent, std::move(name)),
        heads(o.heads),
        norm{this, "norm", {.groups = o.groups, .channels = channels}},
        qkv{this, "qkv", {.in = channels, .out = 3 * channels, .kernel = 1}},
        proj{this, "proj", {.in = channels, .out = channels, .kernel = 1}} {}

  Tensor forward(const Tensor& x) override {
    const int64_t n = x.size(0), channels = x.size(1);
    // [N, 3 C, H, W] -> 3 times [N, heads, H W, C / heads]
    const Tensor all = transpose(reshape(qkv(norm(x)), {n, 3, heads, channels / heads, -1}), 3, 4);
    const Tensor y = scaled_dot_product_attention(select(all, 1, 0), select(all, 1, 1), select(all, 1, 2));
    return x + proj(reshape(transpose(y, 2, 3), x.shape()));
  }

 private:
  int64_t heads;
  nn::GroupNorm norm;
  nn::Conv2d qkv, proj;
};

}  // namespace

class VelocityUNet::Block final : public nn::Module {
 public:
  Block(nn::Module* parent, std::string name, int64_t in, int64_t out, bool attends,
        const VelocityUNetOptions& o)
      : Module(parent, std::move(name)),
        norm1{this, "norm1", {.groups = o.groups, .channels = in}},
        conv1{this, "conv1", same_size(in, out)},
        embedding{this, "embedding", {.in = 4 * o.width, .out = out}},
        norm2{this, "norm2", {.groups = o.groups, .channels = out}},
        conv2{this, "conv2", same_size(out, out)} {
    if (in != out)
      shortcut = std::make_unique<nn::Conv2d>(this, "shortcut",
                                              nn::Conv2dOptions{.in = in, .out = out, .kernel = 1});
    if (attends) attention = std::make_unique<Attention>(this, "attention", out, o);
  }

  // x [N, in, H, W], e = silu(embedding) [N, 4 width] -> [N, out, H, W]
  Tensor operator()(const Tensor& x, const Tensor& e) {
    return call([&] {
      Tensor h = conv1(silu(norm1(x)));
      h = h + reshape(embedding(e), {h.size(0), h.size(1), 1, 1});
      h = (shortcut ? (*shortcut)(x) : x) + conv2(silu(norm2(h)));
      return attention ? (*attention)(h) : h;
    });
  }

 private:
  nn::GroupNorm norm1;
  nn::Conv2d conv1;
  nn::Linear embedding;
  nn::GroupNorm norm2;
  nn::Conv2d conv2;
  std::unique_ptr<nn::Conv2d> shortcut;  // null: the identity
  std::unique_ptr<Attention> attention;  // null: none
};

VelocityUNet::VelocityUNet(Options options) : ModuleWith(std::move(options)) { build(); }
VelocityUNet::VelocityUNet(nn::Module* parent, std::string name, Options options)
    : ModuleWith(parent, std::move(name), std::move(options)) {
  build();
}
VelocityUNet::~VelocityUNet() = default;

void VelocityUNet::build() {
  const Options& o = options();
  check(o);
  const auto levels = int64_t(o.multipliers.size());
  const auto channels = [&](int64_t level) { return o.width * o.multipliers[size_t(level)]; };
  const auto attends = [&](int64_t level) {
    return std::ranges::find(o.attention, (o.size / o.patch) >> level) != o.attention.end();
  };
  const int64_t pixel = o.channels * o.patch * o.patch, embedded = 4 * o.width;

  time_ = std::make_unique<nn::Sequential>(
      this, "time",
      std::vector{nn::layer<nn::Linear>({.in = o.width, .out = embedded}), nn::layer<nn::SiLU>(),
                  nn::layer<nn::Linear>({.in = embedded, .out = embedded})});
  if (o.classes > 0)
    label_ = std::make_unique<nn::Embedding>(
        this, "label", nn::EmbeddingOptions{.num_embeddings = o.classes + 1, .embedding_dim = embedded});
  conv_in_ = std::make_unique<nn::Conv2d>(this, "conv_in", same_size(pixel, channels(0)));
  down_ = std::make_unique<nn::ModuleList<Block>>(this, "down");
  downsample_ = std::make_unique<nn::ModuleList<nn::Conv2d>>(this, "downsample");
  int64_t in = channels(0);
  for (int64_t level = 0; level < levels; ++level) {
    for (int64_t i = 0; i < o.blocks; ++i, in = channels(level))
      down_->add(in, channels(level), attends(level), o);
    if (level + 1 < levels) downsample_->add({.in = in, .out = in, .kernel = 3, .stride = 2, .padding = 1});
  }
  middle_ = std::make_unique<Block>(this, "middle", in, in, attends(levels - 1), o);
  up_ = std::make_unique<nn::ModuleList<Block>>(this, "up");
  upsample_ = std::make_unique<nn::ModuleList<nn::Conv2d>>(this, "upsample");
  for (int64_t level = levels - 1; level >= 0; --level) {
    for (int64_t i = 0; i < o.blocks; ++i) up_->add(2 * channels(level), channels(level), attends(level), o);
    if (level > 0) upsample_->add(same_size(channels(level), channels(level - 1)));
  }
  norm_out_ = std::make_unique<nn::GroupNorm>(
      this, "norm_out", nn::GroupNormOptions{.groups = o.groups, .channels = channels(0)});
  conv_out_ = std::make_unique<nn::Conv2d>(this, "conv_out", same_size(channels(0), pixel));
  nn::init::zeros_(conv_out_->weight);
  nn::init::zeros_(conv_out_->bias);
}

// Returns silu(time embedding + label embedding), [N, 4 width].
Tensor VelocityUNet::embed(const Tensor& x, const Tensor& t, const Tensor& labels) {
  const int64_t n = x.size(0), half = options().width / 2;
  if (t.dim() != 1 || t.size(0) != n)
    throw ShapeError(kName, "expected one time for each of ", n, " samples, got ", describe(t));
  const Tensor frequencies =
      1000 * exp(arange(half, {.dtype = t.dtype(), .device = t.device()}) * (-std::log(1e4) / double(half)));
  const Tensor angles = reshape(t, {n, 1}) * frequencies;
  Tensor e = (*time_)(cat({sin(angles), cos(angles)}, 1));
  if (!label_ && labels.defined())
    throw StateError(kName, "the network has no classes, but was given labels");
  if (!label_) return silu(e);
  if (labels.defined() && (labels.dim() != 1 || labels.size(0) != n))
    throw ShapeError(kName, "expected one label for each of ", n, " samples, got ", describe(labels));
  const Tensor classes =
      labels.defined() ? labels : full({n}, options().classes, {.dtype = DType::kI64, .device = x.device()});
  return silu(e + (*label_)(classes));
}

Tensor VelocityUNet::operator()(const Tensor& x, const Tensor& t, const Tensor& labels) {
  return call([&] {
    const Options& o = options();
    if (x.dim() != 4 || x.size(1) != o.channels || x.size(2) != o.size || x.size(3) != o.size)
      throw ShapeError(kName, "expected images [N,", o.channels, ",", o.size, ",", o.size, "], got ",
                       describe(x));
    const Tensor e = embed(x, t, labels);
    const auto blocks = size_t(o.blocks), levels = o.multipliers.size();
    Tensor h = (*conv_in_)(o.patch > 1 ? pixel_unshuffle(x, o.patch) : x);
    std::vector<Tensor> skips;
    for (size_t level = 0; level < levels; ++level) {
      for (size_t i = 0; i < blocks; ++i) skips.push_back(h = (*down_)[level * blocks + i](h, e));
      if (level + 1 < levels) h = (*downsample_)[level](h);
    }
    h = (*middle_)(h, e);
    for (size_t level = 0; level < levels; ++level) {  // from the smallest to the largest
      for (size_t i = 0; i < blocks; ++i, skips.pop_back())
        h = (*up_)[level * blocks + i](cat({h, skips.back()}, 1), e);
      if (level + 1 < levels) h = (*upsample_)[level](interpolate(h, {.scale_factor = {2}}));
    }
    h = (*conv_out_)(silu((*norm_out_)(h)));
    return o.patch > 1 ? pixel_shuffle(h, o.patch) : h;
  });
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::VelocityUNetOptions>;
