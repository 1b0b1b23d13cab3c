// Loads networks of metrics, and computes their results in batches of 20 images.
#include "gradus/examples/gans/pretrained.h"

#include "gradus/data/files/sha256.h"

namespace gradus::examples {
namespace {

constexpr int64_t kBatch = 20;

// Returns the input of torchvision's VGG16. Shapes: u8[N,C,H,W] -> f32[N,3,224,224].
Tensor vgg_input(const Tensor& bytes) {
  const auto channels = [&](const std::vector<float>& v) { return to(tensor(v, {3, 1, 1}), bytes.device()); };
  const Tensor x = interpolate(to(bytes, DType::kF32) / 255,
                               {.size = {224, 224}, .mode = Interpolation::kBilinear, .antialias = true});
  return (x - channels({0.485f, 0.456f, 0.406f})) / channels({0.229f, 0.224f, 0.225f});
}

}  // namespace

Inception::Inception(const PretrainedOptions& options)
    : options_(options), net_(std::make_unique<models::InceptionV3>(models::fid_inception_v3())) {
  io::load_weights(*net_, options_.inception);
  net_->to(options_.device).eval();
  sha256_ = data::sha256_of_file(options_.inception);
  if (options_.vgg.empty()) return;
  vgg_ = std::make_unique<models::VGG>(models::vgg16());
  io::load_weights(*vgg_, options_.vgg);
  vgg_->to(options_.device).eval();
  vgg_sha256_ = data::sha256_of_file(options_.vgg);
}

ImageFeatures::Output Inception::operator()(const Tensor& bytes) const {
  const auto off = no_record();
  std::vector<Tensor> features, probabilities, manifold;
  for (int64_t i = 0; i < bytes.size(0); i += kBatch) {
    const Tensor part = to(slice(bytes, 0, i, std::min(i + kBatch, bytes.size(0))), options_.device);
    const Tensor f = net_->features(models::inception_input(part, options_.resize));
    features.push_back(to(f, kCPU));
    probabilities.push_back(to(softmax(net_->logits(f, false), 1), kCPU));
    if (vgg_) manifold.push_back(to(vgg_->hidden(vgg_input(part)), kCPU));
  }
  return {.features = cat(features, 0),
          .probabilities = cat(probabilities, 0),
          .manifold = vgg_ ? cat(manifold, 0) : Tensor()};
}

std::unique_ptr<models::LPIPS> load_lpips(const PretrainedOptions& o) {
  if (o.vgg.empty() || o.lpips.empty())
    throw ValueError("gan", "ppl: expected --vgg and --lpips, the weights of VGG16 and of LPIPS' layers");
  auto lpips = std::make_unique<models::LPIPS>();
  io::load_weights(lpips->vgg, o.vgg);
  io::load_weights(*lpips, o.lpips, {.except = {"vgg"}});
  lpips->to(o.device).eval();
  return lpips;
}

}  // namespace gradus::examples
