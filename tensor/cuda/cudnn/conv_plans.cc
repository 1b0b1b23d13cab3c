#include "gradus/tensor/cuda/cudnn/conv_plans.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/cudnn/choice_json.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/quiet_signals.h"

namespace gradus::cuda {
namespace {

namespace fs = std::filesystem;

// A file that is open for a function.
class File {
 public:
  File(const char* op, const fs::path& path, const fs::path& opened, int flags)
      : op_(op), path_(path), fd_(::open(opened.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail("cannot be opened");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string read(size_t most) const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail("cannot be examined");
    if (!S_ISREG(info.st_mode)) throw FileError(op_, path_.string(), ": expected a regular file");
    std::string text(most + 1, '\0');
    size_t size = 0;
    while (size < text.size()) {
      const ssize_t n = ::read(fd_, text.data() + size, text.size() - size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be read");
      if (n == 0) break;
      size += static_cast<size_t>(n);
    }
    if (size > most) throw FileError(op_, path_.string(), ": has more than ", most, " bytes");
    text.resize(size);
    return text;
  }
  // Also to the disk.
  void write(std::string_view text) const {
    const gradus::internal::QuietSignals quiet;
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be written");
      text.remove_prefix(static_cast<size_t>(n));
    }
    if (::fsync(fd_) != 0) fail("cannot be written");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw FileError(op_, path_.string(), ": ", what, ": ", std::generic_category().message(errno));
  }

  const char* op_;
  const fs::path& path_;
  int fd_;
};

// Puts a new file beside the old one, and then in its place. The name is a random one: programs of several
// containers have one number, and one that was killed leaves its file.
void replace_file(const char* op, const fs::path& path, std::string_view text) {
  std::random_device random;
  const fs::path beside = concat(path.string(), '.', random(), '.', random(), ".tmp");
  const File file(op, path, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  try {
    file.write(text);
    if (::rename(beside.c_str(), path.c_str()) != 0)
      throw FileError(op, path.string(), ": cannot be replaced: ", std::generic_category().message(errno));
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
}

int64_t version_of_library(const char* op) { return static_cast<int64_t>(cudnn(op).cudnnGetVersion()); }

std::set<DeviceModel> models_here(const char* op) {
  internal::DeviceRuntime& runtime = internal::runtime_of("cuda:0", op);
  std::set<DeviceModel> models;
  for (int i = 0; i < runtime.device_count(); ++i) {  // also one that kernels cannot use
    const internal::DeviceProperties p = runtime.properties(i);
    models.insert({p.name, p.major, p.minor});
  }
  return models;
}

std::string describe(const DeviceModel& m) { return concat(m.name, " (", m.major, '.', m.minor, ')'); }

}  // namespace

int64_t save_plans(const fs::path& path) {
  constexpr const char* op = "save_plans";
  const int64_t version = version_of_library(op);
  const ConvChoices choices = storable(KeptChoices::get().all(), version);
  replace_file(op, path, to_json(choices, version));
  return static_cast<int64_t>(count(choices));
}

int64_t load_plans(const fs::path& path) {
  constexpr const char* op = "load_plans";
  const std::string text = File(op, path, path, O_RDONLY | O_NONBLOCK).read(kMostBytesOfChoices);
  ConvChoices choices = from_json(op, path, text, version_of_library(op));
  const std::set<DeviceModel> here = models_here(op);
  std::string other;
  std::erase_if(choices, [&](const auto& entry) {
    if (here.contains(entry.first)) return false;
    if (other.empty()) other = describe(entry.first);
    return true;
  });
  if (choices.empty() && !other.empty())
    throw FileError(op, path.string(), ": is for ", other, ", and not for ", describe(*here.begin()));
  const size_t n = count(choices);
  KeptChoices::get().add(std::move(choices));
  forget_plans();
  return static_cast<int64_t>(n);
}

void clear_plans() {
  KeptChoices::get().clear();
  forget_plans();
}

}  // namespace gradus::cuda
