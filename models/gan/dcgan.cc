// DCGAN's generator and discriminator (Radford et al., ICLR 2016). layers() makes the list of factories from
// which nn::Sequential constructs the layers. Sizes are powers of two from 8 (checked): the generator doubles
// height and width per layer from 4x4, and the discriminator halves them down to 4x4. Labels, if any, are
// concatenated as one-hot channels.
#include "gradus/models/gan/dcgan.h"

#include <algorithm>

#include "gradus/models/gan/internal/options.h"

namespace gradus::models {
namespace {

// Returns a factory of convolutions with initial weights from N(0, 0.02^2) and initial bias 0.
template <class Conv> nn::LayerFactory conv(typename Conv::Options options) {
  return [options](nn::Module* parent, const std::string& name) {
    auto layer = std::make_unique<Conv>(parent, name, options);
    nn::init::normal_(layer->weight, {.stddev = 0.02});
    if (layer->bias.defined()) nn::init::zeros_(layer->bias);
    return layer;
  };
}

// Returns a factory of batch norms with initial weights from the normal distribution `weight`, and bias 0.
nn::LayerFactory batch_norm(int64_t features, nn::init::NormalOptions weight) {
  return [features, weight](nn::Module* parent, const std::string& name) {
    auto layer = std::make_unique<nn::BatchNorm2d>(parent, name, nn::BatchNormOptions{.features = features});
    nn::init::normal_(layer->weight, weight);
    return layer;
  };
}

template <class O> void check(const char* network, const O& o) {
  internal::check_image_size(network, o.size, 8);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "width", o.width);
  internal::check_count(network, "classes", o.classes, 0);
}

}  // namespace

std::vector<nn::LayerFactory> DCGANGenerator::layers(const Options& o) {
  check("DCGANGenerator", o);
  internal::check_count("DCGANGenerator", "latent", o.latent);
  // [N, latent + classes, 1, 1] -> [N, width, 4, 4], then half the channels and twice the size per layer.
  int64_t width = o.width * (o.size / 8);
  std::vector layers = {
      conv<nn::ConvTranspose2d>({.in = o.latent + o.classes, .out = width, .kernel = 4, .bias = false}),
      batch_norm(width, o.norm_weight), nn::layer<nn::ReLU>()};
  for (; width > o.width; width /= 2) {
    layers.push_back(conv<nn::ConvTranspose2d>(
        {.in = width, .out = width / 2, .kernel = 4, .stride = 2, .padding = 1, .bias = false}));
    layers.push_back(batch_norm(width / 2, o.norm_weight));
    layers.push_back(nn::layer<nn::ReLU>());
  }
  layers.push_back(conv<nn::ConvTranspose2d>(
      {.in = width, .out = o.channels, .kernel = 4, .stride = 2, .padding = 1, .bias = o.bias}));
  layers.push_back(nn::layer<nn::Tanh>());
  return layers;
}

Tensor DCGANGenerator::forward(const Tensor& z) {
  internal::check_unlabeled("DCGANGenerator", options().classes);
  const Tensor vectors = internal::latent_vectors("DCGANGenerator", z, options().latent);
  return main(reshape(vectors, {z.size(0), z.size(1), 1, 1}));
}
Tensor DCGANGenerator::operator()(const Tensor& z, const Tensor& labels) {
  return call([&] {
    const Tensor vectors = internal::latent_vectors("DCGANGenerator", z, options().latent);
    const Tensor vectors_and_labels =
        cat({vectors, internal::one_hot_like("DCGANGenerator", z, labels, options().classes)}, 1);
    return main(reshape(vectors_and_labels, {vectors_and_labels.size(0), vectors_and_labels.size(1), 1, 1}));
  });
}

std::vector<nn::LayerFactory> DCGANDiscriminator::layers(const Options& o) {
  check("DCGANDiscriminator", o);
  internal::check_count("DCGANDiscriminator", "outputs", o.outputs);
  const auto activation = nn::layer<nn::LeakyReLU>({.negative_slope = o.negative_slope});
  int64_t width = o.width;
  std::vector layers = {conv<nn::Conv2d>({.in = o.channels + o.classes,
                                          .out = width,
                                          .kernel = 4,
                                          .stride = 2,
                                          .padding = 1,
                                          .bias = o.bias}),
                        activation};
  for (int64_t size = o.size / 2; size > 4; size /= 2, width *= 2) {
    layers.push_back(conv<nn::Conv2d>(
        {.in = width, .out = 2 * width, .kernel = 4, .stride = 2, .padding = 1, .bias = false}));
    layers.push_back(batch_norm(2 * width, o.norm_weight));
    layers.push_back(activation);
  }
  layers.push_back(conv<nn::Conv2d>({.in = width, .out = o.outputs, .kernel = 4, .bias = o.bias}));
  return layers;
}

Tensor DCGANDiscriminator::forward(const Tensor& x) {
  internal::check_unlabeled("DCGANDiscriminator", options().classes);
  internal::check_images("DCGANDiscriminator", x, options().channels, options().size);
  return flatten(main(x), 1);
}
Tensor DCGANDiscriminator::operator()(const Tensor& x, const Tensor& labels) {
  return call([&] {
    const auto& [size, channels] = std::pair(options().size, options().channels);
    internal::check_images("DCGANDiscriminator", x, channels, size);
    const Tensor one_hot = internal::one_hot_like("DCGANDiscriminator", x, labels, options().classes);
    // One constant plane per class: [N, classes, size, size].
    const Tensor planes = expand(reshape(one_hot, {x.size(0), options().classes, 1, 1}),
                                 {x.size(0), options().classes, size, size});
    return flatten(main(cat({x, planes}, 1)), 1);
  });
}

DCGANGeneratorOptions mmgen(DCGANGeneratorOptions o) {
  o.width = std::max<int64_t>(1024 * 8 / std::max<int64_t>(o.size, 8), 1);
  o.bias = true;
  o.norm_weight = {.mean = 0, .stddev = 1};
  return o;
}
DCGANDiscriminatorOptions mmgen(DCGANDiscriminatorOptions o) {
  o.width = 128;
  o.negative_slope = 0.01;
  o.bias = true;
  o.norm_weight = {.mean = 0, .stddev = 1};
  return o;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::DCGANGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::DCGANDiscriminatorOptions, gradus::nn::Layer>;
