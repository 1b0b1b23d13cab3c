// Files from and to disk. FileReader reads a file and never past its end. AtomicFile replaces a
// file as a whole, so that a crash at any moment leaves either the old content or the new.
//
//   io::AtomicFile file("model.bin", {.op = "save_model"});
//   file.write(data, bytes);
//   file.commit();        // without it (an exception, say) model.bin stays as it was
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "gradus/tensor/base/error.h"

namespace gradus::io {

struct FileOptions {
  std::string op = "file";  // what errors say was being done
  bool checksum = false;    // keep the CRC-32 of the bytes read or written
  // AtomicFile: how long another writer of the same file may go without writing.
  std::chrono::milliseconds patience{120'000};
};

namespace internal {
class FileLock;
}

// Reads a regular file from front to back, or from where seek says.
//
// Errors: FileError naming the file when it is missing, not a regular file, not readable, or ends too early.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path, FileOptions options = {.op = "read_file"});
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t size() const { return size_; }
  int64_t remaining() const { return size_ - position_; }
  void read(void* into, int64_t bytes);
  // Goes to a byte of the file. The checksum begins anew.
  void seek(int64_t position);
  int64_t bytes_read() const { return bytes_read_; }
  // CRC-32 of the bytes read so far, or since the last seek (with FileOptions::checksum).
  uint32_t crc32() const { return crc_; }

  // Throws a FileError that starts with the file's name.
  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError(options_.op, path_.string(), ": ", parts...);
  }

  // Returns f(), which reads this file. Whatever f throws becomes a FileError. That includes std::bad_alloc:
  // there is too little memory for what the file claims to hold.
  template <class F> auto parse(F&& f) const {
    try {
      return f();
    } catch (const FileError&) {
      throw;
    } catch (const std::bad_alloc&) {
      fail("needs more memory than there is");
    } catch (const std::exception& e) {
      fail("cannot be read: ", e.what());
    }
  }

 private:
  std::filesystem::path path_;
  FileOptions options_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t position_ = 0;
  int64_t bytes_read_ = 0;
  uint32_t crc_ = 0;
};

// Returns the CRC-32 of two runs of bytes, one behind the other, from theirs.
uint32_t join_crc32(uint32_t first, uint32_t second, int64_t bytes_of_second);

// Writes a new version of a file beside it, as NAME.tmp, and puts it in its place with `commit`. Processes
// and threads that write the same file take turns; NAME.lock says who writes.
//
// Errors: FileError naming the file, with the system's reason (no such folder, permission, no space, beyond
// `ulimit -f`, ...), or with the process that holds the file (a stopped one, for example). The old file is
// then unchanged, and NAME.tmp is gone.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, FileOptions options = {.op = "write_file"});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  // CRC-32 of the bytes written so far (with FileOptions::checksum).
  uint32_t crc32() const { return crc_; }

  // Flushes to the disk and replaces the file.
  void commit() { commit_keeping({}); }
  // Replaces the file, and the old file becomes `previous` in the same folder (empty: it is dropped). At
  // every moment the file itself is there, old or new. The old `previous` goes only when the new file is in
  // place. On a file system without hard links, only `previous` is there for a moment.
  void commit_keeping(const std::filesystem::path& previous);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void sync_folder() const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileOptions options_;
  std::unique_ptr<internal::FileLock> turn_;
  int fd_ = -1;
  bool committed_ = false;
  uint32_t crc_ = 0;
};

// Returns the content of a file.
// Errors: FileError; also for one larger than `max_bytes`, before any of it is read.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 32);

// Replaces the content of a file (AtomicFile).
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace gradus::io
