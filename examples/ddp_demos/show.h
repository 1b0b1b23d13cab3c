// Prints on rank 0 the values of all ranks before and after an operation, and checks them.
#pragma once

#include <string>
#include <vector>

#include "gradus/tensor/tensor.h"
#include "gradus/train/ranks.h"

namespace gradus::examples {

// Return values as "[1 2 3]", a list of tensors as "[1 2] [3]", an empty list as "-".
std::string text(const Tensor& x);
std::string text(const std::vector<Tensor>& xs);
std::string text(const std::vector<float>& values);

// Prints a table with one line "rank 0   HAD   ->   HAS" per rank. Every rank calls it with its own values
// (collective). Errors: StateError on a rank whose `has` is not `should_have`.
void show(const std::string& title, const std::string& had, const std::string& has,
          const std::string& should_have);

}  // namespace gradus::examples
