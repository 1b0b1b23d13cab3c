// What ranks have before and after, as text that rank 0 prints.
#pragma once

#include <string>
#include <vector>

#include "gradus/tensor/tensor.h"
#include "gradus/train/ranks.h"

namespace gradus::examples {

// "[1 2 3]", "[1 2] [3]", "-" for no tensor at all.
std::string text(const Tensor& x);
std::string text(const std::vector<Tensor>& xs);
std::string text(const std::vector<float>& values);

// Prints a table with one line per rank: what it had, what it has. Every rank calls it with its own part.
// Errors: StateError on a rank that does not have what it should.
void show(const std::string& title, const std::string& had, const std::string& has,
          const std::string& should_have);

}  // namespace gradus::examples
