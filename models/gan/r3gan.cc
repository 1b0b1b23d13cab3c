// R3GAN's networks (Huang et al., NeurIPS 2024), built from options. A stage has a transition layer and residual blocks
// of one size. Generator: z -> basis at 4x4 pixels -> blocks -> (1x1 convolution if the channels change, upsampling,
// blocks) per size -> 1x1 convolution. Discriminator: the reverse; at 4x4 pixels a depthwise 4x4 convolution and a
// linear layer. Weights are normal with standard deviation gain / sqrt(fan_in).
#include "gradus/models/gan/r3gan.h"

#include <cmath>

#include "gradus/models/gan/internal/options.h"

namespace gradus::models {
namespace {

const double kNegativeSlope = 0.2;

template <class O> void check(const char* network, const O& o) {
  internal::check_count(network, "the number of widths", int64_t(o.widths.size()));
  internal::check_image_size(network, int64_t{2} << std::min<size_t>(o.widths.size(), 60), 4);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "classes", o.classes, 0);
  internal::check_count(network, "blocks", o.blocks);
  internal::check_count(network, "expansion", o.expansion);
  internal::check_count(network, "group_width", o.group_width);
  for (const int64_t width : o.widths) {
    internal::check_count(network, "a width", width);
    if (width * o.expansion % o.group_width != 0)
      throw ValueError(network, "expected widths whose ", o.expansion, "-fold is divisible by group_width ",
                       o.group_width, ", got ", width);
  }
}

// Draws a weight [out, in, ...] from N(0, (gain / sqrt(fan_in))^2).
void init_weight(const Tensor& weight, double gain = 1) {
  nn::init::normal_(weight, {.stddev = gain / std::sqrt(double(nn::init::fans(weight).in))});
}

// A convolution without bias that preserves the image size.
struct Convolution final : nn::Layer {
  Convolution(nn::Module* parent, std::string name, nn::Conv2dOptions options, double gain = 1)
      : Layer(parent, std::move(name)), layer{this, "Layer", options} {
    init_weight(layer.weight, gain);
  }
  Tensor forward(const Tensor& x) override { return layer(x); }

  nn::Conv2d layer;
};

nn::Conv2dOptions conv1x1(int64_t in, int64_t out) {
  return {.in = in, .out = out, .kernel = 1, .bias = false};
}

struct BiasedActivation final : nn::Layer {
  BiasedActivation(nn::Module* parent, std::string name, int64_t channels)
      : Layer(parent, std::move(name)),
        bias{this, "Bias", zeros({channels}, {.device = Context::current().device})} {}
  Tensor forward(const Tensor& x) override {
    return leaky_relu(x + reshape(bias, {1, bias.size(0), 1, 1}), kNegativeSlope);
  }

  nn::Parameter bias;
};

// Shape and initial gain of the residual blocks of a network.
struct BlockStyle {
  int64_t expansion, group_width;
  double gain;
};

struct ResidualBlock final : nn::Layer {
  ResidualBlock(nn::Module* parent, std::string name, int64_t channels, BlockStyle style)
      : Layer(parent, std::move(name)),
        hidden{channels * style.expansion},
        linear1{this, "LinearLayer1", conv1x1(channels, hidden), style.gain},
        linear2{this,
                "LinearLayer2",
                {.in = hidden,
                 .out = hidden,
                 .kernel = 3,
                 .padding = 1,
                 .groups = hidden / style.group_width,
                 .bias = false},
                style.gain},
        linear3{this, "LinearLayer3", conv1x1(hidden, channels), 0},
        activation1{this, "NonLinearity1", hidden},
        activation2{this, "NonLinearity2", hidden} {}
  Tensor forward(const Tensor& x) override {
    return x + linear3(activation2(linear2(activation1(linear1(x)))));
  }

