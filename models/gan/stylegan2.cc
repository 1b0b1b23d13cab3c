// StyleGAN2's networks in the form of StyleGAN2-ADA (Karras et al., NeurIPS 2020). The gain sqrt(2) of a leaky ReLU
// is part of the factors of its argument's terms, since leaky_relu(g x) = g leaky_relu(x) for g > 0: one pass over
// the features less.
#include "gradus/models/gan/stylegan2.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/models/gan/internal/options.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::models {
namespace {

constexpr double kNegativeSlope = 0.2, kGain = std::numbers::sqrt2, kMappingLR = 0.01;
const std::vector<double> kTaps = {1, 3, 3, 1};

int64_t log2_of(int64_t size) { return std::countr_zero(static_cast<uint64_t>(size)); }
template <class O> int64_t channels_at(const O& o, int64_t size) {
  return std::min(o.channel_base / size, o.channel_max);
}
std::string block_name(int64_t size) { return concat("b", size); }

template <class O> void check(const char* network, const O& o, int64_t min_size) {
  internal::check_image_size(network, o.size, min_size);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "classes", o.classes, 0);
  internal::check_count(network, "mapping_layers", o.mapping_layers);
  internal::check_count(network, "channel_base", o.channel_base);
  internal::check_count(network, "channel_max", o.channel_max);
  internal::check_count(network, "channels of the largest block", channels_at(o, o.size));
}

Tensor initial(const Shape& shape, double stddev = 1) {
  return nn::init::normal_(empty(shape, {.device = nn::internal::initial_device()}), {.stddev = stddev});
}
Tensor initial_zeros(const Shape& shape) { return zeros(shape, {.device = nn::internal::initial_device()}); }
Tensor initial_filter() {
  return gradus::to(gradus::to(nn::fir_filter(kTaps), DType::kF32), nn::internal::initial_device());
}
Tensor per_channel(const Tensor& bias, double gain, DType dtype) {
  const Tensor scaled = gain == 1 ? bias : bias * gain;
  return reshape(gradus::to(scaled, dtype), {1, -1, 1, 1});
}

// y = lr_mul (x weight^T / sqrt(in) + bias), followed by sqrt(2) leaky_relu if `rectifier`.
// Shapes: x [N,in] -> [N,out].
struct FullyConnected final : nn::Layer {
  struct Options {
    int64_t in, out;
    bool rectifier = true;
    double lr_mul = 1;
  };
  FullyConnected(nn::Module* parent, std::string name, Options options)
      : Layer(parent, std::move(name)),
        o(options),
        weight{this, "weight", initial({o.out, o.in}, 1 / o.lr_mul)},
        bias{this, "bias", initial_zeros({o.out})} {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = linear(x * (1 / std::sqrt(double(o.in))), weight, bias);
    if (o.rectifier) return leaky_relu(y, kNegativeSlope) * (o.lr_mul * kGain);
    return o.lr_mul == 1 ? y : y * o.lr_mul;
  }

  Options o;
  nn::Parameter weight, bias;
};

// The layers of a mapping as children of `owner`. `latent` of 0: labels alone.
struct MappingLayers {
  MappingLayers(nn::Module* owner, int64_t latent, int64_t classes, int64_t style, int64_t count) {
    if (classes > 0)
      embed =
          std::make_unique<FullyConnected>(owner, "embed", FullyConnected::Options{classes, style, false});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t in = i > 0 ? style : latent + (classes > 0 ? style : 0);
      fc.push_back(std::make_unique<FullyConnected>(owner, concat("fc", i),
                                                    FullyConnected::Options{in, style, true, kMappingLR}));
    }
  }
  // z [N,latent] or undefined, one-hot labels [N,classes] or undefined -> [N,style].
  Tensor operator()(const Tensor& z, const Tensor& labels) {
    const autograd::NoAutocast full_precision;
    const DType dtype = fc[0]->weight.dtype();
    Tensor x;
    if (z.defined()) x = norm(gradus::to(z, dtype));
    if (labels.defined()) {
      const Tensor y = norm((*embed)(gradus::to(labels, dtype)));
      x = x.defined() ? cat({x, y}, 1) : y;
    }
    for (const auto& layer : fc) x = (*layer)(x);
    return x;
  }

  std::unique_ptr<FullyConnected> embed;  // null without classes
  std::vector<std::unique_ptr<FullyConnected>> fc;
  nn::PixelNorm norm;  // has no parameters, so it need not be registered as a child
};

