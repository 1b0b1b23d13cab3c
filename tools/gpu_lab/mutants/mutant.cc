// Reads GRADUS_MUTANT (mutant.h). Without it, no mutant is selected: numbers begin with 1.
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
