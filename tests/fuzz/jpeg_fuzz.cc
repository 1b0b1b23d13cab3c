// Fuzz target: JPEG files satisfy check_image(). The seeds include files that a search has found.
#include <utility>

#include "gradus/tests/fuzz/fuzz.h"
#include "gradus/tests/fuzz/image_checks.h"

namespace gradus::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> files = contents("tests/data/golden/images", ".jpg");
  for (std::string& file : contents("tests/fuzz/found", ".jpg")) files.push_back(std::move(file));
  return files;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradus::fuzz::check_image({reinterpret_cast<const char*>(data), size});
  return 0;
}
