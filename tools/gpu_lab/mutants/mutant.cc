#include "mutant.h"

#include <cstdlib>

namespace gradus::cuda {

bool mutant(int number) {
  static const int wanted = [] {
    const char* text = std::getenv("GRADUS_MUTANT");
    return text ? std::atoi(text) : 0;
  }();
  return number == wanted;
}

}  // namespace gradus::cuda
