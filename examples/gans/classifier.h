// Classifier: a small network whose features metrics compare. It is trained on the same data set.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gradus/examples/gans/images.h"

namespace gradus::examples {

class Classifier {
 public:
  struct Seen {
    Tensor features, probabilities;  // f32[N,D], f32[N,classes]
  };

  // Reads the weights: of a models::MnistNet for digits, of a ResNet-20 for CIFAR-10.
  // Errors: FileError, saying how to train it, if there is no such file; ValueError for a folder of images.
  Classifier(const std::string& kind, const std::filesystem::path& file);
  ~Classifier();
  // Returns the default file of the weights.
  static std::filesystem::path default_file(const std::string& kind);

  // Classifies images of bytes. Digits of 32 pixels are cropped to 28.
  // Shapes: u8[N,1,28,28] or u8[N,1,32,32] of digits, u8[N,3,32,32] of CIFAR-10.
  // Errors: ShapeError.
  Seen operator()(const Tensor& bytes) const;
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