// The parameters that a layer of the synthesis adds to its modulated convolution's, under the convolution's name.
struct SynthesisLayer {
  SynthesisLayer(nn::Module* parent, std::string name, int64_t in, int64_t out, int64_t size, bool up,
                 const StyleGAN2GeneratorOptions& o)
      : conv{parent,
             std::move(name),
             {.in = in,
              .out = out,
              .kernel = 3,
              .style = o.style,
              .up = up ? 2 : 1,
              .taps = kTaps,
              .gain = kGain,
              .form = o.form}},
        noise_strength{&conv, "noise_strength", initial_zeros({})},
        bias{&conv, "bias", initial_zeros({out})},
        noise_const{&conv, "noise_const", initial({size, size})} {}

  // sqrt(2) leaky_relu(conv(x, w) + noise_strength noise + bias); `noise` broadcasts to [N,1,size,size], undefined:
  // none.
  Tensor operator()(const Tensor& x, const Tensor& w, const Tensor& noise) {
    Tensor y = conv(x, w);
    if (noise.defined()) y = y + gradus::to(noise_strength * kGain, y.dtype()) * gradus::to(noise, y.dtype());
    return leaky_relu(y + per_channel(bias, kGain, y.dtype()), kNegativeSlope);
  }
  // x [N,...]: the features whose size and dtype the noise has.
  Tensor noise(nn::NoiseMode mode, const Tensor& x) const {
    if (mode == nn::NoiseMode::kNone) return {};
    if (mode == nn::NoiseMode::kFixed) return noise_const;
    const int64_t size = noise_const.size(0);
    return randn({x.size(0), 1, size, size}, {x.dtype(), x.device()});
  }

  nn::ModulatedConv2d conv;
  nn::Parameter noise_strength, bias;
  nn::Buffer noise_const;  // [size,size]
};

// Maps features to an image by a 1x1 convolution without demodulation.
struct ToRGB {
  ToRGB(nn::Module* parent, int64_t in, const StyleGAN2GeneratorOptions& o)
      : conv{parent,
             "torgb",
             {.in = in,
              .out = o.channels,
              .kernel = 1,
              .style = o.style,
              .demodulate = false,
              .taps = {},
              .form = o.form}},
        bias{&conv, "bias", initial_zeros({o.channels})} {}
  Tensor operator()(const Tensor& x, const Tensor& w) {
    const Tensor y = conv(x, w);
    return y + per_channel(bias, 1, y.dtype());
  }

  nn::ModulatedConv2d conv;
  nn::Parameter bias;
};

// A convolution with bias, an optional resampling by 1/2 and an optional leaky ReLU, times `gain`.
struct ConvLayer final : nn::Layer {
  struct Options {
    int64_t in, out, kernel;
    bool rectifier = true;  // false: there is neither bias nor leaky ReLU
    int64_t down = 1;
    double gain = 1;
  };
  ConvLayer(nn::Module* parent, std::string name, Options options)
      : Layer(parent, std::move(name)),
        o(options),
        weight{this, "weight", initial({o.out, o.in, o.kernel, o.kernel})},
        bias{this, "bias", o.rectifier ? initial_zeros({o.out}) : Tensor()},
        resample_filter{this, "resample_filter", initial_filter()} {}
  Tensor forward(const Tensor& x) override {
    const double gain = o.rectifier ? kGain * o.gain : o.gain;
    const Tensor w = weight * (gain / std::sqrt(double(o.in * o.kernel * o.kernel)));
    const Tensor b = o.rectifier ? bias * gain : Tensor();
    const Tensor y = nn::resampled_conv2d(x, w, b, resample_filter, {.down = o.down});
    return o.rectifier ? leaky_relu(y, kNegativeSlope) : y;
  }

  Options o;
  nn::Parameter weight, bias;
  nn::Buffer resample_filter;
};

