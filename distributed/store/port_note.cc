#include "gradus/distributed/store/port_note.h"

#include <chrono>
#include <exception>

#include "gradus/distributed/store/private_folder.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
constexpr int kFiles = 64;
constexpr size_t kMaxPlace = 1000;

}  // namespace

PortNote::PortNote(const std::string& host, int port, bool several_hosts)
    : several_hosts_(several_hosts),
      place_(concat(host, ' ', port).substr(0, kMaxPlace)),
      name_(concat("port.", port % kFiles)) {}

void PortNote::leave(const std::string& text) const noexcept {
  try {
    std::string why;
    for (const std::string& path : PrivateFolder::paths(several_hosts_))
      if (const auto folder = PrivateFolder::make(path, &why))
        if (folder->write(kOp, name_.c_str(), concat(place_, '\n', text.substr(0, kMaxText)),
                          PrivateFolder::Existing::kReplace, &why))
          return;
  } catch (const std::exception&) {
  }
}

std::string PortNote::text() const noexcept {
  try {
    std::string why;
    for (const std::string& path : PrivateFolder::paths(several_hosts_)) {
      const auto folder = PrivateFolder::open(path, &why);
      if (!folder) continue;
      const auto file = folder->read(kOp, name_.c_str(), place_.size() + 1 + kMaxText);
      if (!file || !file->content.starts_with(place_ + '\n')) continue;
      // abs: a time in the future is from before the clock was set back.
      const auto age = std::chrono::abs(std::chrono::system_clock::now() - file->time);
      if (age < kLife) return file->content.substr(place_.size() + 1);
    }
  } catch (const std::exception&) {
  }
  return "";
}

}  // namespace gradus::dist::internal
