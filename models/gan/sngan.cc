// SNGAN's networks, built from options, with mmgeneration's layers and names of parameters. Generator: z [N, latent] ->
// linear -> [N, width, 4, 4] -> residual blocks, each doubling the size -> batch norm, ReLU, 3x3 convolution, tanh.
// Discriminator: residual blocks that halve the size down to 8x8, two at 8x8, ReLU, sum over the pixels -> score.
#include "gradus/models/gan/sngan.h"

#include <numbers>

#include "gradus/models/gan/internal/conv_block.h"
#include "gradus/models/gan/internal/options.h"

namespace gradus::models {
namespace {

using internal::ConvBlock;

template <class O> void check(const char* network, const O& o, int64_t min_size) {
  internal::check_image_size(network, o.size, min_size);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "classes", o.classes, 0);
  internal::check_count(network, "width", o.width);
}

// `gain`: of the paper's initialization.
void init_weight(const Tensor& weight, SNGANInit init, double gain) {
  if (init == SNGANInit::kStudio)
    nn::init::orthogonal_(weight);
  else
    nn::init::xavier_uniform_(weight, {.gain = gain});
}

// How the convolutions of a network are made.
struct ConvStyle {
  SNGANInit init;
  bool spectral_norm;
};

// Returns a factory of convolutions that preserve the image size.
nn::LayerFactory conv(int64_t in, int64_t out, int64_t kernel, double gain, ConvStyle style) {
  return [=](nn::Module* parent, const std::string& name) {
    auto layer = std::make_unique<nn::Conv2d>(
        parent, name, nn::Conv2dOptions{.in = in, .out = out, .kernel = kernel, .padding = kernel / 2});
    init_weight(layer->weight, style.init, gain);
    nn::init::zeros_(layer->bias);
    if (style.spectral_norm) nn::spectral_norm(*layer);
    return layer;
  };
}
internal::ConvBlockOptions conv3x3(int64_t in, int64_t out, ConvStyle style) {
  return {.conv = conv(in, out, 3, std::numbers::sqrt2, style), .slope = {}};
}
internal::ConvBlockOptions conv1x1(int64_t in, int64_t out, ConvStyle style) {
  return {.conv = conv(in, out, 1, 1, style), .slope = {}};
}

// A batch norm without classes, under the name that it has in a conditional batch norm.
struct PlainNorm final : nn::Module {
  PlainNorm(nn::Module* parent, std::string name, const SNGANGeneratorOptions& o)
      : Module(parent, std::move(name)), norm{this, "norm", {.features = o.width, .eps = o.eps}} {}

  nn::BatchNorm2d norm;
};

// relu(norm) -> upsample -> convolution -> relu(norm) -> convolution, plus upsample -> 1x1 convolution.
struct GeneratorBlock final : nn::Module {
  GeneratorBlock(nn::Module* parent, std::string name, const SNGANGeneratorOptions& o)
      : Module(parent, std::move(name)),
        conv_1{this, "conv_1", conv3x3(o.width, o.width, {o.init, false})},
        conv_2{this, "conv_2", conv3x3(o.width, o.width, {o.init, false})} {
    for (int i = 0; i < 2; ++i) {
      const std::string norm_name = i == 0 ? "norm_1" : "norm_2";
      if (o.classes == 0) {
        plain[i] = std::make_unique<PlainNorm>(this, norm_name, o);
        continue;
      }
      conditional[i] = std::make_unique<nn::ConditionalBatchNorm2d>(
          this, norm_name,
          nn::ConditionalBatchNorm2dOptions{.features = o.width,
                                            .classes = o.classes,
                                            .eps = o.eps,
                                            .plus_one = o.init == SNGANInit::kStudio});
      if (o.init == SNGANInit::kStudio) {
        nn::init::orthogonal_(conditional[i]->weight_embedding.weight);
        nn::init::orthogonal_(conditional[i]->bias_embedding.weight);
      }
    }
    shortcut = std::make_unique<ConvBlock>(this, "shortcut", conv1x1(o.width, o.width, {o.init, false}));
  }
  Tensor normalize(int i, const Tensor& x, const Tensor& labels) {
    return conditional[i] ? (*conditional[i])(x, labels) : plain[i]->norm(x);
  }
  Tensor forward(const Tensor& x, const Tensor& labels) {
    const auto upsample = [](const Tensor& t) { return interpolate(t, {.scale_factor = {2}}); };
    Tensor h = conv_1(upsample(relu(normalize(0, x, labels))));
    h = conv_2(relu(normalize(1, h, labels)));
    return h + (*shortcut)(upsample(x));
  }

  ConvBlock conv_1, conv_2;
  std::unique_ptr<PlainNorm> plain[2];  // without classes
  std::unique_ptr<nn::ConditionalBatchNorm2d> conditional[2];
  std::unique_ptr<ConvBlock> shortcut;
};

// tanh(convolution(relu(batch norm))).
struct ToRgb final : nn::Layer {
  ToRgb(nn::Module* parent, std::string name, const SNGANGeneratorOptions& o)
      : Layer(parent, std::move(name)),
        conv_layer{conv(o.width, o.channels, 3, 1, {o.init, false})(this, "conv")},
        bn{this, "bn", {.features = o.width, .eps = o.eps}} {}
  Tensor forward(const Tensor& x) override { return tanh((*conv_layer)(bn.relu(x))); }

