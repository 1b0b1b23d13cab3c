// FileReader: bounds-checked pread of a regular file, with an optional CRC-32. AtomicFile: writes NAME.tmp
// under a lock file, flushes it with fsync, renames it to NAME, and flushes the folder. Both retry
// interrupted calls, throw FileError naming the file, and belong to one thread.
#include "gradus/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "gradus/io/file_lock.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::io {
namespace {

namespace fs = std::filesystem;

// Linux transfers at most 2 GiB per call.
constexpr int64_t kChunk = int64_t{1} << 28;

std::string reason(int error) { return std::generic_category().message(error); }

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

uint32_t extend_crc(uint32_t crc, const void* data, int64_t bytes) {
  return static_cast<uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), static_cast<size_t>(bytes)));
}

}  // namespace

// BlockedSignals: a write beyond `ulimit -f` fails with EFBIG instead of raising SIGXFSZ.
bool internal::write_all(int fd, const void* data, int64_t bytes) {
  const gradus::internal::BlockedSignals blocked;
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, static_cast<size_t>(std::min(bytes, kChunk)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    p += n;
    bytes -= n;
  }
  return true;
}

FileReader::FileReader(const fs::path& path, FileOptions options)
    : path_(path), options_(std::move(options)) {
  // O_NONBLOCK: opening a named pipe would otherwise block until there is a writer.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail("cannot open: ", reason(errno));
  struct stat info {};
  const int error = ::fstat(fd_, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    // Also has the time of the last status change, since a program can set the modification time back.
    identity_ = concat(info.st_dev, ':', info.st_ino, ':', info.st_size, ':', info.st_mtim.tv_sec, '.',
                       info.st_mtim.tv_nsec, ':', info.st_ctim.tv_sec, '.', info.st_ctim.tv_nsec);
    return;
  }
  ::close(fd_);
  if (error != 0) fail("cannot examine: ", reason(error));
  fail("expected a regular file, got a ", S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
}

FileReader::~FileReader() { ::close(fd_); }

void FileReader::read(void* buffer, int64_t bytes) {
  if (bytes < 0 || bytes > remaining())
    fail("ends after ", size_, " bytes; expected ", bytes, " more at byte ", position_);
  char* p = static_cast<char*>(buffer);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t n = ::pread(fd_, p, static_cast<size_t>(std::min(left, kChunk)), position_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot read: ", reason(errno));
    if (n == 0) fail("became shorter while it was read: it had ", size_, " bytes, now ", position_);
    if (options_.checksum) crc_ = extend_crc(crc_, p, n);
    p += n;
    left -= n;
    position_ += n;
    bytes_read_ += n;
  }
}

void FileReader::seek(int64_t position) {
  if (position < 0 || position > size_) fail("has ", size_, " bytes; expected more than ", position);
  position_ = position;
  crc_ = 0;
}

uint32_t combine_crc32(uint32_t first, uint32_t second, int64_t bytes_of_second) {
  return static_cast<uint32_t>(::crc32_combine(first, second, bytes_of_second));
}

AtomicFile::AtomicFile(const fs::path& path, FileOptions options)
    : path_(path), temporary_(path.string() + ".tmp"), options_(std::move(options)) {
  if (!path_.has_filename()) throw FileError(options_.op, "expected a file name, got '", path_.string(), "'");
  std::error_code ignored;
  const fs::path folder = folder_of(path_);
  if (!fs::exists(folder, ignored))
    throw FileError(options_.op, path_.string(), ": the folder ", folder.string(), " does not exist");
  if (!fs::is_directory(folder, ignored))
    throw FileError(options_.op, path_.string(), ": ", folder.string(), " is not a folder");
  if (fs::is_directory(path_, ignored))
    throw FileError(options_.op, path_.string(), ": expected a file name, got a folder");
  lock_ = std::make_unique<internal::FileLock>(path_, temporary_, options_.op, options_.lock_timeout);
  // The name may be a remnant of a killed writer, or a malicious link: Note [Untrusted names] in
  // file_lock.cc.
  ::unlink(temporary_.c_str());
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail(concat("cannot create ", temporary_.filename().string()));
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
  ::close(fd_);
}

void AtomicFile::fail(std::string_view what) const {
  throw FileError(options_.op, path_.string(), ": ", what, ": ", reason(errno));
}

void AtomicFile::write(const void* data, int64_t bytes) {
  if (bytes > 0 && options_.checksum) crc_ = extend_crc(crc_, data, bytes);
  if (!internal::write_all(fd_, data, bytes)) fail("cannot write");
}

void AtomicFile::sync_folder() const {
  const int fd = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("cannot open its folder to flush it");
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  errno = error;
  // Some file systems cannot flush folders.
  if (error != 0 && error != EINVAL && error != ENOTSUP) fail("cannot flush its folder");
}

// Note [Keeping the previous file]
// 1. link NAME to NAME.previous.tmp; 2. rename the new file to NAME; 3. rename NAME.previous.tmp to
// NAME.previous. A crash leaves NAME and NAME.previous as: old and older, new and older, or new and old. With
// an empty `previous`, step 2 alone runs.
void AtomicFile::commit_with_backup(const fs::path& previous) {
  if (::fsync(fd_) != 0) fail("cannot flush");
  if (!internal::is_named(fd_, temporary_)) {  // only without working locks: another writer replaced NAME.tmp
    errno = EEXIST;
    fail("another writer took its place");
  }
  const fs::path previous_tmp = previous.string() + ".tmp";
  bool linked = false, moved = false;
  if (!previous.empty()) {
    ::unlink(previous_tmp.c_str());
    linked = ::link(path_.c_str(), previous_tmp.c_str()) == 0;
    if (!linked && errno != ENOENT) {
      // The file system has no hard links: only the previous file exists for a moment.
      if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS && errno != EMLINK)
        fail("cannot keep the previous file");
      moved = ::rename(path_.c_str(), previous.c_str()) == 0;
      if (!moved) fail("cannot keep the previous file");
    }
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    if (linked) ::unlink(previous_tmp.c_str());
    if (moved) ::rename(previous.c_str(), path_.c_str());
    errno = error;
    fail("cannot replace it");
  }
  committed_ = true;
  sync_folder();
  if (!linked) return;
  if (::rename(previous_tmp.c_str(), previous.c_str()) != 0)
    fail("is saved, but the previous file could not be kept");
  ::unlink(previous_tmp.c_str());  // rename does nothing if both names refer to the same file
  sync_folder();
}

std::string read_file(const fs::path& path, int64_t max_bytes) {
  FileReader file(path);
  if (file.size() > max_bytes) file.fail("has ", file.size(), " bytes; expected at most ", max_bytes);
  return file.parse([&] {
    std::string content(static_cast<size_t>(file.size()), '\0');
    file.read(content.data(), file.size());
    return content;
  });
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), static_cast<int64_t>(content.size()));
  file.commit();
}

}  // namespace gradus::io
