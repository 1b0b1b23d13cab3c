// Fuzz target: safetensors files give tensors that agree with the header, or a FileError.
#include "gradus/io/safetensors.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

std::string file(std::string_view header, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i));
  return out.append(header).append(data);
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all = contents("tests/io/golden", ".safetensors");
  all.push_back(file("{}", ""));
  all.push_back(file(R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})", "abcdefgh"));
  all.push_back(file(R"({"__metadata__":{"k":"v\u00e4"},"b":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                     R"("a":{"dtype":"U8","shape":[0,3],"data_offsets":[8,8]}}  )",
                     "12345678"));
  return all;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus;
  static const fuzz::MemoryFile file;
  file.set({reinterpret_cast<const char*>(data), size});
  io::SafetensorsHeader header;
  const bool has_header = fuzz::survives([&] { header = io::SafetensorsReader(file.path()).header(); });
  fuzz::survives([&] {
    const io::SafetensorsFile loaded = io::load_safetensors(file.path());
    FUZZ_CHECK(has_header && loaded.tensors.size() == header.entries.size());
    for (size_t i = 0; i < header.entries.size(); ++i) {
      const Tensor& x = loaded.tensors[i].second;
      FUZZ_CHECK(x.shape() == header.entries[i].shape && x.dtype() == header.entries[i].dtype);
      FUZZ_CHECK(x.nbytes() == header.entries[i].end - header.entries[i].begin);
      fuzz::touch(x.raw_ptr(), x.nbytes());
    }
  });
  return 0;
}
