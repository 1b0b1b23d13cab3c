// unpack_tar: reads a tar archive (V7 or POSIX ustar, plain or gzip) front to back in blocks of 512 bytes,
// skips members that are not requested, and writes requested ones through a temporary file that is renamed at
// the end. Headers are verified by their checksum. pax and GNU long names are not supported: such members are
// not found under their long names. A size in base 256 is a FileError.
#include "gradus/data/files/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include "gradus/data/files/input_file.h"
#include "gradus/io/file.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {
namespace fs = std::filesystem;

constexpr const char* kOp = "unpack_tar";
constexpr int64_t kBlock = 512;  // bytes of a header; contents are padded to a multiple

// The fields of a header. `is_file`: a regular file, not a directory, link or device.
struct Member {
  std::string name;  // path in the archive
  int64_t size = 0;  // bytes of the content that follows the header
  bool is_file = false;
};

// A cursor in the archive. After next() has returned a member, read() must consume its content.
class Archive {
 public:
  explicit Archive(const fs::path& path) : file_(path, kOp) {}

  // Reads the next header. Returns false at the end of the archive: the file's end or a block of zeros.
  // Errors: FileError for a truncated or damaged header.
  bool next(Member& member) {
    std::array<char, kBlock> h{};
    const int64_t got = file_.read(h.data(), kBlock);
    if (got == 0 || std::all_of(h.begin(), h.end(), [](char c) { return c == 0; })) return false;
    if (got != kBlock) fail("is cut short inside a header");
    check_sum(h);
    member.name = text(h, 0, 100);
    // ustar: a long name is split into a prefix at 345 and the name.
    if (std::memcmp(h.data() + 257, "ustar", 5) == 0 && h[345] != 0)
      member.name = text(h, 345, 155) + "/" + member.name;
    member.size = octal(h, 124, 12);
    member.is_file = h[156] == '0' || h[156] == 0;
    return true;
  }

  // Calls use(bytes, n) with consecutive chunks of a member's content, and skips the padding of the last
  // block. The last calls may have n = 0.
  template <class F> void read(const Member& member, F&& use) {
    std::vector<char> buffer(1 << 16);
    int64_t left = (member.size + kBlock - 1) / kBlock * kBlock, content = member.size;
    while (left > 0) {
      const int64_t n = std::min<int64_t>(left, static_cast<int64_t>(buffer.size()));
      if (file_.read(buffer.data(), n) != n) fail("is cut short inside ", member.name);
      use(buffer.data(), std::min(n, content));
      left -= n;
      content = std::max<int64_t>(content - n, 0);
    }
  }

  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError(kOp, file_.path().string(), ": ", parts...);
  }

 private:
  using Header = std::array<char, kBlock>;

  // Returns a text field, which ends at its first NUL or fills all `size` bytes.
  static std::string text(const Header& h, size_t at, size_t size) {
    return {h.data() + at, ::strnlen(h.data() + at, size)};
  }

  // Returns a number field: blanks, octal digits, and a NUL or a blank if the digits do not fill the field.
  int64_t octal(const Header& h, size_t at, size_t size) const {
    int64_t value = 0;
    size_t i = at;
    while (i < at + size && h[i] == ' ') ++i;
    for (; i < at + size && h[i] != 0 && h[i] != ' '; ++i) {
      if (h[i] < '0' || h[i] > '7')
        fail("is no tar archive: a header holds no octal number where one belongs");
      value = value * 8 + (h[i] - '0');
    }
    return value;
  }

  // Checks the header's checksum: the sum of its bytes, with blanks in place of the checksum field.
  void check_sum(const Header& h) const {
    constexpr size_t kAt = 148, kSize = 8;
    int64_t sum = 0;
    for (size_t i = 0; i < h.size(); ++i)
      sum += i >= kAt && i < kAt + kSize ? ' ' : static_cast<unsigned char>(h[i]);
    if (octal(h, kAt, kSize) != sum) fail("is no tar archive, or damaged: a header's sum is wrong");
  }

  InputFile file_;
};

// Writes a member's content to `path` atomically, after creating the parent folders.
void write_member(Archive& archive, const Member& member, const fs::path& path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) throw FileError(kOp, "cannot create ", path.parent_path().string(), ": ", error.message());
  io::AtomicFile out(path, {.op = kOp});
  archive.read(member, [&](const char* bytes, int64_t n) { out.write(bytes, n); });
  out.commit();
}

}  // namespace

void unpack_tar(const fs::path& archive_path, const fs::path& dir, const std::vector<std::string>& names,
                int64_t max_bytes) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    std::error_code ignored;
    if (!fs::exists(dir / name, ignored)) missing.push_back(name);
  }
  if (missing.empty()) return;
  Archive archive(archive_path);
  for (Member member; !missing.empty() && archive.next(member);) {
    const auto wanted = std::find(missing.begin(), missing.end(), member.name);
    if (wanted == missing.end()) {
      archive.read(member, [](const char*, int64_t) {});
      continue;
    }
    if (!member.is_file || member.size > max_bytes)
      archive.fail(member.name,
                   member.is_file ? concat(" has ", member.size, " bytes, more than the limit of ", max_bytes)
                                  : " is no regular file");
    write_member(archive, member, dir / member.name);
    missing.erase(wanted);
  }
  if (!missing.empty()) archive.fail("has no ", missing[0]);
}

}  // namespace gradus::data
