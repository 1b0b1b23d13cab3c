// Networks of metrics with trained weights from files: Inception v3, VGG16 and LPIPS.
#pragma once

#include <string>

#include "gradus/examples/gans/classifier.h"

namespace gradus::examples {

struct PretrainedOptions {
  std::string inception = {};  // weights of models::InceptionV3 of FID; "": none
  std::string vgg = {};        // weights of models::VGG16; "": none
  std::string lpips = {};      // weights of the layers lin0 to lin4 of models::LPIPS; "": none
  models::InceptionResize resize = models::InceptionResize::kTf;
  Device device = kCPU;
};

// Inception v3: features [N,2048], and the probabilities of its 1008 classes from logits without bias. With
// `vgg`, `manifold` is the second linear layer of VGG16, before its ReLU, of images that are resized to 224x224
// (bilinear, antialiased) and normalized by ImageNet's mean and standard deviation.
class Inception final : public ImageFeatures {
 public:
  // Errors: FileError, ShapeError and ValueError of io::load_weights.
  explicit Inception(const PretrainedOptions& options);

  Output operator()(const Tensor& bytes) const override;
  const std::string& sha256() const override { return sha256_; }
  const std::string& manifold_sha256() const override { return vgg_ ? vgg_sha256_ : sha256_; }
  bool has_classes_of_data() const override { return false; }

 private:
  PretrainedOptions options_;
  std::unique_ptr<models::InceptionV3> net_;
  std::unique_ptr<models::VGG> vgg_;
  std::string sha256_, vgg_sha256_;
};

// Returns LPIPS with the weights of `vgg` and `lpips`, in evaluation mode on the device.
// Errors: as Inception; ValueError unless both files are given.
std::unique_ptr<models::LPIPS> load_lpips(const PretrainedOptions& options);

}  // namespace gradus::examples