  int64_t hidden;  // number of channels between the convolutions
  Convolution linear1, linear2, linear3;
  BiasedActivation activation1, activation2;
};

// Resamples by 2 with the filter [1,3,3,1], that is bilinear interpolation. If the numbers of channels differ, a 1x1
// convolution "LinearLayer" changes them at the smaller of the two sizes.
struct Resample final : nn::Layer {
  Resample(nn::Module* parent, std::string name, int64_t in, int64_t out, bool upsample)
      : Layer(parent, std::move(name)),
        up{upsample},
        filter{upsample ? nn::FirFilter2dOptions{.up = 2, .padding = {2, 1}, .gain = 4}
                        : nn::FirFilter2dOptions{.down = 2, .padding = {1, 1}}} {
    if (in != out) linear = std::make_unique<Convolution>(this, "LinearLayer", conv1x1(in, out));
  }
  Tensor forward(const Tensor& x) override {
    if (!linear) return filter(x);
    return up ? filter((*linear)(x)) : (*linear)(filter(x));
  }

  bool up;
  nn::FirFilter2d filter;               // has no parameters, so it need not be registered as a child
  std::unique_ptr<Convolution> linear;  // null if the numbers of channels are equal
};

// Vectors [N, in] -> features [N, out, 4, 4].
struct GenerativeBasis final : nn::Layer {
  GenerativeBasis(nn::Module* parent, std::string name, int64_t in, int64_t out)
      : Layer(parent, std::move(name)),
        basis{this, "Basis", empty({out, 4, 4}, {.device = Context::current().device})},
        linear{this, "LinearLayer", {.in = in, .out = out, .bias = false}} {
    nn::init::normal_(basis);
    init_weight(linear.weight);
  }
  Tensor forward(const Tensor& x) override {
    return basis * reshape(linear(x), {x.size(0), basis.size(0), 1, 1});
  }

  nn::Parameter basis;
  nn::Linear linear;
};

// Features [N, in, 4, 4] -> vectors [N, out].
struct DiscriminativeBasis final : nn::Layer {
  DiscriminativeBasis(nn::Module* parent, std::string name, int64_t in, int64_t out)
      : Layer(parent, std::move(name)),
        basis{this, "Basis", {.in = in, .out = in, .kernel = 4, .groups = in, .bias = false}},
        linear{this, "LinearLayer", {.in = in, .out = out, .bias = false}} {
    init_weight(basis.weight);
    init_weight(linear.weight);
  }
  Tensor forward(const Tensor& x) override { return linear(flatten(basis(x), 1)); }

  nn::Conv2d basis;
  nn::Linear linear;
};

// The layers of one size, "Layers".
struct Stage final : nn::Layer {
  Stage(nn::Module* parent, std::string name) : Layer(parent, std::move(name)) {}
  void add_blocks(int64_t count, int64_t channels, BlockStyle style) {
    for (int64_t i = 0; i < count; ++i) layers.add<ResidualBlock>(channels, style);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (nn::Layer& layer : layers) h = layer(h);
    return h;
  }

  nn::ModuleList<> layers{this, "Layers"};
};

// The gain of leaky ReLU times L^(-1/4) for L blocks in the network: with it, a step of SGD changes the output by an
// amount that does not depend on L (Zhang et al., "Fixup initialization", ICLR 2019, for three convolutions).
template <class O> BlockStyle block_style(const O& o) {
  const double blocks = double(o.blocks) * double(o.widths.size());
  return {o.expansion, o.group_width,
          nn::init::gain(nn::init::Nonlinearity::kLeakyReLU, kNegativeSlope) * std::pow(blocks, -0.25)};
}

}  // namespace

