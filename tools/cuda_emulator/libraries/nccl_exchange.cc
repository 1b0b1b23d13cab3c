// Implementation of nccl_exchange.h. A directory whose processes died is one without locks (flock), which also
// holds across PID namespaces.
#include "gradus/tools/cuda_emulator/libraries/nccl_exchange.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

namespace gradus::cuda::emulated {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "emulated_nccl_";

fs::path parent_directory() {
  std::error_code ignored;
  if (fs::is_directory("/dev/shm", ignored)) return "/dev/shm";
  const char* const given = std::getenv("TMPDIR");
  return given && *given ? given : "/tmp";
}

// Opens a directory and locks it. Returns -1 if it does not exist, or if another process has a lock that
// excludes this one.
int lock_directory(const fs::path& directory, int operation) {
  const int file = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0 || flock(file, operation | LOCK_NB) == 0) return file;
  close(file);
  return -1;
}

void remove_unused(const fs::path& parent) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const int file = lock_directory(entry.path(), LOCK_EX);
    if (file < 0) continue;
    fs::remove_all(entry.path(), ignored);
    close(file);
  }
}

// Locks of directories that this process has made, and in which none of its ranks is yet.
std::mutex mutex;
std::map<std::string, int>& made() {
  static auto& locks = *new std::map<std::string, int>;
  return locks;
}

}  // namespace

std::string NcclExchange::make_directory() {
  const fs::path parent = parent_directory();
  remove_unused(parent);
  // The directory gets its final name when it has a lock, so that no other process removes it before.
  std::string fresh = (parent / "new_emulated_nccl_XXXXXX").string();
  if (!mkdtemp(fresh.data())) return "";
  const std::string path = (parent / (kPrefix + fresh.substr(fresh.size() - 6))).string();
  const int file = lock_directory(fresh, LOCK_SH);
  if (file < 0 || rename(fresh.c_str(), path.c_str()) != 0) return "";
  const std::lock_guard lock(mutex);
  made()[path] = file;
  return path;
}

NcclExchange::NcclExchange(std::string directory)
    : directory_(std::move(directory)), lock_(lock_directory(directory_, LOCK_SH)) {
  const std::lock_guard lock(mutex);
  if (const auto found = made().find(directory_); found != made().end() && is_open()) {
    close(found->second);
    made().erase(found);
  }
}

NcclExchange::~NcclExchange() {
  if (is_open()) close(lock_);
}

void NcclExchange::publish(const std::string& name, const std::string& bytes) const {
  const std::string to = path(name), fresh = to + ".new";
  std::ofstream file(fresh, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file && std::rename(fresh.c_str(), to.c_str()) == 0) return;
  std::fprintf(stderr, "gradus emulated device: NCCL cannot write %s: %s\n", to.c_str(),
               std::strerror(errno));
  std::abort();
}

bool NcclExchange::contains(const std::string& name) const { return access(path(name).c_str(), F_OK) == 0; }

std::string NcclExchange::read(const std::string& name) const {
  std::ifstream file(path(name), std::ios::binary | std::ios::ate);
  if (!file) return "";
  std::string bytes(static_cast<size_t>(file.tellg()), '\0');
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void NcclExchange::remove(const std::string& name) const { std::remove(path(name).c_str()); }

void NcclExchange::leave(int rank, int ranks) const {
  publish("left." + std::to_string(rank), "");
  for (int i = 0; i < ranks; ++i)
    if (!contains("left." + std::to_string(i))) return;
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

}  // namespace gradus::cuda::emulated
