// Fuzz target: the orientation in EXIF metadata is from 1 to 8 for any bytes.
#include "gradus/data/images/orientation.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {

std::vector<std::string> seeds() {
  using namespace std::string_literals;
  return {"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"s,
          "MM\0\x2a\0\0\0\x08\0\x02\x01\x0f\0\x02\0\0\0\x04\0\0\0\0\x01\x12\0\x04\0\0\0\x01\0\0\0\x08"s};
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> own(data, data + size);  // a copy, whose end the sanitizer checks
  const int orientation = gradus::data::internal::exif_orientation(own);
  FUZZ_CHECK(orientation >= 1 && orientation <= 8);
  return 0;
}
