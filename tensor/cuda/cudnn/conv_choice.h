// Which engine of cuDNN computes a convolution: keys, choices, and the choices that the program keeps.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/shape.h"

namespace gradus::cuda {

enum class ConvPass : uint8_t { kForward, kInputGrad, kWeightGrad };

// What a plan depends on. The rest follows from it.
struct ConvKey {
  ConvPass pass = ConvPass::kForward;
  DType dtype = DType::kF32;
  bool tf32 = false, relu = false;
  Shape x, w;
  Dims stride, padding, dilation;
  Dims alignments;  // of x, w, y and the bias, in bytes; 0 without a bias

  bool operator==(const ConvKey&) const = default;
  std::strong_ordering operator<=>(const ConvKey& other) const;
};

// An engine by its number in the library, and the knobs that it has.
struct ConvChoice {
  struct Knob {
    int64_t type, value;
    bool operator==(const Knob&) const = default;
  };
  int64_t engine = 0;
  std::vector<Knob> knobs;

  bool operator==(const ConvChoice&) const = default;
};

// Devices of the same GPU model share choices.
struct DeviceModel {
  std::string name;
  int major = 0, minor = 0;  // compute capability

  bool operator==(const DeviceModel&) const = default;
  std::strong_ordering operator<=>(const DeviceModel&) const = default;
};
// Errors: as internal::runtime_of.
DeviceModel model_of(Device device);

using ConvChoices = std::map<ConvKey, ConvChoice>;

// Further choices of a device model are not kept: they are made again with their plans.
inline constexpr size_t kMaxChoices = 8192;

// The program's choices. Thread-safe.
class KeptChoices {
 public:
  static KeptChoices& get();

  std::optional<ConvChoice> find(const DeviceModel& model, const ConvKey& key) const;
  // Compare-and-set: stores `choice` if the kept one still is `expected`, an earlier result of find.
  void replace(const DeviceModel& model, const ConvKey& key, const std::optional<ConvChoice>& expected,
               const ConvChoice& choice);
  // Adds choices, at most kMaxChoices. They replace those for the same convolutions.
  void add(const DeviceModel& model, ConvChoices choices);
  ConvChoices all(const DeviceModel& model) const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<DeviceModel, ConvChoices> by_model_;
};

}  // namespace gradus::cuda
