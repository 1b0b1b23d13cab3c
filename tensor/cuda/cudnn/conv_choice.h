// Which engine (algorithm) of cuDNN computes a convolution: a thread-safe in-memory cache from ConvKey to
// ConvChoice per GPU model. With a cached choice, a plan is built without cuDNN's heuristic, and the same
// engine is used again. plan_file.h saves and loads the cache.
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

// All parameters on which a plan, cuDNN's executable form of a convolution, depends.
struct ConvKey {
  ConvPass pass = ConvPass::kForward;
  DType dtype = DType::kF32;
  bool tf32 = false, relu = false;  // TF32 tensor cores are allowed; y = relu(conv + bias)
  bool deterministic = false;       // nondeterministic engines are forbidden
  Shape x, w;                       // [N, C, ...], [O, C / groups, ...]
  Dims stride, padding, dilation;
  Dims alignments;  // of x, w, y and the bias, in bytes; 0 without a bias

  bool operator==(const ConvKey&) const = default;
  std::strong_ordering operator<=>(const ConvKey& other) const;
};

// An engine by its global index in the library, and its tuning parameters: cudnnBackendKnobType_t and value.
struct ConvChoice {
  struct Knob {
    int64_t type, value;
    bool operator==(const Knob&) const = default;
  };
  int64_t engine = 0;
  std::vector<Knob> knobs;

  bool operator==(const ConvChoice&) const = default;
};

// The model of a GPU. Devices of the same model share choices.
struct DeviceModel {
  std::string name;
  int major = 0, minor = 0;  // compute capability

  bool operator==(const DeviceModel&) const = default;
  std::strong_ordering operator<=>(const DeviceModel&) const = default;
};
// Errors: as internal::runtime_of.
DeviceModel model_of(Device device);

using ConvChoices = std::map<ConvKey, ConvChoice>;

// Maximal number of choices of a device model. Further ones are not cached: each plan makes its own.
inline constexpr size_t kMaxChoices = 8192;

// The process's cache of choices. Thread-safe.
class ConvChoiceCache {
 public:
  static ConvChoiceCache& get();

  // Returns the cached choice; nullopt: none.
  std::optional<ConvChoice> find(const DeviceModel& model, const ConvKey& key) const;
  // Compare-and-set: stores `choice` if the cached one still equals `expected`, an earlier result of find.
  // Does nothing for a new key if the model has kMaxChoices.
  void replace(const DeviceModel& model, const ConvKey& key, const std::optional<ConvChoice>& expected,
               const ConvChoice& choice);
  // Adds `choices`, at most kMaxChoices. They replace those for the same convolutions; earlier ones that
  // exceed kMaxChoices are dropped.
  void add(const DeviceModel& model, ConvChoices choices);
  ConvChoices all(const DeviceModel& model) const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<DeviceModel, ConvChoices> by_model_;
};

}  // namespace gradus::cuda
