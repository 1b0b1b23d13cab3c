// NamedTensors: an ordered list of tensors with names, such as a state dict or a file of weights.
//
//   for (const auto& [name, x] : net.state_dict()) std::cout << name << ' ' << x.shape() << '\n';
//   net.state_dict().at("layer1.0.conv1.weight");
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

class NamedTensors : public std::vector<std::pair<std::string, Tensor>> {
 public:
  using vector::at;  // by index
  using vector::vector;

  // Returns the first tensor with this name.
  // Errors: ValueError with the existing names.
  const Tensor& at(std::string_view name) const;
  bool contains(std::string_view name) const;
};

}  // namespace gradus
