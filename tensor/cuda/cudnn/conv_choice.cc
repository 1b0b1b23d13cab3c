// ConvChoiceCache: the program-wide, mutex-guarded map from a GPU model and a convolution (shapes, dtype,
// pass) to the cuDNN engine that was chosen for it. At most kMaxChoices entries per model; only add() drops
// earlier ones.
#include "gradus/tensor/cuda/cudnn/conv_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::cuda {

std::strong_ordering ConvKey::operator<=>(const ConvKey& other) const {
  const auto numbers = [](const ConvKey& k) {
    return std::tie(k.pass, k.dtype, k.tf32, k.relu, k.deterministic);
  };
  if (const auto order = numbers(*this) <=> numbers(other); order != 0) return order;
  for (const auto list : {&ConvKey::x, &ConvKey::w, &ConvKey::stride, &ConvKey::padding, &ConvKey::dilation,
                          &ConvKey::alignments}) {
    const Dims &a = this->*list, &b = other.*list;
    const auto order = std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
    if (order != 0) return order;
  }
  return std::strong_ordering::equal;
}

DeviceModel model_of(Device device) {
  const internal::DeviceProperties p = internal::runtime_of(device).properties(device.index);
  return {p.name, p.major, p.minor};
}

// Never destroyed, so that static destructors may use it.
ConvChoiceCache& ConvChoiceCache::get() {
  static auto& kept = *new ConvChoiceCache;
  return kept;
}

std::optional<ConvChoice> ConvChoiceCache::find(const DeviceModel& model, const ConvKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto choices = by_model_.find(model);
  if (choices == by_model_.end()) return {};
  const auto found = choices->second.find(key);
  return found == choices->second.end() ? std::optional<ConvChoice>() : found->second;
}

void ConvChoiceCache::replace(const DeviceModel& model, const ConvKey& key,
                              const std::optional<ConvChoice>& expected, const ConvChoice& choice) {
  const std::lock_guard lock(mutex_);
  ConvChoices& choices = by_model_[model];
  const auto found = choices.find(key);
  if (found != choices.end()) {
    if (found->second == expected) found->second = choice;
  } else if (!expected && choices.size() < kMaxChoices) {
    choices.emplace(key, choice);
  }
}

void ConvChoiceCache::add(const DeviceModel& model, ConvChoices choices) {
  const std::lock_guard lock(mutex_);
  ConvChoices& kept = by_model_[model];
  kept.swap(choices);  // the new choices win; the earlier ones fill the remaining space
  for (const auto& [key, choice] : choices)
    if (kept.size() < kMaxChoices) kept.emplace(key, choice);
}

ConvChoices ConvChoiceCache::all(const DeviceModel& model) const {
  const std::lock_guard lock(mutex_);
  const auto choices = by_model_.find(model);
  return choices == by_model_.end() ? ConvChoices() : choices->second;
}

void ConvChoiceCache::clear() {
  const std::lock_guard lock(mutex_);
  by_model_.clear();
}

}  // namespace gradus::cuda
