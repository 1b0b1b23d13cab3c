#include "gradus/distributed/user_token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "gradus/distributed/socket.h"
#include "gradus/tensor/error.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kName = "token";
constexpr size_t kDigits = 64;  // 32 random bytes

std::string error_text() { return std::generic_category().message(errno); }

std::string random_digits(const char* op, size_t count) {
  std::vector<unsigned char> bytes(count / 2);
  if (getrandom(bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw StateError(op, "no random numbers");
  std::string digits;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[digit];
  return digits;
}

// Whether other hosts may see the same files: NFS, SMB, Lustre, GPFS, Ceph, BeeGFS, AFS, PanFS, WekaFS.
bool is_between_hosts(const std::string& path) {
  constexpr uint32_t kKinds[] = {0x6969,     0xFF534D42, 0xFE534D42, 0x0BD00BD0, 0x47504653,
                                 0x00C36400, 0x19830326, 0x5346414F, 0xAAD7AAEA, 0x18031977};
  struct statfs system;
  return statfs(path.c_str(), &system) == 0 &&
         std::ranges::find(kKinds, uint32_t(system.f_type)) != std::end(kKinds);
}

// Opens or makes the folder; null with `why` set unless it is the user's own, which nobody else may write.
Socket open_folder(const std::string& path, std::string* why) {
  (void)mkdir(path.c_str(), 0700);
  Socket folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!folder || fstat(folder.fd(), &info) != 0) {
    *why = error_text();
    return {};
  }
  if (info.st_uid == geteuid() && !(info.st_mode & 022)) return folder;
  *why = "it is of another user, or others may write it";
  return {};
}

// Nothing when there is none yet.
std::optional<std::string> read_token(const char* op, const Socket& folder, const std::string& path) {
  const Socket file(openat(folder.fd(), kName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  struct stat info;
  if (!file || fstat(file.fd(), &info) != 0) throw FileError(op, "cannot open ", path, ": ", error_text());
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
    throw FileError(op, path, " must be a file of this user that nobody else may read (mode 600): remove it");
  char content[kDigits + 1];
  const ssize_t size = read(file.fd(), content, sizeof content);
  const std::string_view token(content, size_t(std::max<ssize_t>(size, 0)));
  if (token.size() != kDigits || token.find_first_not_of("0123456789abcdef") != token.npos)
    throw FileError(op, path, " does not hold a token, or only a part of one: remove it");
  return std::string(token);
}

// Makes the file, complete from its first moment, unless another process is faster. False with `why` set when
// that cannot be.
bool make_token(const char* op, const Socket& folder, std::string* why) {
  const std::string draft = concat(kName, '.', random_digits(op, 16)), token = random_digits(op, kDigits);
  Socket file(openat(folder.fd(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool made = file && write(file.fd(), token.data(), token.size()) == ssize_t(token.size()) &&
                    fsync(file.fd()) == 0 &&
                    (linkat(folder.fd(), draft.c_str(), folder.fd(), kName, 0) == 0 || errno == EEXIST);
  if (!made) *why = error_text();
  if (file) unlinkat(folder.fd(), draft.c_str(), 0);
  return made;
}

// The folder that a variable names, if it is the user's own.
std::string own_folder(const char* name) {
  const char* path = std::getenv(name);
  struct stat info;
  const bool own = path && *path == '/' && stat(path, &info) == 0 && info.st_uid == geteuid();
  return own ? path : "";
}

}  // namespace

UserToken user_token(const char* op, const std::string& remote_host) {
  const bool several_hosts = !remote_host.empty();
  const std::string home = own_folder("HOME"), run = own_folder("XDG_RUNTIME_DIR");
  std::vector<std::string> folders;
  if (!home.empty() && (!several_hosts || is_between_hosts(home))) folders.push_back(home + "/.gradus");
  if (!run.empty() && !several_hosts) folders.push_back(run + "/gradus");
  if (!several_hosts) folders.push_back(concat("/tmp/gradus-", geteuid()));

  std::string reasons;
  for (const std::string& path : folders) {
    std::string why;
    const std::string file = concat(path, '/', kName);
    if (const Socket folder = open_folder(path, &why)) {
      if (auto token = read_token(op, folder, file)) return {*token, file};
      if (make_token(op, folder, &why))
        if (auto token = read_token(op, folder, file)) return {*token, file};
    }
    reasons += concat(reasons.empty() ? "" : "; ", path, ": ", why);
  }
  if (reasons.empty()) reasons = "the home folder is not this user's, or is on this host alone";
  throw ValueError(
      op,
      several_hosts ? concat("ranks on several hosts (the store is at ", remote_host, ')')
                    : std::string("ranks without a launcher of Gradus"),
      " need the job's secret: set GRADUS_TOKEN to the same value on all of them, for example to what "
      "`openssl rand -hex 16` prints (no file can hold one: ",
      reasons, ')');
}

}  // namespace gradus::dist::internal
