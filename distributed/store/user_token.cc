#include "gradus/distributed/store/user_token.h"

#include <optional>
#include <string_view>

#include "gradus/distributed/store/private_folder.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kName = "token";
constexpr size_t kDigits = 64;  // 32 random bytes

// Returns the token in the folder, or nothing if there is none yet.
std::optional<std::string> read_token(const char* op, const PrivateFolder& folder) {
  const auto file = folder.read(op, kName, kDigits + 1);
  if (!file) return {};
  const std::string_view token = *file;
  if (token.size() != kDigits || token.find_first_not_of("0123456789abcdef") != token.npos)
    throw FileError(op, folder.path_of(kName), " does not hold a token, or only a part of one: remove it");
  return *file;
}

}  // namespace

UserToken user_token(const char* op, const std::string& remote_host) {
  const bool several_hosts = !remote_host.empty();
  std::string reasons;
  for (const std::string& path : PrivateFolder::paths(several_hosts)) {
    std::string why;
    if (const auto folder = PrivateFolder::make(path, &why)) {
      if (auto token = read_token(op, *folder)) return {*token, folder->path_of(kName)};
      // Makes the token, unless another process is faster. The file's content counts.
      if (folder->write(op, kName, random_digits(op, kDigits), &why))
        if (auto token = read_token(op, *folder)) return {*token, folder->path_of(kName)};
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
