#include "gradus/tensor/cuda/cudnn/conv_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::cuda {

std::strong_ordering ConvKey::operator<=>(const ConvKey& other) const {
  const auto numbers = [](const ConvKey& k) { return std::tie(k.pass, k.dtype, k.tf32, k.relu); };
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

size_t count(const ConvChoices& choices) {
  size_t n = 0;
  for (const auto& [model, list] : choices) n += list.size();
  return n;
}

KeptChoices& KeptChoices::get() {
  static auto& kept = *new KeptChoices;
  return kept;
}

std::optional<ConvChoice> KeptChoices::find(const DeviceModel& model, const ConvKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto list = choices_.find(model);
  if (list == choices_.end()) return {};
  const auto found = list->second.find(key);
  return found == list->second.end() ? std::optional<ConvChoice>() : found->second;
}

void KeptChoices::replace(const DeviceModel& model, const ConvKey& key, const std::optional<ConvChoice>& seen,
                          const ConvChoice& made) {
  const std::lock_guard lock(mutex_);
  auto& list = choices_[model];
  const auto found = list.find(key);
  if (found != list.end()) {
    if (found->second == seen) found->second = made;
  } else if (!seen && count(choices_) < kMostChoices) {
    list.emplace(key, made);
  }
}

void KeptChoices::add(ConvChoices choices) {
  const std::lock_guard lock(mutex_);
  for (auto& [model, list] : choices_) {
    auto& all = choices[model];
    for (auto& [key, choice] : list)
      if (!all.contains(key) && count(choices) < kMostChoices) all.emplace(key, std::move(choice));
  }
  choices_ = std::move(choices);
}

ConvChoices KeptChoices::all() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

void KeptChoices::clear() {
  const std::lock_guard lock(mutex_);
  choices_.clear();
}

}  // namespace gradus::cuda
