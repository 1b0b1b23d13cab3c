// A note at a port, for ranks that come to it when the job there has ended, and nobody listens any more.
#pragma once

#include <string>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

class PortNote {
 public:
  // How long it is there.
  static constexpr Milliseconds kLife{10'000};
  // Of which it keeps so many bytes.
  static constexpr size_t kMaxText = 1000;

  // `host`: of the port, by the name that all ranks have for it. `several_hosts`: they are on several.
  PortNote(const std::string& host, int port, bool several_hosts = false);

  // Leaves it in the user's own folder, in place of an earlier one. Where there is no such folder, or where
  // ranks are on several hosts and these do not share it, nobody hears.
  void leave(const std::string& text) const noexcept;
  // What was left there in the last kLife; else "".
  std::string text() const noexcept;

 private:
  bool several_hosts_;
  std::string place_;  // host and port
  std::string name_;   // of one of a few files, so that they do not pile up
};

}  // namespace gradus::dist::internal
