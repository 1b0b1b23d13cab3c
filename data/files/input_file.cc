// Implementation of InputFile: reads plain files, and gzip files with zlib.
#include "gradus/data/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::data {

struct InputFile::State {
  std::filesystem::path path;
  std::string op;
  int fd = -1;
  int64_t size = 0;
  std::string identity;

  bool gzip = false;
  bool inflating = false;  // zlib's state is initialized
  bool member_open = false;
  bool at_end = false;
  z_stream z{};
  std::vector<unsigned char> buffer;  // compressed bytes

  ~State() {
    if (inflating) inflateEnd(&z);
    if (fd >= 0) ::close(fd);
  }

  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError(op, path.string(), ": ", parts...);
  }

  int64_t read_raw(void* out, int64_t bytes) {
    int64_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::read(fd, static_cast<char*>(out) + done, static_cast<size_t>(bytes - done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot read: ", std::strerror(errno));
      if (n == 0) break;
      done += n;
    }
    return done;
  }

  void refill() {
    z.next_in = buffer.data();
    z.avail_in = static_cast<uInt>(read_raw(buffer.data(), static_cast<int64_t>(buffer.size())));
  }

  int64_t read_gzip(void* out, int64_t bytes) {
    int64_t done = 0;
    // The loop runs once more after the last byte, to check the checksum and length at the end of a gzip member.
    while (!at_end) {
      if (z.avail_in == 0) refill();
      if (z.avail_in == 0) {
        if (member_open) fail("the gzip data is cut short after ", z.total_in, " of its bytes");
        at_end = true;
        break;
      }
      if (!member_open) {
        if (inflateReset(&z) != Z_OK) fail("zlib cannot start");
        member_open = true;
      }
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
        fail("the gzip data is damaged (", z.msg ? z.msg : "zlib error", ")");
      }
    }
    return done;
  }
};

InputFile::InputFile(const std::filesystem::path& path, std::string_view op)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  s.op = op;
  // O_NONBLOCK: opening a named pipe would otherwise block until there is a writer.
  s.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (s.fd < 0) s.fail(errno == ENOENT ? "no such file" : std::strerror(errno));
  struct stat info {};
  if (::fstat(s.fd, &info) != 0) s.fail(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) s.fail("is not a regular file");
  s.size = info.st_size;
  s.identity = concat(info.st_dev, ':', info.st_ino, ':', info.st_size, ':', info.st_mtim.tv_sec, '.',
                      info.st_mtim.tv_nsec, ':', info.st_ctim.tv_sec, '.', info.st_ctim.tv_nsec);

  unsigned char magic[2] = {};
  s.gzip = ::pread(s.fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  if (!s.gzip) return;
  if (inflateInit2(&s.z, 15 + 16) != Z_OK) s.fail("zlib cannot start");
  s.inflating = true;
  s.buffer.resize(1 << 16);
}

InputFile::InputFile(InputFile&&) noexcept = default;
InputFile::~InputFile() = default;

int64_t InputFile::read(void* out, int64_t bytes) {
  return state_->gzip ? state_->read_gzip(out, bytes) : state_->read_raw(out, bytes);
}

const std::filesystem::path& InputFile::path() const { return state_->path; }
bool InputFile::is_gzip() const { return state_->gzip; }
std::string InputFile::identity() const { return state_->identity; }
int64_t InputFile::file_size() const { return state_->size; }
int64_t InputFile::max_content_size() const {
  constexpr int64_t kDeflateRatio = 1032;
  if (!state_->gzip) return state_->size;
  return std::min(state_->size, std::numeric_limits<int64_t>::max() / kDeflateRatio) * kDeflateRatio;
}

}  // namespace gradus::data
