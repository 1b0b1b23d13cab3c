// PortNote: a note at a port, for ranks that come to the port after the job there has ended.
#pragma once

#include <string>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

class PortNote {
 public:
  // How long a note counts.
  static constexpr Milliseconds kLife{10'000};
  // Longer texts are cut to this many bytes.
  static constexpr size_t kMaxText = 1000;

  // `host`: the port's host, by the name that all ranks use for it. `several_hosts`: the ranks are
  // on several hosts.
  PortNote(const std::string& host, int port, bool several_hosts = false);

  // Leaves the note in the user's own folder, and replaces an earlier one. Does nothing if no such folder can
  // be made. Ranks on other hosts see the note only if the hosts share the folder.
  void leave(const std::string& text) const noexcept;
  // Returns the note that was left within the last kLife, else "".
  std::string text() const noexcept;

 private:
  bool several_hosts_;
  std::string place_;  // host and port
  std::string name_;   // name of the file, one of a few, so that files do not pile up
};

}  // namespace gradus::dist::internal
