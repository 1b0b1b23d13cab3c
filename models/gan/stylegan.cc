// StyleGAN's networks (Karras et al., CVPR 2019): blocks for all resolutions, of which a call computes those up to
// its Scale, as in pggan.cc. Resolution r has 2^r x 2^r pixels, r = 2, 3, ... In the generator entry r - 2 of convs
// and to_rgbs is that of resolution r; in the discriminator, whose order is that of the computation, entry
// log2(size) - r of convs and from_rgb. Upsampling is nearest-neighbor interpolation before a convolution.
#include "gradus/models/gan/stylegan.h"

#include <algorithm>

#include "gradus/autograd/grad_manager.h"
#include "gradus/models/gan/internal/growing.h"
#include "gradus/models/gan/internal/options.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::models {

using internal::EqualizedConv;
using internal::EqualizedDownConv;
using internal::kNegativeSlope;
using internal::log2_of;
using internal::same_size;

namespace {

const double kMappingRate = 0.01;  // learning rate of the mapping, relative to that of other layers

// Returns the channels of the blocks of resolution r + 1: callers pass the resolution minus 1.
template <class O> int64_t channels_at(const O& o, int r) {
  return internal::channels_at(r, o.channel_base, o.channel_max);
}

template <class O> void check(const char* network, const O& o) {
  internal::check_image_size(network, o.size, 4);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "channel_base", o.channel_base);
  internal::check_count(network, "channel_max", o.channel_max);
  internal::check_count(network, "channels of the last block", channels_at(o, log2_of(o.size) - 1));
}

// A blur with the filter [1,2,1] along both dims, which preserves the image size.
nn::FirFilter2dOptions blur() { return {.taps = {1, 2, 1}, .padding = {1, 1}}; }

// y = linear(x) + lr_mul bias, with an optional leaky ReLU.
struct EqualizedLinear final : nn::Layer {
  struct Options {
    int64_t in, out;
    nn::EqualizedLROptions equalized;
    bool rectifier;
  };
  EqualizedLinear(nn::Module* parent, std::string name, Options options)
      : Layer(parent, std::move(name)),
        o(options),
        linear{this, "linear", {.in = o.in, .out = o.out, .bias = false}},
        bias{this, "bias", zeros({o.out}, {.device = Context::current().device})} {
    nn::equalized_lr(linear, o.equalized);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = linear(x) + bias * o.equalized.lr_mul;
    return o.rectifier ? leaky_relu(y, kNegativeSlope) : y;
  }

  Options o;
  nn::Linear linear;
  nn::Parameter bias;
};

// The learned input of the synthesis: x [N,...] -> [N,channels,4,4], the same for all samples.
struct Constant final : nn::Layer {
  Constant(nn::Module* parent, std::string name, int64_t channels, bool random)
      : Layer(parent, std::move(name)),
        input{this, "input",
              (random ? randn : ones)({1, channels, 4, 4}, {.device = Context::current().device})},
        bias{this, "bias", random ? Tensor() : zeros({channels}, {.device = Context::current().device})} {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = bias.defined() ? input + reshape(bias, {1, -1, 1, 1}) : Tensor(input);
    return expand(y, {x.size(0), y.size(1), 4, 4});
  }

  nn::Parameter input, bias;
};

// A convolution ("conv") whose bias is not added by forward but by the caller.
struct ConvWithSeparateBias final : nn::Layer {
  ConvWithSeparateBias(nn::Module* parent, std::string name, const nn::Conv2dOptions& options)
      : Layer(parent, std::move(name)), conv{this, "conv", options} {
    Tensor& member = conv.unregister_parameter("bias");
    bias = std::exchange(member, Tensor());
    conv.register_parameter("bias", bias);
    nn::equalized_lr(conv);
  }
  Tensor forward(const Tensor& x) override { return conv(x); }

  nn::Conv2d conv;
  Tensor bias;
};

// Upsampling by 2, a 3x3 convolution ("0") with bias, and a blur.
// activate_first: blur(leaky_relu(conv(x) + bias)); otherwise blur(conv(x)) + bias.
struct UpConv final : nn::Layer {
  UpConv(nn::Module* parent, std::string name, int64_t in, int64_t out, bool activate_first)
      : Layer(parent, std::move(name)),
        conv{this, "0", same_size(in, out, 3)},
        smooth{this, "1", blur()},
        activates_first(activate_first) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = conv(interpolate(x, {.scale_factor = {2}})), b = reshape(conv.bias, {1, -1, 1, 1});
    return activates_first ? smooth(leaky_relu(h + b, kNegativeSlope)) : smooth(h) + b;
  }

  ConvWithSeparateBias conv;
  nn::FirFilter2d smooth;
  bool activates_first;
};

