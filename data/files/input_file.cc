// InputFile: sequential reads of a plain or gzip file. A file that begins with the gzip magic 1f 8b is
// decompressed with zlib through a buffer of 64 KiB. Several gzip members in a row are read as one content
// (RFC 1952); the checksum at the end of each is verified. Memory use does not depend on sizes that the file
// claims. Not thread-safe.
#include "gradus/data/files/input_file.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "gradus/io/file.h"

namespace gradus::data {

std::string internal::hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t b : bytes) text += {"0123456789abcdef"[b >> 4], "0123456789abcdef"[b & 15]};
  return text;
}

struct InputFile::State {
  io::FileReader file;
  bool gzip = false;         // the file is gzip, and zlib's state is initialized
  bool member_open = false;  // zlib is inside a gzip member
  bool at_end = false;       // of the decompressed content
  z_stream z{};
  std::vector<unsigned char> buffer;  // compressed bytes, read by z.next_in

  State(const std::filesystem::path& path, std::string_view op) : file(path, {.op = std::string(op)}) {
    unsigned char magic[2] = {};
    read_raw(magic, 2);
    file.seek(0);
    if (magic[0] != 0x1f || magic[1] != 0x8b) return;
    if (inflateInit2(&z, 15 + 16) != Z_OK) file.fail("zlib cannot start");
    gzip = true;
    buffer.resize(1 << 16);
  }
  ~State() {
    if (gzip) inflateEnd(&z);
  }

  // Reads up to `bytes` bytes of the file as stored, fewer only at its end. Returns their number.
  int64_t read_raw(void* out, int64_t bytes) {
    const int64_t n = std::min(bytes, file.remaining());
    file.read(out, n);
    return n;
  }

  // As InputFile::read, for a gzip file.
  int64_t read_gzip(void* out, int64_t bytes) {
    int64_t done = 0;
    // The loop runs once more after the last byte, to check the checksum at the end of a gzip member.
    while (!at_end) {
      if (z.avail_in == 0) {
        z.next_in = buffer.data();
        z.avail_in = static_cast<uInt>(read_raw(buffer.data(), std::ssize(buffer)));
      }
      if (z.avail_in == 0) {
        if (member_open) file.fail("the gzip data is cut short after ", file.size(), " of its bytes");
        at_end = true;
        break;
      }
      if (!member_open) {
        if (inflateReset(&z) != Z_OK) file.fail("zlib cannot start");
        member_open = true;
      }
      // zlib counts in 32 bits.
      const uInt space = static_cast<uInt>(std::min<int64_t>(bytes - done, 1 << 30));
      z.next_out = static_cast<unsigned char*>(out) + done;
      z.avail_out = space;
      const int code = inflate(&z, Z_NO_FLUSH);
      done += space - z.avail_out;
      if (code == Z_STREAM_END) {
        member_open = false;
      } else if (code == Z_BUF_ERROR || (code == Z_OK && done == bytes && z.avail_in > 0)) {
        if (done == bytes) break;  // the request is complete
      } else if (code != Z_OK) {
        file.fail("the gzip data is damaged (", z.msg ? z.msg : "zlib error", ")");
      }
    }
    return done;
  }
};

InputFile::InputFile(const std::filesystem::path& path, std::string_view op)
    : state_(std::make_unique<State>(path, op)) {}
InputFile::InputFile(InputFile&&) noexcept = default;
InputFile::~InputFile() = default;

int64_t InputFile::read(void* out, int64_t bytes) {
  return state_->gzip ? state_->read_gzip(out, bytes) : state_->read_raw(out, bytes);
}

const std::filesystem::path& InputFile::path() const { return state_->file.path(); }
bool InputFile::is_gzip() const { return state_->gzip; }
std::string InputFile::identity() const { return state_->file.identity(); }
int64_t InputFile::file_size() const { return state_->file.size(); }
int64_t InputFile::max_content_size() const {
  constexpr int64_t kDeflateRatio = 1032;  // the maximal ratio of decompressed to compressed size
  if (!state_->gzip) return file_size();
  return std::min(file_size(), std::numeric_limits<int64_t>::max() / kDeflateRatio) * kDeflateRatio;
}

}  // namespace gradus::data
