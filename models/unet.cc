// U-Net: the layers of github.com/milesial/Pytorch-UNet.
#include "gradus/models/unet.h"

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

// Returns a factory of a Sequential with one layer of this name.
nn::LayerFactory wrapped(const std::string& child, const nn::LayerFactory& make) {
  return [=](nn::Module* parent, const std::string& name) {
    auto layer = std::make_unique<nn::Sequential>(parent, name);
    layer->add(child, make);
    return layer;
  };
}

nn::LayerFactory double_conv(int64_t in, int64_t out, int64_t middle) {
  std::vector<nn::LayerFactory> layers;
  for (const auto& [from, to] : {std::pair(in, middle), {middle, out}}) {
    layers.push_back(
        nn::layer<nn::Conv2d>({.in = from, .out = to, .kernel = 3, .padding = 1, .bias = false}));
    layers.push_back(nn::layer<nn::BatchNorm2d>({.features = to}));
    layers.push_back(nn::layer<nn::ReLU>());
  }
  return wrapped("double_conv", nn::layer<nn::Sequential>(layers));
}

// Doubles x, pads it to the size of `skip`, concatenates both and applies two convolutions.
struct Up final : nn::Module {
  Up(nn::Module* parent, std::string name, int64_t in, int64_t out, bool bilinear)
      : Module(parent, std::move(name)) {
    if (bilinear)
      up = std::make_unique<nn::UpsamplingBilinear2d>(this, "up",
                                                      nn::Upsampling2dOptions{.scale_factor = {2}});
    else
      up = std::make_unique<nn::ConvTranspose2d>(
          this, "up", nn::ConvTranspose2dOptions{.in = in, .out = in / 2, .kernel = 2, .stride = 2});
    conv = double_conv(in, out, bilinear ? in / 2 : out)(this, "conv");
  }
  Tensor operator()(const Tensor& x, const Tensor& skip) {
    return call([&] {
      const Tensor y = (*up)(x);
      const int64_t h = skip.size(2) - y.size(2), w = skip.size(3) - y.size(3);
      return (*conv)(cat({skip, h || w ? pad(y, {w / 2, w - w / 2, h / 2, h - h / 2}) : y}, 1));
    });
  }
  std::unique_ptr<nn::Layer> up, conv;
};

}  // namespace

void UNet::build() {
  const Options& o = options();
  if (o.in < 1 || o.classes < 1 || o.width < 1 || o.width > 65536)
    throw ValueError("UNet", "expected in and classes of 1 or more and a width from 1 to 65536, got ", o.in,
                     ", ", o.classes, " and ", o.width);
  // Bilinear upsampling keeps the number of channels, so that the level below has half as many.
  const int64_t divisor = o.bilinear ? 2 : 1;
  down_.push_back(double_conv(o.in, o.width, o.width)(this, "inc"));
  for (int64_t level = 1; level <= 4; ++level) {
    const int64_t in = o.width << (level - 1), out = 2 * in / (level == 4 ? divisor : 1);
    down_.push_back(
        wrapped("maxpool_conv", nn::layer<nn::Sequential>(std::vector{nn::layer<nn::MaxPool2d>({.kernel = 2}),
                                                                      double_conv(in, out, out)}))(
            this, "down" + std::to_string(level)));
  }
  for (int64_t level = 1; level <= 4; ++level) {
    const int64_t in = o.width << (5 - level), out = in / 2 / (level == 4 ? 1 : divisor);
    up_.push_back(std::make_unique<Up>(this, "up" + std::to_string(level), in, out, o.bilinear));
  }
  outc_ =
      wrapped("conv", nn::layer<nn::Conv2d>({.in = o.width, .out = o.classes, .kernel = 1}))(this, "outc");
}

Tensor UNet::forward(const Tensor& x) {
  std::vector<Tensor> maps;
  for (const auto& down : down_) maps.push_back((*down)(maps.empty() ? x : maps.back()));
  Tensor h = maps.back();
  for (size_t i = 0; i < up_.size(); ++i) h = static_cast<Up&>(*up_[i])(h, maps[up_.size() - 1 - i]);
  return (*outc_)(h);
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::UNetOptions, gradus::nn::Layer>;
