// Fuzz target: IDX files, plain and gzip, give an array of at most 1 MiB or a FileError.
#include <zlib.h>

#include "gradus/data/files/idx.h"
#include "gradus/tensor/tensor.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

std::string gzip(std::string_view content) {
  z_stream z{};
  FUZZ_CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(content.size() + 100, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  FUZZ_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// An array of 2x3 elements.
std::string idx(char type, size_t bytes) {
  std::string file = {0, 0, type, 2, 0, 0, 0, 2, 0, 0, 0, 3};
  for (size_t i = 0; i < 6 * bytes; ++i) file += static_cast<char>(37 * i);
  return file;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const auto& [type, bytes] :
       {std::pair<char, size_t>{8, 1}, {9, 1}, {11, 2}, {12, 4}, {13, 4}, {14, 8}}) {
    all.push_back(idx(type, bytes));
    all.push_back(gzip(idx(type, bytes)));
  }
  all.push_back(gzip(idx(8, 1)) + gzip(""));
  // A dimension is 0; the product of the others overflows.
  all.push_back({0, 0, 9, 4, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  return all;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus;
  static const fuzz::MemoryFile file;
  file.set({reinterpret_cast<const char*>(data), size});
  fuzz::survives([] {
    constexpr int64_t kMaxBytes = 1 << 20;
    data::IdxFile array(file.path(), {.max_bytes = kMaxBytes});
    const Tensor x = empty(array.shape(), {.dtype = array.dtype()});
    array.read(x.raw_ptr());
    FUZZ_CHECK(x.nbytes() <= kMaxBytes);
    fuzz::touch(x.raw_ptr(), x.nbytes());
  });
  return 0;
}