// y = x + weight n, with one weight per channel or one for all. An undefined n is no noise.
struct NoiseInjector final : nn::Module {
  NoiseInjector(nn::Module* parent, std::string name, int64_t channels)
      : Module(parent, std::move(name)),
        weight{this, "weight", zeros({channels}, {.device = Context::current().device})} {}
  Tensor operator()(const Tensor& x, const Tensor& n) {
    if (!n.defined()) return x;
    return x + gradus::to(reshape(weight, {1, -1, 1, 1}), x.dtype()) * gradus::to(n, x.dtype());
  }

  nn::Parameter weight;
};

}  // namespace

// The two layers of a resolution: conv1, which makes the features of this resolution from x, and conv2. Noise, a
// leaky ReLU and a normalization in the style of w follow each.
struct internal::StyleBlock final : nn::Module {
  // in: channels of x; 0 for the first block, which only takes the number of samples from x.
  StyleBlock(nn::Module* parent, std::string name, int64_t in, int64_t out, const StyleGANGeneratorOptions& o)
      : Module(parent, std::move(name)),
        conv1(in == 0 ? std::unique_ptr<nn::Layer>(
                            std::make_unique<Constant>(this, "conv1", out, o.random_constant))
                      : std::make_unique<UpConv>(this, "conv1", in, out, o.activate_before_blur)),
        noise_injector1{this, "noise_injector1", o.noise_per_channel ? out : 1},
        adain1{this, "adain1", norm(out, o)},
        conv2{this, "conv2", {.conv = same_size(out, out, 3), .rectifier = false}},
        noise_injector2{this, "noise_injector2", o.noise_per_channel ? out : 1},
        adain2{this, "adain2", norm(out, o)} {}

  static nn::AdaptiveInstanceNormOptions norm(int64_t channels, const StyleGANGeneratorOptions& o) {
    return {.channels = channels,
            .style = o.style,
            .eps = o.norm_eps,
            .gain = o.norm_gain,
            .add_one = o.norm_add_one};
  }
  Tensor operator()(const Tensor& x, const Tensor& w1, const Tensor& w2, const Tensor& noise1,
                    const Tensor& noise2) {
    const Tensor h = adain1(leaky_relu(noise_injector1((*conv1)(x), noise1), kNegativeSlope), w1);
    return adain2(leaky_relu(noise_injector2(conv2(h), noise2), kNegativeSlope), w2);
  }

  std::unique_ptr<nn::Layer> conv1;
  NoiseInjector noise_injector1;
  nn::AdaptiveInstanceNorm adain1;
  EqualizedConv conv2;
  NoiseInjector noise_injector2;
  nn::AdaptiveInstanceNorm adain2;
};

StyleGANGenerator::StyleGANGenerator(Options options) : LayerWith(std::move(options)) { build(); }
StyleGANGenerator::StyleGANGenerator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}
StyleGANGenerator::~StyleGANGenerator() = default;

Tensor StyleGANGenerator::initial_w_avg(const Options& o) {
  internal::check_count("StyleGANGenerator", "style", o.style);
  return zeros({o.style}, {.device = Context::current().device});
}

void StyleGANGenerator::build() {
  const Options& o = options();
  check("StyleGANGenerator", o);
  internal::check_count("StyleGANGenerator", "latent", o.latent);
  internal::check_count("StyleGANGenerator", "mapping_layers", o.mapping_layers);
  if (!(o.w_avg_decay >= 0 && o.w_avg_decay <= 1))
    throw ValueError("StyleGANGenerator", "expected a w_avg_decay in [0,1], got ", o.w_avg_decay);
  for (const int64_t size : noise_sizes({.size = o.size}))
    injected_noise_.push_back(
        std::make_unique<nn::Buffer>(this, "injected_noise_" + std::to_string(injected_noise_.size()),
                                     randn({1, 1, size, size}, {.device = Context::current().device})));
  style_mapping_ = std::make_unique<nn::Sequential>(this, "style_mapping");
  style_mapping_->add<nn::PixelNorm>(o.pixel_norm);
  for (int64_t i = 0; i < o.mapping_layers; ++i)
    style_mapping_->add<EqualizedLinear>(
        EqualizedLinear::Options{.in = i == 0 ? o.latent : o.style,
                                 .out = o.style,
                                 .equalized = {.gain = o.mapping_gain, .lr_mul = kMappingRate},
                                 .rectifier = true});
  convs_ = std::make_unique<nn::ModuleList<internal::StyleBlock>>(this, "convs");
  to_rgbs_ = std::make_unique<nn::ModuleList<>>(this, "to_rgbs");
  int64_t in = 0;
  for (int r = 2; r <= log2_of(o.size); ++r) {
    const int64_t out = channels_at(o, r - 1);
    convs_->add(in, out, o);
    to_rgbs_->add<EqualizedConv>(EqualizedConv::Options{
        .conv = same_size(out, o.channels, 1), .equalized = {.gain = o.rgb_gain}, .rectifier = false});
    in = out;
  }
}

