// Fuzz target: an annotation of Pascal VOC gives objects with names and valid boxes, or a FileError.
#include "gradus/data/sets/voc.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {

std::vector<std::string> seeds() {
  const std::string object =
      "<object><name>dog</name><difficult>1</difficult><part><name>head</name></part><bndbox><xmin>4</xmin>"
      "<ymin>2.5</ymin><xmax>10</xmax><ymax>37</ymax></bndbox></object>";
  return {"<?xml version=\"1.0\"?><!-- a --><annotation a=\"b\">\n" + object + "<owner/>" + object +
          "</annotation>\n"};
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus;
  static const fuzz::MemoryFile file;
  file.set({reinterpret_cast<const char*>(data), size});
  fuzz::survives([] {
    for (const data::VocObject& o : data::read_voc_annotation(file.path())) {
      FUZZ_CHECK(!o.name.empty());
      FUZZ_CHECK(o.x_min >= 0 && o.x_min < o.x_max && o.x_max <= 1 << 24);
      FUZZ_CHECK(o.y_min >= 0 && o.y_min < o.y_max && o.y_max <= 1 << 24);
    }
  });
  return 0;
}
