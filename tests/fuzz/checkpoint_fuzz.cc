// Fuzz target: checkpoints, as they are and with corrected checksums, give valid tensors or a FileError.
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "gradus/io/checkpoint.h"
#include "gradus/io/file.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChecksumBytes = 4;

fs::path scratch() {
  return fs::temp_directory_path() / ("gradus-fuzz-" + std::to_string(::getpid()) + ".ckpt");
}

std::string saved(const io::Checkpoint& checkpoint) {
  const fs::path path = scratch();
  io::save_checkpoint(path, checkpoint);
  std::string content = io::read_file(path);
  for (const char* ending : {"", ".previous", ".lock"}) fs::remove(path.native() + ending);
  return content;
}

std::string with_checksum(std::string file) {
  if (file.size() < kChecksumBytes) return file;
  const size_t end = file.size() - kChecksumBytes;
  const auto crc =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(file.data()), static_cast<uInt>(end)));
  for (size_t i = 0; i < kChecksumBytes; ++i) file[end + i] = static_cast<char>(crc >> (8 * i));
  return file;
}

void check_load(std::string_view content) {
  static const MemoryFile file;
  file.set(content);
  survives([&] {
    const io::LoadedCheckpoint loaded = io::load_checkpoint(file.path());
    FUZZ_CHECK(loaded.warning.empty());
    loaded.checkpoint.each([](const std::string& name, const auto& value) {
      touch(name.data(), static_cast<int64_t>(name.size()));
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Tensor>)
        touch(value.raw_ptr(), value.nbytes());
    });
    (void)loaded.checkpoint.section("a").names();
  });
}

}  // namespace

std::vector<std::string> seeds() {
  Tensor x = empty({2, 3});
  for (int i = 0; i < 6; ++i) x.ptr<float>()[i] = float(i);
  io::Checkpoint inner, all;
  inner.put("step", uint64_t{1} << 63);
  inner.put("rate", 0.1);
  all.put("epoch", -3);
  all.put("done", true);
  all.put("name", "any \x01 text");
  all.put("optimizer", inner);
  all.put("weight", x);
  return {saved(io::Checkpoint()), saved(inner), saved(all)};
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  gradus::fuzz::check_load(gradus::fuzz::with_checksum(file));
  gradus::fuzz::check_load(file);
  return 0;
}