Tensor StyleGANGenerator::forward(const Tensor& z) {
  const Scale largest = {.size = options().size};
  const Tensor ws = map(z, {});
  return synthesize(ws, largest, planes(ws, largest, {}));
}
Tensor StyleGANGenerator::operator()(const Tensor& z, Scale scale) {
  return call([&] {
    const Tensor ws = map(z, {});
    return synthesize(ws, scale, planes(ws, scale, {}));
  });
}
Tensor StyleGANGenerator::mapping(const Tensor& z, const Truncation& truncation) {
  return call([&] { return map(z, truncation); });
}
Tensor StyleGANGenerator::synthesis(const Tensor& ws, Scale scale, const SynthesisNoise& noise) {
  return call([&] { return synthesize(ws, scale, planes(ws, scale, noise)); });
}

std::vector<int64_t> StyleGANGenerator::noise_sizes(Scale scale) const {
  internal::check_scale("StyleGANGenerator", scale, options().size);
  std::vector<int64_t> sizes;
  for (int64_t size = 4; size <= scale.size; size *= 2) sizes.insert(sizes.end(), 2, size);
  return sizes;
}
int64_t StyleGANGenerator::num_ws() const { return 2 * log2_of(options().size) - 2; }

// z [N,latent] -> ws [N,num_ws,style].
Tensor StyleGANGenerator::map(const Tensor& z, const Truncation& truncation) {
  const int64_t count = num_ws();
  const auto wanted = truncation.cutoff ? truncation.cutoff : options().truncation_cutoff;
  if (wanted && *wanted < 0) throw ValueError("StyleGANGenerator", "expected a cutoff >= 0, got ", *wanted);
  const int64_t cutoff = std::min(wanted.value_or(count), count);
  const Tensor w = (*style_mapping_)(internal::latent_vectors("StyleGANGenerator", z, options().latent));
  const auto repeat = [&](const Tensor& one, int64_t times) {
    return expand(reshape(one, {one.size(0), 1, one.size(1)}), {one.size(0), times, one.size(1)});
  };
  if (truncation.truncation == 1) return repeat(w, count);
  const Tensor average = gradus::to(w_avg, w.dtype());
  return cat({repeat(average + (w - average) * truncation.truncation, cutoff), repeat(w, count - cutoff)}, 1);
}

// Returns a plane of noise for each layer up to the scale; undefined ones for no noise.
std::vector<Tensor> StyleGANGenerator::planes(const Tensor& ws, Scale scale,
                                              const SynthesisNoise& noise) const {
  if (!noise.planes.empty()) return noise.planes;
  std::vector<Tensor> planes;
  for (const int64_t size : noise_sizes(scale)) {
    if (noise.mode == nn::NoiseMode::kRandom)
      planes.push_back(randn({ws.size(0), 1, size, size}, {ws.dtype(), ws.device()}));
    else
      planes.push_back(noise.mode == nn::NoiseMode::kFixed ? Tensor(*injected_noise_[planes.size()])
                                                           : Tensor());
  }
  return planes;
}

// ws [N,num_ws,style] -> images [N,channels,size,size].
Tensor StyleGANGenerator::synthesize(const Tensor& ws, Scale scale, const std::vector<Tensor>& noise) {
  const std::vector<int64_t> sizes = noise_sizes(scale);
  if (ws.dim() != 3 || ws.size(1) != num_ws() || ws.size(2) != options().style)
    throw ShapeError("StyleGANGenerator", "expected ws [N,", num_ws(), ",", options().style, "], got ",
                     describe(ws));
  if (noise.size() != sizes.size())
    throw ShapeError("StyleGANGenerator", "expected ", sizes.size(), " planes of noise, got ", noise.size());
  for (size_t i = 0; i < noise.size(); ++i)
    if (const Tensor& n = noise[i];
        n.defined() && (n.dim() != 4 || (n.size(0) != 1 && n.size(0) != ws.size(0)) || n.size(1) != 1 ||
                        n.size(2) != sizes[i] || n.size(3) != sizes[i]))
      throw ShapeError("StyleGANGenerator", "expected noise ", i, " [N,1,", sizes[i], ",", sizes[i],
                       "] with N of ", ws.size(0), " or 1, got ", describe(n));
  const size_t last = sizes.size() / 2 - 1;
  Tensor x = ws, half;
  for (size_t i = 0; i <= last; ++i) {
    if (i > 0 && i == last && scale.fade < 1) half = (*to_rgbs_)[i - 1](x);
    const auto style = [&](size_t layer) { return select(ws, 1, int64_t(layer)); };
    x = (*convs_)[i](x, style(2 * i), style(2 * i + 1), noise[2 * i], noise[2 * i + 1]);
  }
  const Tensor image = (*to_rgbs_)[last](x);
  return half.defined() ? lerp(interpolate(half, {.scale_factor = {2}}), image, scale.fade) : image;
}

