#include "gradus/distributed/store/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist {
namespace {

using internal::Message;
using internal::MessageType;

// The file is a magic line, then records. A record is a checksum (8 bytes) and a frame of
// store_protocol.h, kSet or kDelete. The process that has the lock first reads what others have appended,
// then appends its own records.
constexpr std::string_view kMagicLine = "gradus store 1\n";
constexpr size_t kMaxFileBytes = size_t(4) << 30;
constexpr Milliseconds kFirstPause{2}, kLongestPause{50};

uint64_t checksum(std::string_view bytes) {  // FNV-1a
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return sum;
}

template <class T> T little_endian(const char* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= T(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

std::string record(const Message& message) {
  const std::string frame = encode(message);
  const uint64_t sum = checksum(frame);
  std::string bytes;
  for (size_t i = 0; i < sizeof sum; ++i) bytes.push_back(static_cast<char>(sum >> (8 * i)));
  return bytes + frame;
}

std::string error_text() { return std::generic_category().message(errno); }

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw FileError("open_file_store", path, ' ', why);
}

// Opens or makes the file, which must be this user's alone. Anyone who can write it decides whom ranks talk
// to, and anyone who can read it learns the job's token. In a folder that others may write, they could
// replace the file. A sticky folder, as /tmp is, prevents that.
internal::Socket open_private(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string name = path.substr(slash + 1);
  struct stat info {};
  const internal::Socket in(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!in || ::fstat(in.fd(), &info) != 0) refuse(path, "cannot be opened: " + error_text());
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    refuse(path, concat("is in a folder of another user (", info.st_uid, "): take one of your own"));
  if ((info.st_mode & 022) && !(info.st_mode & S_ISVTX))
    refuse(path, "is in a folder that others may write: take one of your own, or `chmod go-w` it");

  internal::Socket file(::openat(in.fd(), name.c_str(),
                                 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (!file || ::fstat(file.fd(), &info) != 0)
    refuse(path, errno == ELOOP ? "is a symbolic link" : "cannot be opened: " + error_text());
  if (!S_ISREG(info.st_mode)) refuse(path, "is no regular file");
  if (info.st_uid != ::geteuid()) refuse(path, concat("is a file of another user (", info.st_uid, ')'));
  if (info.st_mode & 077) refuse(path, "is a file that others may read or write: remove it");
  if (info.st_nlink > 1) refuse(path, "is a file that has another name as well (a hard link): remove it");
  return file;
}

class FileStore final : public Store {
 public:
  FileStore(std::string path, Milliseconds timeout) : path_(std::move(path)), file_(open_private(path_)) {
    set_timeout(timeout);
    with_lock("open_file_store", [] {});
  }

  void set(std::string_view key, std::string_view value) override {
    change("set", key, [&] { keys_.set(key, value); });
  }
  std::string get(std::string_view key, std::optional<Milliseconds> timeout) override {
    std::string value;
    wait_for("get", {std::string(key)}, timeout, [&] { value = *keys_.find(key); });
    return value;
  }
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout) override {
    std::string value;
    wait_for("pop", {std::string(key)}, timeout, [&] {
      value = *keys_.find(key);
      append_record("pop", {MessageType::kDelete, {}, {key}});
      keys_.erase(key);
    });
    return value;
  }
  int64_t add(std::string_view key, int64_t amount) override {
    int64_t sum = 0;
    change("add", key, [&] { sum = keys_.add(key, amount); });
    return sum;
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    std::string held;
    change("compare_set", key, [&] { held = keys_.compare_set(key, expected, desired); });
    return held;
  }
  int64_t append(std::string_view key, std::string_view value) override {
    int64_t length = 0;
    change("append", key, [&] { length = keys_.append(key, value); });
    return length;
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) override {
    wait_for("wait", keys, timeout, [] {});
  }
  bool check(const std::vector<std::string>& keys) override {
    bool all = false;
    with_lock("check", [&] { all = keys_.missing(keys).empty(); });
    return all;
  }
  bool delete_key(std::string_view key) override {
    bool found = false;
    with_lock("delete_key", [&] {
      found = keys_.find(key) != nullptr;
      if (!found) return;
      append_record("delete_key", {MessageType::kDelete, {}, {key}});
      keys_.erase(key);
    });
    return found;
  }
  int64_t num_keys() override {
    int64_t count = 0;
    with_lock("num_keys", [&] { count = static_cast<int64_t>(keys_.size()); });
    return count;
  }

 private:
  // Changes a key here, and appends the change to the file. If the file cannot take it, the change is undone.
  template <class F> void change(const char* op, std::string_view key, F&& f) {
    with_lock(op, [&] {
      const std::string* found = keys_.find(key);
      const std::optional<std::string> before = found ? std::optional(*found) : std::nullopt;
      f();
      found = keys_.find(key);
      if (found == nullptr || before == *found) return;
      try {
        append_record(op, {MessageType::kSet, {}, {key, *found}});
      } catch (const Error&) {
        before ? keys_.set(key, *before) : void(keys_.erase(key));
        throw;
      }
    });
  }

  template <class Then>
  void wait_for(const char* op, const std::vector<std::string>& keys, std::optional<Milliseconds> timeout,
                Then&& then) {
    const Deadline deadline = Deadline::after(timeout.value_or(default_timeout()));
    Milliseconds pause = kFirstPause;
    for (;;) {
      std::vector<std::string> missing;
      with_lock(op, [&] {
        missing = keys_.missing(keys);
        if (missing.empty()) then();
      });
      if (missing.empty()) return;
      if (deadline.passed()) internal::throw_missing(op, missing, deadline.timeout());
      std::this_thread::sleep_for(std::min(pause, deadline.left()));
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  // Runs f() with the file locked against others, after reading all that they wrote.
  template <class F> void with_lock(const char* op, F&& f) {
    std::lock_guard lock(mutex_);
    lock_file(op);
    struct Unlock {
      int fd;
      ~Unlock() { ::flock(fd, LOCK_UN); }
    } unlock{file_.fd()};
    take_in(op);
    f();
  }

  // Tries in steps, until a deadline: the process that has the lock may be stopped.
  void lock_file(const char* op) {
    const Deadline deadline = Deadline::after(default_timeout());
    Milliseconds pause = kFirstPause;
    while (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        throw FileError(op, "cannot lock ", path_, ": ", error_text());
      if (deadline.passed())
        throw TimeoutError(op, -1, "another process has held the lock of ", path_, " for ",
                           deadline.timeout().count(), " ms");
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  void take_in(const char* op) {
    struct stat info {};
    if (::fstat(file_.fd(), &info) != 0) throw FileError(op, "cannot read ", path_, ": ", error_text());
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
      const auto length = little_endian<uint32_t>(head.data() + sizeof(uint64_t));
      if (length > internal::kMaxFrame)
        malformed(op, concat("a record at byte ", end_, " claims ", length, " bytes"));
      if (length > size - end_ - kHead) malformed(op, "its last record is cut off");
      const std::string frame = read(op, end_ + sizeof(uint64_t), sizeof(uint32_t) + length);
      if (checksum(frame) != little_endian<uint64_t>(head.data()))
        malformed(op, concat("a wrong checksum at byte ", end_));
      apply(op, std::string_view(frame).substr(sizeof(uint32_t)));
      end_ += kHead + length;
    }
  }

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

  // Writes all of the bytes or none.
  void write(const char* op, std::string_view bytes) {
    const gradus::internal::BlockedSignals blocked;
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n =
          ::pwrite(file_.fd(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(end_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const std::string why = error_text();
        (void)!::ftruncate(file_.fd(), static_cast<off_t>(end_));
        throw FileError(op, "cannot write ", path_, ": ", why);
      }
      done += static_cast<size_t>(n);
    }
    end_ += bytes.size();
  }

  std::string read(const char* op, size_t at, size_t bytes) {
    std::string out(bytes, '\0');
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::pread(file_.fd(), out.data() + done, bytes - done, static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw FileError(op, "cannot read ", path_, ": ", n == 0 ? "it ends early" : error_text());
      done += static_cast<size_t>(n);
    }
    return out;
  }

  [[noreturn]] void malformed(const char* op, const std::string& why) const {
    throw StoreError(op, -1, path_, " is no store's file, or a damaged one: ", why);
  }

  const std::string path_;
  std::mutex mutex_;  // of what follows
  internal::Socket file_;
  internal::KeyTable keys_;
  size_t end_ = 0;  // how much of the file has been read
};

}  // namespace

std::shared_ptr<Store> open_file_store(const std::string& path, Milliseconds timeout) {
  return std::make_shared<FileStore>(path, timeout);
}

}  // namespace gradus::dist
