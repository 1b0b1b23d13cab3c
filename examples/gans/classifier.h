// Classifier: a small network, trained on the same data set, whose features the metrics of generated images
// compare (in place of the Inception network of FID).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gradus/examples/gans/images.h"

namespace gradus::examples {

class Classifier {
 public:
  struct Output {
    Tensor features, probabilities;  // f32[N,D], f32[N,classes]
  };

  // Reads the weights of a models::MnistNet for digits, or of a ResNet-20 for CIFAR-10. `kind`: Images::kind.
  // Errors: FileError, saying how to train it, if there is no such file; ValueError for a folder of images.
  Classifier(const std::string& kind, const std::filesystem::path& file);
  ~Classifier();
  // Returns the default file of the weights.
  static std::filesystem::path default_file(const std::string& kind);

  // Returns features and class probabilities of images with values 0 ... 255. Crops digits to 28 pixels.
  // Shapes: u8[N,1,28,28] or u8[N,1,32,32] of digits, u8[N,3,32,32] of CIFAR-10.
  // Errors: ShapeError.
  Output operator()(const Tensor& bytes) const;
  const std::string& sha256() const { return sha256_; }  // of the weights' file

 private:
  struct Net;
  std::unique_ptr<Net> net_;
  std::string sha256_;
};

// Runs `gan classifier`: trains the network, prints its accuracy, and writes the weights. Returns the exit
// status.
int run_classifier(int argc, char** argv);

}  // namespace gradus::examples