void StyleGANGenerator::update_w_avg(const Tensor& w) {
  const int64_t style = options().style;
  if (w.dim() < 1 || w.size(-1) != style || w.numel() == 0)
    throw ShapeError("StyleGANGenerator", "expected w [...,", style, "], got ", describe(w));
  const NoRecord off = no_record();
  const Tensor average = mean(gradus::to(reshape(detach(w), {-1, style}), w_avg.dtype()), 0);
  raw::copy_(w_avg, lerp(average, w_avg, options().w_avg_decay));
}

StyleGANDiscriminator::StyleGANDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
StyleGANDiscriminator::StyleGANDiscriminator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void StyleGANDiscriminator::build() {
  const Options& o = options();
  check("StyleGANDiscriminator", o);
  internal::check_count("StyleGANDiscriminator", "group_size", o.group_size);
  if (o.rgb_kernel != 1 && o.rgb_kernel != 3)
    throw ValueError("StyleGANDiscriminator", "expected an rgb_kernel of 1 or 3, got ", o.rgb_kernel);
  convs_ = std::make_unique<nn::ModuleList<>>(this, "convs");
  from_rgb_ = std::make_unique<nn::ModuleList<>>(this, "from_rgb");
  for (int r = log2_of(o.size); r >= 2; --r) {
    const int64_t in = channels_at(o, r - 1), out = channels_at(o, r - 2);
    from_rgb_->add<EqualizedConv>(EqualizedConv::Options{.conv = same_size(o.channels, in, o.rgb_kernel)});
    auto& block = convs_->add<nn::Sequential>();
    if (r > 2) {
      const int64_t middle = o.widen_first ? out : in;
      block.add<EqualizedConv>(EqualizedConv::Options{.conv = same_size(in, middle, 3)});
      block.add<nn::FirFilter2d>(blur());
      block.add<EqualizedDownConv>(EqualizedDownConv::Options{.conv = {.in = middle, .out = out}});
    } else {
      block.add<EqualizedConv>(EqualizedConv::Options{.conv = same_size(in + 1, in, 3)});
      block.add<EqualizedConv>(EqualizedConv::Options{.conv = {.in = in, .out = out, .kernel = 4},
                                                      .rectifier = o.last_activation});
    }
  }
  minibatch_stddev_ = std::make_unique<nn::MinibatchStdDev>(
      this, "minibatch_stddev", nn::MinibatchStdDevOptions{.group_size = o.group_size});
  final_linear_ = std::make_unique<nn::Sequential>(this, "final_linear");
  final_linear_->add<EqualizedLinear>(EqualizedLinear::Options{
      .in = channels_at(o, 0), .out = 1, .equalized = {.gain = 1}, .rectifier = false});
}

Tensor StyleGANDiscriminator::forward(const Tensor& x) { return compute(x, {.size = options().size}); }
Tensor StyleGANDiscriminator::operator()(const Tensor& x, Scale scale) {
  return call([&] { return compute(x, scale); });
}

// x [N,channels,size,size] -> scores [N,1].
Tensor StyleGANDiscriminator::compute(const Tensor& x, Scale scale) {
  internal::check_scale("StyleGANDiscriminator", scale, options().size);
  internal::check_images("StyleGANDiscriminator", x, options().channels, scale.size);
  const size_t last = convs_->size() - 1, first = last + 2 - size_t(log2_of(scale.size));
  Tensor h = (*from_rgb_)[first](x);
  for (size_t i = first; i < last; ++i) {
    h = (*convs_)[i](h);
    if (i == first && scale.fade < 1) h = lerp((*from_rgb_)[i + 1](avg_pool2d(x, 2)), h, scale.fade);
  }
  h = (*convs_)[last]((*minibatch_stddev_)(h));
  return (*final_linear_)(flatten(h, 1));
}

StyleGANGeneratorOptions mmgen(StyleGANGeneratorOptions o) {
  o.pixel_norm = {.eps = 1e-6, .eps_outside = true};
  o.mapping_gain = 1;
  o.random_constant = true;
  o.noise_per_channel = false;
  o.activate_before_blur = true;
  o.norm_eps = 1e-5;
  o.norm_gain = std::numbers::sqrt2;
  o.norm_add_one = false;
  o.rgb_gain = std::numbers::sqrt2;
  o.w_avg_decay = 0;
  o.truncation_cutoff = {};
  return o;
}
StyleGANDiscriminatorOptions mmgen(StyleGANDiscriminatorOptions o) {
  o.rgb_kernel = 3;
  o.widen_first = true;
  o.last_activation = false;
  return o;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::StyleGANGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::StyleGANDiscriminatorOptions, gradus::nn::Layer>;