  std::unique_ptr<nn::Layer> conv_layer;
  nn::BatchNorm2d bn;
};

// The first block of the discriminator: convolution -> relu -> convolution -> average, plus average -> 1x1
// convolution.
struct HeadBlock final : nn::Layer {
  HeadBlock(nn::Module* parent, std::string name, const SNGANDiscriminatorOptions& o)
      : Layer(parent, std::move(name)),
        conv_1{this, "conv_1", conv3x3(o.channels, o.width, {o.init, true})},
        conv_2{this, "conv_2", conv3x3(o.width, o.width, {o.init, true})},
        shortcut{this, "shortcut", conv1x1(o.channels, o.width, {o.init, true})} {}
  Tensor forward(const Tensor& x) override {
    return avg_pool2d(conv_2(relu(conv_1(x))), 2) + shortcut(avg_pool2d(x, 2));
  }

  ConvBlock conv_1, conv_2, shortcut;
};

// relu -> convolution -> relu -> convolution -> average, plus 1x1 convolution -> average. Without downsampling: no
// averages, and the input instead of its convolution.
struct DiscriminatorBlock final : nn::Layer {
  DiscriminatorBlock(nn::Module* parent, std::string name, const SNGANDiscriminatorOptions& o,
                     bool downsample)
      : Layer(parent, std::move(name)),
        conv_1{this, "conv_1", conv3x3(o.width, o.width, {o.init, true})},
        conv_2{this, "conv_2", conv3x3(o.width, o.width, {o.init, true})} {
    if (downsample)
      shortcut = std::make_unique<ConvBlock>(this, "shortcut", conv1x1(o.width, o.width, {o.init, true}));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = conv_2(relu(conv_1(relu(x))));
    return shortcut ? avg_pool2d(h, 2) + avg_pool2d((*shortcut)(x), 2) : h + x;
  }

  ConvBlock conv_1, conv_2;
  std::unique_ptr<ConvBlock> shortcut;  // null without downsampling
};

}  // namespace

SNGANGenerator::SNGANGenerator(Options options) : LayerWith(std::move(options)) { build(); }
SNGANGenerator::SNGANGenerator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void SNGANGenerator::build() {
  const Options& o = options();
  check("SNGANGenerator", o, 8);
  internal::check_count("SNGANGenerator", "latent", o.latent);
  noise2feat_ = std::make_unique<nn::Linear>(this, "noise2feat",
                                             nn::LinearOptions{.in = o.latent, .out = 16 * o.width});
  init_weight(noise2feat_->weight, o.init, 1);
  nn::init::zeros_(noise2feat_->bias);
  conv_blocks_ = std::make_unique<nn::ModuleList<nn::Module>>(this, "conv_blocks");
  for (int64_t size = 4; size < o.size; size *= 2) conv_blocks_->add<GeneratorBlock>(o);
  to_rgb_ = std::make_unique<ToRgb>(this, "to_rgb", o);
}

Tensor SNGANGenerator::forward(const Tensor& z) {
  internal::check_unlabeled("SNGANGenerator", options().classes);
  return compute(z, {});
}
Tensor SNGANGenerator::operator()(const Tensor& z, const Tensor& labels) {
  return call([&] {
    internal::check_labels("SNGANGenerator", z, labels, options().classes);
    return compute(z, labels);
  });
}

Tensor SNGANGenerator::compute(const Tensor& z, const Tensor& labels) {
  const Tensor h = (*noise2feat_)(internal::latent_vectors("SNGANGenerator", z, options().latent));
  Tensor x = reshape(h, {z.size(0), options().width, 4, 4});
  for (auto& block : *conv_blocks_) x = static_cast<GeneratorBlock&>(block).forward(x, labels);
  return (*to_rgb_)(x);
}

SNGANDiscriminator::SNGANDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
SNGANDiscriminator::SNGANDiscriminator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void SNGANDiscriminator::build() {
  const Options& o = options();
  check("SNGANDiscriminator", o, 16);
  from_rgb_ = std::make_unique<HeadBlock>(this, "from_rgb", o);
  conv_blocks_ = std::make_unique<nn::ModuleList<>>(this, "conv_blocks");
  for (int64_t size = o.size / 2; size > 8; size /= 2) conv_blocks_->add<DiscriminatorBlock>(o, true);
  for (int i = 0; i < 2; ++i) conv_blocks_->add<DiscriminatorBlock>(o, false);
  decision_ = std::make_unique<nn::Linear>(
      this, "decision", nn::LinearOptions{.in = o.width, .out = 1, .bias = o.init == SNGANInit::kStudio});
  init_weight(decision_->weight, o.init, 1);
  if (decision_->bias.defined()) nn::init::zeros_(decision_->bias);
  nn::spectral_norm(*decision_);
  if (o.classes == 0) return;
  proj_y_ = std::make_unique<nn::Embedding>(
      this, "proj_y", nn::EmbeddingOptions{.num_embeddings = o.classes, .embedding_dim = o.width});
  init_weight(proj_y_->weight, o.init, 1);
  nn::spectral_norm(*proj_y_);
}

Tensor SNGANDiscriminator::forward(const Tensor& x) {
  internal::check_unlabeled("SNGANDiscriminator", options().classes);
  return compute(x, {});
}
Tensor SNGANDiscriminator::operator()(const Tensor& x, const Tensor& labels) {
  return call([&] {
    internal::check_labels("SNGANDiscriminator", x, labels, options().classes);
    return compute(x, labels);
  });
}

Tensor SNGANDiscriminator::compute(const Tensor& x, const Tensor& labels) {
  internal::check_images("SNGANDiscriminator", x, options().channels, options().size);
  Tensor h = (*from_rgb_)(x);
  for (auto& block : *conv_blocks_) h = block(h);
  h = sum(relu(h), {2, 3});
  const Tensor score = (*decision_)(h);
  return proj_y_ ? score + sum((*proj_y_)(labels)*h, {1}, true) : score;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::SNGANGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::SNGANDiscriminatorOptions, gradus::nn::Layer>;