// x [N,in,2S,2S], for the first block an image -> [N,out,S,S].
struct DiscriminatorBlock final : nn::Layer {
  DiscriminatorBlock(nn::Module* parent, std::string name, bool first, int64_t in, int64_t out,
                     const StyleGAN2DiscriminatorOptions& o)
      : Layer(parent, std::move(name)), resample_filter{this, "resample_filter", initial_filter()} {
    const bool residual = o.form == StyleGAN2DiscriminatorOptions::Form::kResidual;
    const double gain = residual ? std::sqrt(0.5) : 1;
    const auto make = [&](const char* layer, ConvLayer::Options options) {
      return std::make_unique<ConvLayer>(this, layer, options);
    };
    if (first) fromrgb = make("fromrgb", {o.channels, in, 1});
    conv0 = make("conv0", {in, in, 3});
    conv1 = make("conv1", {.in = in, .out = out, .kernel = 3, .down = 2, .gain = gain});
    if (residual)
      skip = make("skip", {.in = in, .out = out, .kernel = 1, .rectifier = false, .down = 2, .gain = gain});
  }
  Tensor forward(const Tensor& image_or_features) override {
    const Tensor x = fromrgb ? (*fromrgb)(image_or_features) : image_or_features;
    const Tensor y = (*conv1)((*conv0)(x));
    return skip ? y + (*skip)(x) : y;
  }

  nn::Buffer resample_filter;  // a name of ADA's blocks, which is not used
  std::unique_ptr<ConvLayer> fromrgb, conv0, conv1, skip;
};

}  // namespace

struct StyleGAN2Mapping::Layers : MappingLayers {
  using MappingLayers::MappingLayers;
};

StyleGAN2Mapping::StyleGAN2Mapping(nn::Module* parent, std::string name, const StyleGAN2GeneratorOptions& o)
    : Module(parent, std::move(name)),
      w_avg{this, "w_avg", initial_zeros({o.style})},
      latent_(o.latent),
      classes_(o.classes),
      styles_(2 * log2_of(o.size) - 2),
      decay_(o.w_avg_decay),
      layers_(std::make_unique<Layers>(this, o.latent, o.classes, o.style, o.mapping_layers)) {}
StyleGAN2Mapping::~StyleGAN2Mapping() = default;

Tensor StyleGAN2Mapping::operator()(const Tensor& z, const Truncation& truncation) {
  return call([&] {
    internal::check_unlabeled("StyleGAN2Generator", classes_);
    return compute(z, {}, truncation);
  });
}
Tensor StyleGAN2Mapping::operator()(const Tensor& z, const Tensor& labels, const Truncation& truncation) {
  return call([&] {
    return compute(z, internal::one_hot_like("StyleGAN2Generator", z, labels, classes_), truncation);
  });
}

// `labels`: one-hot, or undefined.
Tensor StyleGAN2Mapping::compute(const Tensor& z, const Tensor& labels, const Truncation& t) {
  const Tensor w = (*layers_)(internal::latent_vectors("StyleGAN2Generator", z, latent_), labels);
  const int64_t N = w.size(0), style = w.size(1), cutoff = t.cutoff.value_or(styles_);
  if (cutoff < 0) throw ValueError("StyleGAN2Generator", "expected cutoff >= 0, got ", cutoff);
  const auto repeated = [&](const Tensor& x, int64_t count) {
    return expand(reshape(x, {N, 1, style}), {N, count, style});
  };
  if (t.truncation == 1 || cutoff == 0) return repeated(w, styles_);
  const Tensor truncated = w_avg + t.truncation * (w - w_avg);
  if (cutoff >= styles_) return repeated(truncated, styles_);
  return cat({repeated(truncated, cutoff), repeated(w, styles_ - cutoff)}, 1);
}

void StyleGAN2Mapping::update_w_avg(const Tensor& w) {
  if ((w.dim() != 2 && w.dim() != 3) || w.size(-1) != w_avg.size(0) || w.numel() == 0)
    throw ShapeError("update_w_avg", "expected w [N,", w_avg.size(0), "] or [N,L,", w_avg.size(0), "], got ",
                     describe(w));
  const NoRecord off = no_record();
  const Tensor first = w.dim() == 3 ? select(w, 1, 0) : w;
  raw::copy_(w_avg, lerp(mean(gradus::to(first, w_avg.dtype()), 0), w_avg, decay_));
}