R3GANGenerator::R3GANGenerator(Options options) : LayerWith(std::move(options)) { build(); }
R3GANGenerator::R3GANGenerator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void R3GANGenerator::build() {
  const Options& o = options();
  check("R3GANGenerator", o);
  internal::check_count("R3GANGenerator", "latent", o.latent);
  main_layers_ = std::make_unique<nn::ModuleList<>>(this, "MainLayers");
  for (size_t i = 0; i < o.widths.size(); ++i) {
    Stage& stage = main_layers_->add<Stage>();
    if (i == 0)
      stage.layers.add<GenerativeBasis>(o.classes > 0 ? 2 * o.latent : o.latent, o.widths[0]);
    else
      stage.layers.add<Resample>(o.widths[i - 1], o.widths[i], true);
    stage.add_blocks(o.blocks, o.widths[i], block_style(o));
  }
  aggregation_layer_ =
      std::make_unique<Convolution>(this, "AggregationLayer", conv1x1(o.widths.back(), o.channels));
  if (o.classes == 0) return;
  embedding_layer_ = std::make_unique<nn::Linear>(
      this, "EmbeddingLayer", nn::LinearOptions{.in = o.classes, .out = o.latent, .bias = false});
  init_weight(embedding_layer_->weight);
}

Tensor R3GANGenerator::forward(const Tensor& z) {
  internal::check_unlabeled("R3GANGenerator", options().classes);
  return compute(internal::latent_vectors("R3GANGenerator", z, options().latent));
}
Tensor R3GANGenerator::operator()(const Tensor& z, const Tensor& labels) {
  return call([&] {
    const Tensor vectors = internal::latent_vectors("R3GANGenerator", z, options().latent);
    const Tensor one_hot = internal::one_hot_like("R3GANGenerator", z, labels, options().classes);
    return compute(cat({vectors, (*embedding_layer_)(one_hot)}, 1));
  });
}

// vectors [N, latent], with classes [N, 2 latent] -> images.
Tensor R3GANGenerator::compute(const Tensor& vectors) {
  Tensor x = vectors;
  for (nn::Layer& stage : *main_layers_) x = stage(x);
  return (*aggregation_layer_)(x);
}

R3GANDiscriminator::R3GANDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
R3GANDiscriminator::R3GANDiscriminator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void R3GANDiscriminator::build() {
  const Options& o = options();
  check("R3GANDiscriminator", o);
  extraction_layer_ =
      std::make_unique<Convolution>(this, "ExtractionLayer", conv1x1(o.channels, o.widths.back()));
  main_layers_ = std::make_unique<nn::ModuleList<>>(this, "MainLayers");
  const int64_t features = o.classes > 0 ? o.widths[0] : 1;
  for (size_t i = o.widths.size(); i-- > 0;) {
    Stage& stage = main_layers_->add<Stage>();
    stage.add_blocks(o.blocks, o.widths[i], block_style(o));
    if (i > 0)
      stage.layers.add<Resample>(o.widths[i], o.widths[i - 1], false);
    else
      stage.layers.add<DiscriminativeBasis>(o.widths[0], features);
  }
  if (o.classes == 0) return;
  embedding_layer_ = std::make_unique<nn::Linear>(
      this, "EmbeddingLayer", nn::LinearOptions{.in = o.classes, .out = features, .bias = false});
  init_weight(embedding_layer_->weight, 1 / std::sqrt(double(features)));
}

Tensor R3GANDiscriminator::forward(const Tensor& x) {
  internal::check_unlabeled("R3GANDiscriminator", options().classes);
  return compute(x);
}
Tensor R3GANDiscriminator::operator()(const Tensor& x, const Tensor& labels) {
  return call([&] {
    const Tensor one_hot = internal::one_hot_like("R3GANDiscriminator", x, labels, options().classes);
    return sum(compute(x) * (*embedding_layer_)(one_hot), {1}, true);
  });
}

// x -> [N, 1], with classes [N, widths[0]].
Tensor R3GANDiscriminator::compute(const Tensor& x) {
  internal::check_images("R3GANDiscriminator", x, options().channels, int64_t{2} << options().widths.size());
  Tensor h = (*extraction_layer_)(x);
  for (nn::Layer& stage : *main_layers_) h = stage(h);
  return h;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::R3GANGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::R3GANDiscriminatorOptions, gradus::nn::Layer>;
