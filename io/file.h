// FileReader reads a file with bounds checks. AtomicFile replaces a file atomically: a crash at any moment leaves
// either the old content or the new. One thread at a time uses an object.
//
//   io::AtomicFile file("model.bin", {.op = "save_model"});
//   file.write(data, bytes);
//   file.commit();        // without commit (after an exception, for example) model.bin does not change
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
  std::string op = "file";  // name of the operation in errors
  bool checksum = false;    // compute the CRC-32 of the bytes read or written
  // AtomicFile: maximum time to wait while another writer of the same file makes no progress (NAME.tmp
  // does not change).
  std::chrono::milliseconds lock_timeout{120'000};
};

namespace internal {
class FileLock;

// Writes all bytes at an open file's position. Returns false after an error, with the reason in errno; part
// of them may then be written.
bool write_all(int fd, const void* data, int64_t bytes);
}  // namespace internal

// Reads a regular file sequentially, from the beginning or from a position set by seek.
//
// Errors: FileError naming the file if it is missing, not a regular file, unreadable, or too short.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path, FileOptions options = {.op = "read_file"});
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }
  int64_t remaining() const { return size_ - position_; }
  // Reads exactly `bytes` bytes from the position on, and advances the position.
  void read(void* buffer, int64_t bytes);
  void seek(int64_t position);  // sets the position, in [0, size()], and resets the checksum
  int64_t bytes_read() const { return bytes_read_; }  // in total, over all calls of read
  // Returns an identifier of the content on this host: device, inode, size, times of modification and change.
  const std::string& identity() const { return identity_; }
  // Returns the CRC-32 of the bytes read since the last seek or the beginning; 0 without FileOptions::checksum.
  uint32_t crc32() const { return crc_; }

  // Throws a FileError that starts with the file's name.
  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError(options_.op, path_.string(), ": ", parts...);
  }

  // Returns f(), which parses this file. Exceptions of f become FileErrors, including std::bad_alloc, which a
  // corrupt size in the file may cause.
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
  std::string identity_;
  int64_t position_ = 0;
  int64_t bytes_read_ = 0;
  uint32_t crc_ = 0;
};

// Returns the CRC-32 of the concatenation of two byte sequences from the CRC-32 of each (zlib's crc32_combine).
uint32_t combine_crc32(uint32_t first, uint32_t second, int64_t bytes_of_second);

// Writes a new version of a file as NAME.tmp in the same folder; `commit` renames it to NAME. Writers of the same
// file, in any thread or process, are serialized (not on a file system without flock): the constructor waits for
// NAME.lock, which names the current writer. The destructor removes it, and without a commit also NAME.tmp.
//
// Errors: FileError naming the file, with the system's reason (no such folder, permission, no space, beyond
// `ulimit -f`, ...), or with the process that has locked the file. The old file is then unchanged, and NAME.tmp is
// removed, unless commit had renamed the new file already and cannot flush the folder or keep `previous`.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, FileOptions options = {.op = "write_file"});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  // Returns the CRC-32 of the bytes written so far; 0 without FileOptions::checksum.
  uint32_t crc32() const { return crc_; }

  // Flushes to the disk and replaces the file. Call commit or commit_with_backup once, after the last write.
  void commit() { commit_with_backup({}); }
  // Also renames the old file to `previous`, a path in the same folder (empty: deletes it). The file exists at
  // every moment, with the old or the new content, except on a file system without hard links, where only
  // `previous` exists for a moment. An older `previous` is replaced, but stays if there is no old file.
  void commit_with_backup(const std::filesystem::path& previous);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void sync_folder() const;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileOptions options_;
  std::unique_ptr<internal::FileLock> lock_;
  int fd_ = -1;
  bool committed_ = false;
  uint32_t crc_ = 0;
};

// Returns the content of a file.
// Errors: FileError, also for a file larger than `max_bytes`, which is not read.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 32);

// Replaces the content of a file atomically (AtomicFile).
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace gradus::io