// The features and images of one size: features x [N,in,S/2,S/2] -> [N,out,S,S], images likewise.
struct StyleGAN2Synthesis::Block final : nn::Module {
  Block(nn::Module* parent, int64_t size, int64_t in, int64_t out, const StyleGAN2GeneratorOptions& o)
      : Module(parent, block_name(size)),
        constant{this, "const", in == 0 ? initial({out, size, size}) : Tensor()},
        resample_filter{this, "resample_filter", initial_filter()} {
    if (in > 0) conv0 = std::make_unique<SynthesisLayer>(this, "conv0", in, out, size, true, o);
    conv1 = std::make_unique<SynthesisLayer>(this, "conv1", out, out, size, false, o);
    torgb = std::make_unique<ToRGB>(this, out, o);
  }

  nn::Parameter constant;  // of the first block
  nn::Buffer resample_filter;
  std::unique_ptr<SynthesisLayer> conv0, conv1;  // the first block has no conv0
  std::unique_ptr<ToRGB> torgb;
};

StyleGAN2Synthesis::StyleGAN2Synthesis(nn::Module* parent, std::string name,
                                       const StyleGAN2GeneratorOptions& o)
    : Module(parent, std::move(name)), style_(o.style), styles_(2 * log2_of(o.size) - 2) {
  check("StyleGAN2Generator", o, 4);
  internal::check_count("StyleGAN2Generator", "latent", o.latent);
  internal::check_count("StyleGAN2Generator", "style", o.style);
  for (int64_t size = 4, in = 0; size <= o.size; size *= 2) {
    blocks_.push_back(std::make_unique<Block>(this, size, in, channels_at(o, size), o));
    in = channels_at(o, size);
  }
}
StyleGAN2Synthesis::~StyleGAN2Synthesis() = default;

std::vector<int64_t> StyleGAN2Synthesis::noise_sizes() const {
  std::vector<int64_t> sizes = {4};
  for (int64_t size = 8; std::ssize(sizes) < 2 * std::ssize(blocks_) - 1; size *= 2)
    sizes.insert(sizes.end(), {size, size});
  return sizes;
}

Tensor StyleGAN2Synthesis::operator()(const Tensor& ws, const SynthesisNoise& noise) {
  return call([&] {
    if (ws.dim() != 3 || ws.size(1) != styles_ || ws.size(2) != style_)
      throw ShapeError("StyleGAN2Synthesis", "expected ws [N,", styles_, ",", style_, "], got ",
                       describe(ws));
    const std::vector<int64_t> sizes = noise_sizes();
    const bool has_planes = !noise.planes.empty();
    if (has_planes && noise.planes.size() != sizes.size())
      throw ValueError("StyleGAN2Synthesis", "expected ", sizes.size(), " planes of noise, got ",
                       noise.planes.size());
    const int64_t N = ws.size(0);
    Tensor x, image;
    size_t layer = 0;  // number of convolutions so far
    const auto w = [&] { return select(ws, 1, int64_t(layer)); };
    const auto apply = [&](SynthesisLayer& conv) {
      Tensor plane;
      if (has_planes) {
        plane = noise.planes[layer];
        const int64_t S = sizes[layer];
        if (plane.dim() != 4 || (plane.size(0) != 1 && plane.size(0) != N) || plane.size(1) != 1 ||
            plane.size(2) != S || plane.size(3) != S)
          throw ShapeError("StyleGAN2Synthesis", "expected noise [", N, ",1,", S, ",", S, "] or [1,1,", S,
                           ",", S, "] for plane ", layer, ", got ", describe(plane));
      } else {
        plane = conv.noise(noise.mode, x);
      }
      x = conv(x, w(), plane);
      ++layer;
    };
    for (const auto& block : blocks_) {
      if (block->conv0)
        apply(*block->conv0);
      else
        x = expand(reshape(block->constant, {1, -1, 4, 4}), {N, block->constant.size(0), 4, 4});
      apply(*block->conv1);
      const Tensor rgb = (*block->torgb)(x, w());  // with the style of the next block's first convolution
      image =
          image.defined()
              ? nn::fir_filter2d(image, block->resample_filter, {.up = 2, .padding = {2, 1}, .gain = 4}) + rgb
              : rgb;
    }
    return image;
  });
}

