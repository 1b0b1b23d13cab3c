#include "gradus/distributed/store/private_folder.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <system_error>

#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

std::string error_text() { return std::generic_category().message(errno); }

// Returns whether other hosts may see the same files: NFS, SMB, Lustre, GPFS, Ceph, BeeGFS,
// AFS, PanFS, WekaFS.
bool is_between_hosts(const std::string& path) {
  constexpr uint32_t kKinds[] = {0x6969,     0xFF534D42, 0xFE534D42, 0x0BD00BD0, 0x47504653,
                                 0x00C36400, 0x19830326, 0x5346414F, 0xAAD7AAEA, 0x18031977};
  struct statfs system;
  return statfs(path.c_str(), &system) == 0 &&
         std::ranges::find(kKinds, uint32_t(system.f_type)) != std::end(kKinds);
}

// Returns the folder that an environment variable names, if it is the user's own.
std::string own_folder(const char* name) {
  const char* path = std::getenv(name);
  struct stat info;
  const bool own = path && *path == '/' && stat(path, &info) == 0 && info.st_uid == geteuid();
  return own ? path : "";
}

}  // namespace

std::string random_digits(const char* op, size_t count) {
  std::vector<unsigned char> bytes(count / 2);
  if (getrandom(bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw StateError(op, "no random numbers");
  std::string digits;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[digit];
  return digits;
}

std::vector<std::string> PrivateFolder::paths(bool several_hosts) {
  const std::string home = own_folder("HOME"), run = own_folder("XDG_RUNTIME_DIR");
  std::vector<std::string> paths;
  if (!home.empty() && (!several_hosts || is_between_hosts(home))) paths.push_back(home + "/.gradus");
  if (!run.empty() && !several_hosts) paths.push_back(run + "/gradus");
  if (!several_hosts) paths.push_back(concat("/tmp/gradus-", geteuid()));
  return paths;
}

std::optional<PrivateFolder> PrivateFolder::open(const std::string& path, std::string* why) {
  Socket folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!folder || fstat(folder.fd(), &info) != 0) {
    *why = error_text();
    return {};
  }
  if (info.st_uid == geteuid() && !(info.st_mode & 022)) return PrivateFolder(path, std::move(folder));
  *why = "it is of another user, or others may write it";
  return {};
}

std::optional<PrivateFolder> PrivateFolder::make(const std::string& path, std::string* why) {
  (void)mkdir(path.c_str(), 0700);
  return open(path, why);
}

std::optional<std::string> PrivateFolder::read(const char* op, const char* name, size_t max_bytes) const {
  const Socket file(openat(folder_.fd(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  struct stat info;
  if (!file || fstat(file.fd(), &info) != 0)
    throw FileError(op, "cannot open ", path_of(name), ": ", error_text());
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
    throw FileError(op, path_of(name),
                    " must be a file of this user that nobody else may read (mode 600): remove it");
  std::string content(max_bytes, '\0');
  content.resize(size_t(std::max<ssize_t>(::read(file.fd(), content.data(), max_bytes), 0)));
  return content;
}

bool PrivateFolder::write(const char* op, const char* name, std::string_view content,
                          std::string* why) const {
  const std::string draft = concat(name, '.', random_digits(op, 16));
  const Socket file(
      openat(folder_.fd(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool made = file && ::write(file.fd(), content.data(), content.size()) == ssize_t(content.size()) &&
                    fsync(file.fd()) == 0 &&
                    (linkat(folder_.fd(), draft.c_str(), folder_.fd(), name, 0) == 0 || errno == EEXIST);
  if (!made) *why = error_text();
  if (file) unlinkat(folder_.fd(), draft.c_str(), 0);
  return made;
}

}  // namespace gradus::dist::internal
