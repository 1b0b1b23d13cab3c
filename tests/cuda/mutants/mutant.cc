#include "mutant.h"

#include <cstdlib>

#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

bool mutant(int number) {
  static const int wanted = [] {
    const char* text = std::getenv("GRADUS_MUTANT");
    return text ? std::atoi(text) : 0;
  }();
  return number == wanted;
}

const Tensor* empty_like(const Tensor& x) {
  return new Tensor(empty({0}, {.device = x.defined() ? x.device() : kCPU}));  // the program ends soon
}

}  // namespace gradus::cuda
