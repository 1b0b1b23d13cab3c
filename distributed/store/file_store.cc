// FileStore: the key-value store of file:// initialization. The file is an append-only log of changed keys that
// all ranks read and append to. Each process replays the log into a table in memory (KeyTable).
//
// A call locks the file (flock), replays the records that other processes have appended, executes the request on
// the table, and appends a record if the request changed a key. Calls that wait for a key repeat this at
// intervals until their timeout.
#include "gradus/distributed/store/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/store/store_protocol.h"

namespace gradus::dist {
namespace {

using internal::Message;
using internal::MessageType;

// The file is a magic line, then records:
//   u64 checksum of the frame | frame: u32 length, then a kSet or kDelete message of `length` bytes
// The frame is that of store_protocol.h; numbers are in host byte order. add, append, compare_set and pop are
// recorded as the kSet or kDelete message that has the same effect.
constexpr std::string_view kMagicLine = "gradus store 2\n";
constexpr size_t kMaxFileBytes = size_t(4) << 30;
// Intervals at which a call polls for a key or for the lock. Each pause is twice the one before.
constexpr Milliseconds kFirstPause{2}, kMaxPause{50};

uint64_t checksum(std::string_view bytes) {  // FNV-1a
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return sum;
}

std::string record(const Message& message) {
  const std::string frame = encode(message);
  return to_wire(checksum(frame)) + frame;
}

// Throws the FileError of a file that cannot or must not be opened.
[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw FileError("open_file_store", path, ' ', why);
}

// Opens or creates the file, to which only this user may have access. A user who can write the file can redirect
// ranks to another host, and a user who can read the file learns the job's token. Users who can write the folder
// can replace the file, unless the folder is sticky as /tmp is. O_NONBLOCK: open() does not wait for the other end
// of a FIFO, which is then refused.
internal::FileDescriptor open_private(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string name = path.substr(slash + 1);
  struct stat info {};
  const internal::FileDescriptor in(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!in || ::fstat(in.fd(), &info) != 0) refuse(path, "cannot be opened: " + internal::errno_text());
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    refuse(path, concat("is in a folder of another user (", info.st_uid, "): take one of your own"));
  if ((info.st_mode & 022) && !(info.st_mode & S_ISVTX))
    refuse(path, "is in a folder that others may write: take one of your own, or `chmod go-w` it");
  internal::FileDescriptor file(::openat(
      in.fd(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (!file || ::fstat(file.fd(), &info) != 0)
    refuse(path, errno == ELOOP ? "is a symbolic link" : "cannot be opened: " + internal::errno_text());
  if (!S_ISREG(info.st_mode)) refuse(path, "is no regular file");
  if (info.st_uid != ::geteuid()) refuse(path, concat("is a file of another user (", info.st_uid, ')'));
  if (info.st_mode & 077) refuse(path, "is a file that others may read or write: remove it");
  if (info.st_nlink > 1) refuse(path, "is a file that has another name as well (a hard link): remove it");
  return file;
}

// Calls are thread-safe. A call may wait for the file lock with mutex_ locked; then other threads wait too.
class FileStore final : public Store {
 public:
  FileStore(std::string path, Milliseconds timeout) : path_(std::move(path)), file_(open_private(path_)) {
    set_timeout(timeout);
    try_once("open_file_store", {});  // kNumKeys: checks the file, and writes the magic line to a new one
  }

  StoreAnswer execute(const StoreRequest& request) override {
    const Deadline deadline = Deadline::after(request.timeout);
    for (Milliseconds pause = kFirstPause;; pause = std::min(pause * 2, kMaxPause)) {
      const auto [answer, missing] = try_once(request.name(), request);
      if (missing.empty()) return answer;
      if (deadline.passed()) internal::throw_missing(request.name(), missing, deadline.timeout());
      std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    }
  }

 private:
  // Locks the file, reads the records of other processes and executes the request. If the request has to wait,
  // does not execute it and returns the missing keys.
  std::pair<StoreAnswer, std::vector<std::string>> try_once(const char* op, const StoreRequest& request) {
    std::lock_guard lock(mutex_);
    lock_file(op);
    struct Unlock {
      int fd;
      ~Unlock() { ::flock(fd, LOCK_UN); }
    } unlock{file_.fd()};
    read_appended(op);
    std::vector<std::string> missing = keys_.missing(request);
    if (!missing.empty()) return {{}, std::move(missing)};
    return {request.changes_key() ? change(request) : keys_.execute(request), {}};
  }

  // Executes the request on keys_ and appends the new value of the key to the file. If appending fails, restores
  // the old value and rethrows.
  StoreAnswer change(const StoreRequest& request) {
    const std::string_view key = request.keys[0];
    const auto value = [&] {
      const std::string* found = keys_.find(key);
      return found == nullptr ? std::nullopt : std::optional(*found);
    };
    const std::optional<std::string> before = value();
    const StoreAnswer answer = keys_.execute(request);
    const std::optional<std::string> after = value();
    if (before == after) return answer;
    try {
      append_record(request.name(), after ? Message{MessageType::kSet, {}, {key, *after}}
                                          : Message{MessageType::kDelete, {}, {key}});
    } catch (const Error&) {
      before ? keys_.set(key, *before) : void(keys_.erase(key));
      throw;
    }
    return answer;
  }

  // Polls for the lock, because flock() without LOCK_NB has no timeout, and the process that has the lock may be
  // stopped (SIGSTOP). The kernel releases the lock of a process that ends.
  // Errors: TimeoutError after default_timeout().
  void lock_file(const char* op) {
    const Deadline deadline = Deadline::after(default_timeout());
    Milliseconds pause = kFirstPause;
    while (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        throw FileError(op, "cannot lock ", path_, ": ", internal::errno_text());
      if (deadline.passed())
        throw TimeoutError(op, -1, "another process has held the lock of ", path_, " for ",
                           deadline.timeout().count(), " ms");
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kMaxPause);
    }
  }

  // Replays the records from end_ to the end of the file. Writes the magic line to an empty file. A record that a
  // killed process has written in part makes the file malformed.
  void read_appended(const char* op) {
    struct stat info {};
    if (::fstat(file_.fd(), &info) != 0)
      throw FileError(op, "cannot read ", path_, ": ", internal::errno_text());
    const auto size = static_cast<size_t>(info.st_size);
    if (size < end_) malformed(op, "it has become shorter");
    if (size > kMaxFileBytes) malformed(op, "it is too long");
    if (size == 0) {
      write(op, kMagicLine);
      return;
    }
    if (end_ == 0) {
      if (size < kMagicLine.size() || read(op, 0, kMagicLine.size()) != kMagicLine)
        malformed(op, "it does not begin like one");
      end_ = kMagicLine.size();
    }
    constexpr size_t kHead = sizeof(uint64_t) + sizeof(uint32_t);
    while (end_ < size) {
      if (size - end_ < kHead) malformed(op, "its last record is cut off");
      const std::string head = read(op, end_, kHead);
      const auto [sum, length] = from_wire<std::pair<uint64_t, uint32_t>>(head);
      if (length > internal::kMaxFrame)
        malformed(op, concat("a record at byte ", end_, " claims ", length, " bytes"));
      if (length > size - end_ - kHead) malformed(op, "its last record is cut off");
      const std::string frame = read(op, end_ + sizeof(uint64_t), sizeof(uint32_t) + length);
      if (checksum(frame) != sum) malformed(op, concat("a wrong checksum at byte ", end_));
      apply(op, std::string_view(frame).substr(sizeof(uint32_t)));
      end_ += kHead + length;
    }
  }

  // Replays one record. `body` is its frame without the length.
  void apply(const char* op, std::string_view body) {
    const std::optional<Message> message = internal::parse(body);
    if (message && message->type == MessageType::kSet)
      keys_.set(message->texts[0], message->texts[1]);
    else if (message && message->type == MessageType::kDelete)
      keys_.erase(message->texts[0]);
    else
      malformed(op, concat("no record at byte ", end_));
  }

  void append_record(const char* op, const Message& message) {
    const std::string bytes = record(message);
    if (end_ + bytes.size() > kMaxFileBytes)
      throw StoreError(op, -1, path_, " has ", end_, " bytes; it grows with every change, up to ",
                       kMaxFileBytes);
    write(op, bytes);
  }

  // Appends the bytes at end_, all or none: truncates the file to end_ if a write fails.
  void write(const char* op, std::string_view bytes) {
    if (::lseek(file_.fd(), static_cast<off_t>(end_), SEEK_SET) < 0 ||
        !internal::write_all(file_.fd(), bytes)) {
      const std::string why = internal::errno_text();
      (void)!::ftruncate(file_.fd(), static_cast<off_t>(end_));
      throw FileError(op, "cannot write ", path_, ": ", why);
    }
    end_ += bytes.size();
  }

  // Returns exactly `bytes` bytes from position `at`.
  std::string read(const char* op, size_t at, size_t bytes) {
    std::string out(bytes, '\0');
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::pread(file_.fd(), out.data() + done, bytes - done, static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        throw FileError(op, "cannot read ", path_, ": ", n == 0 ? "it ends early" : internal::errno_text());
      done += static_cast<size_t>(n);
    }
    return out;
  }

  [[noreturn]] void malformed(const char* op, const std::string& why) const {
    throw StoreError(op, -1, path_, " is no store's file, or a damaged one: ", why);
  }

  const std::string path_;
  std::mutex mutex_;  // guards the members below; flock does not exclude threads that share a descriptor
  internal::FileDescriptor file_;
  internal::KeyTable keys_;
  size_t end_ = 0;  // bytes of the file that keys_ reflects
};

}  // namespace

std::shared_ptr<Store> open_file_store(const std::string& path, Milliseconds timeout) {
  return std::make_shared<FileStore>(path, timeout);
}

}  // namespace gradus::dist