Tensor StyleGAN2Generator::forward(const Tensor& z) { return synthesis(mapping(z)); }
Tensor StyleGAN2Generator::operator()(const Tensor& z, const Truncation& truncation,
                                      const SynthesisNoise& noise) {
  return call([&] { return synthesis(mapping(z, truncation), noise); });
}
Tensor StyleGAN2Generator::operator()(const Tensor& z, const Tensor& labels, const Truncation& truncation,
                                      const SynthesisNoise& noise) {
  return call([&] { return synthesis(mapping(z, labels, truncation), noise); });
}

// One-hot labels [N,classes] -> [N,features].
struct StyleGAN2Discriminator::LabelMapping final : nn::Layer {
  LabelMapping(nn::Module* parent, std::string name, int64_t classes, int64_t features, int64_t count)
      : Layer(parent, std::move(name)), layers(this, 0, classes, features, count) {}
  Tensor forward(const Tensor& labels) override { return layers({}, labels); }

  MappingLayers layers;
};

// Features x [N,C,4,4] -> [N,out].
struct StyleGAN2Discriminator::Epilogue final : nn::Layer {
  Epilogue(nn::Module* parent, std::string name, int64_t C, int64_t outputs, int64_t group_size)
      : Layer(parent, std::move(name)),
        mbstd{this, "mbstd", {.group_size = group_size}},
        conv{this, "conv", {C + 1, C, 3}},
        fc{this, "fc", {16 * C, C}},
        out{this, "out", {C, outputs, false}} {}
  Tensor forward(const Tensor& x) override { return out(fc(flatten(conv(mbstd(x)), 1))); }

  nn::MinibatchStdDev mbstd;
  ConvLayer conv;
  FullyConnected fc, out;
};

StyleGAN2Discriminator::StyleGAN2Discriminator(Options options) : LayerWith(std::move(options)) { build(); }
StyleGAN2Discriminator::StyleGAN2Discriminator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}
StyleGAN2Discriminator::~StyleGAN2Discriminator() = default;

void StyleGAN2Discriminator::build() {
  const Options& o = options();
  check("StyleGAN2Discriminator", o, 8);
  internal::check_count("StyleGAN2Discriminator", "group_size", o.group_size);
  internal::check_count("StyleGAN2Discriminator", "label_features", o.label_features, 0);
  for (int64_t size = o.size; size > 4; size /= 2)
    blocks_.push_back(std::make_unique<DiscriminatorBlock>(
        this, block_name(size), size == o.size, channels_at(o, size), channels_at(o, size / 2), o));
  const int64_t last = channels_at(o, 4), features = o.label_features > 0 ? o.label_features : last;
  if (o.classes > 0)
    mapping_ = std::make_unique<LabelMapping>(this, "mapping", o.classes, features, o.mapping_layers);
  epilogue_ =
      std::make_unique<Epilogue>(this, block_name(4), last, o.classes > 0 ? features : 1, o.group_size);
}

Tensor StyleGAN2Discriminator::forward(const Tensor& x) {
  internal::check_unlabeled("StyleGAN2Discriminator", options().classes);
  return compute(x, {});
}
Tensor StyleGAN2Discriminator::operator()(const Tensor& x, const Tensor& labels) {
  return call([&] {
    return compute(x, internal::one_hot_like("StyleGAN2Discriminator", x, labels, options().classes));
  });
}

// `labels`: one-hot, or undefined.
Tensor StyleGAN2Discriminator::compute(const Tensor& x, const Tensor& labels) {
  internal::check_images("StyleGAN2Discriminator", x, options().channels, options().size);
  Tensor h = x;
  for (const auto& block : blocks_) h = (*block)(h);
  h = (*epilogue_)(h);
  if (!labels.defined()) return h;
  const Tensor mapped = gradus::to((*mapping_)(labels), h.dtype());
  return sum(h * mapped, 1, true) * (1 / std::sqrt(double(h.size(1))));
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::StyleGAN2GeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::StyleGAN2DiscriminatorOptions, gradus::nn::Layer>;
