// What metrics of generated images look through. Classifier: a small network, trained on the same data set, whose
// features the metrics compare (in place of the Inception network of FID).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gradus/examples/gans/images.h"

namespace gradus::examples {

// A network that computes features of images.
class ImageFeatures {
 public:
  struct Output {
    Tensor features, probabilities;  // f32[N,D], f32[N,classes], on the CPU
    Tensor manifold = {};            // f32[N,M]: features for precision and recall; undefined: `features`
  };

  virtual ~ImageFeatures() = default;
  // Returns features and class probabilities of images with values 0 ... 255. Shapes: u8[N,C,H,W].
  virtual Output operator()(const Tensor& bytes) const = 0;
  virtual const std::string& sha256() const = 0;  // of the weights' file
  // Of the weights' file of the network of Output::manifold.
  virtual const std::string& manifold_sha256() const { return sha256(); }
  // Whether the classes are those of the data set's labels.
  virtual bool has_classes_of_data() const = 0;
};

class Classifier final : public ImageFeatures {
 public:
  // Reads the weights of a models::MnistNet for digits, or of a ResNet-20 for CIFAR-10. `kind`: Images::kind.
  // Errors: FileError, saying how to train it, if there is no such file; ValueError for a folder of images.
  Classifier(const std::string& kind, const std::filesystem::path& file);
  ~Classifier() override;
  // Returns the default file of the weights.
  static std::filesystem::path default_file(const std::string& kind);

  // Crops digits to 28 pixels.
  // Shapes: u8[N,1,28,28] or u8[N,1,32,32] of digits, u8[N,3,32,32] of CIFAR-10.
  // Errors: ShapeError.
  Output operator()(const Tensor& bytes) const override;
  const std::string& sha256() const override { return sha256_; }
  bool has_classes_of_data() const override { return true; }

 private:
  struct Net;
  std::unique_ptr<Net> net_;
  std::string sha256_;
};

// Runs `gan classifier`: trains the network, prints its accuracy, and writes the weights. Returns the exit
// status.
int run_classifier(int argc, char** argv);

}  // namespace gradus::examples
