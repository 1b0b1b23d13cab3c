// The default token of a user's jobs: the secret by which the ranks of a job know that they belong to the same
// user, when neither an option nor GRADUS_TOKEN gives one. The token is 64 random hexadecimal digits in a file of
// mode 600, which the first process creates and all later ones read. In all functions `op` is the call that errors
// name.
#include "gradus/distributed/store/user_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <vector>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kName = "token";
constexpr size_t kDigits = 64;  // 32 random bytes

// Returns whether `path` is on a network file system, so that other hosts may see the same files. False if statfs
// fails. The magic numbers (statfs.f_type): NFS, CIFS, SMB2, Lustre, GPFS, Ceph, BeeGFS, AFS, PanFS, WekaFS.
bool is_between_hosts(const std::string& path) {
  constexpr uint32_t kKinds[] = {0x6969,     0xFF534D42, 0xFE534D42, 0x0BD00BD0, 0x47504653,
                                 0x00C36400, 0x19830326, 0x5346414F, 0xAAD7AAEA, 0x18031977};
  struct statfs system;
  return statfs(path.c_str(), &system) == 0 &&
         std::ranges::find(kKinds, uint32_t(system.f_type)) != std::end(kKinds);
}

// Returns the folder that the environment variable `name` contains if the path is absolute and the effective user
// owns the folder, else "".
std::string own_folder(const char* name) {
  const char* path = std::getenv(name);
  struct stat info;
  const bool own = path && *path == '/' && stat(path, &info) == 0 && info.st_uid == geteuid();
  return own ? path : "";
}

// Returns the folders that may contain the token, in the order in which they are tried: $HOME/.gradus,
// $XDG_RUNTIME_DIR/gradus, /tmp/gradus-UID. For a job on several hosts only the first, if $HOME is on a network
// file system; the result may be empty.
std::vector<std::string> token_folders(bool several_hosts) {
  const std::string home = own_folder("HOME"), run = own_folder("XDG_RUNTIME_DIR");
  std::vector<std::string> paths;
  if (!home.empty() && (!several_hosts || is_between_hosts(home))) paths.push_back(home + "/.gradus");
  if (!run.empty() && !several_hosts) paths.push_back(run + "/gradus");
  if (!several_hosts) paths.push_back(concat("/tmp/gradus-", geteuid()));
  return paths;
}

// Opens the folder, and creates it with mode 700 if it is absent. Returns an empty descriptor, and sets `why` to
// the reason, unless the user owns the folder and nobody else may write to it. A symbolic link is refused.
FileDescriptor open_folder(const std::string& path, std::string* why) {
  (void)mkdir(path.c_str(), 0700);
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!folder || fstat(folder.fd(), &info) != 0) {
    *why = errno_text();
    return {};
  }
  if (info.st_uid == geteuid() && !(info.st_mode & 022)) return folder;
  *why = "it is of another user, or others may write it";
  return {};
}

// Returns the token in the folder, or nullopt if the file does not exist yet. `path` is the file's name in errors.
// Errors: FileError if the file cannot be opened, is no regular file, belongs to another user, may be accessed by
// others, or does not contain exactly 64 lower-case hexadecimal digits.
std::optional<std::string> read_token(const char* op, const FileDescriptor& folder, const std::string& path) {
  const FileDescriptor file(openat(folder.fd(), kName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  struct stat info;
  if (!file || fstat(file.fd(), &info) != 0) throw FileError(op, "cannot open ", path, ": ", errno_text());
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
    throw FileError(op, path, " must be a file of this user that nobody else may read (mode 600): remove it");
  std::string token(kDigits + 1, '\0');
  token.resize(size_t(std::max<ssize_t>(::read(file.fd(), token.data(), token.size()), 0)));
  if (token.size() != kDigits || token.find_first_not_of("0123456789abcdef") != token.npos)
    throw FileError(op, path, " does not hold a token, or only a part of one: remove it");
  return token;
}

// Creates the file with a new token, or keeps the file that another process has created meanwhile. Writes a draft
// with a random name and then gives the draft the name "token" by link(2), which fails if that name exists:
// readers never see an incomplete token, and all processes use the same one. Returns false, and sets `why` to the
// reason, if no file could be created.
bool make_token(const char* op, const FileDescriptor& folder, std::string* why) {
  const std::string draft = concat(kName, '.', random_hex(op, 16));
  const FileDescriptor file(
      openat(folder.fd(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool made = file && write_all(file.fd(), random_hex(op, kDigits)) && fsync(file.fd()) == 0 &&
                    (linkat(folder.fd(), draft.c_str(), folder.fd(), kName, 0) == 0 || errno == EEXIST);
  if (!made) *why = errno_text();
  if (file) unlinkat(folder.fd(), draft.c_str(), 0);
  return made;
}

}  // namespace

// Thread-safe, also between processes.
UserToken user_token(const char* op, const std::string& remote_host) {
  const bool several_hosts = !remote_host.empty();
  std::string reasons;
  for (const std::string& path : token_folders(several_hosts)) {
    std::string why;
    const std::string file = concat(path, '/', kName);
    if (const FileDescriptor folder = open_folder(path, &why)) {
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
