// failure_report: the launcher's message about a failed job. The first line is the first failure; the next
// lines are its rank's process, exception, traceback and last lines of stderr, if this machine ran the rank,
// then at most 16 other ranks of this machine, one line each. A job that a signal ended has one line. A job
// that did not fail gives "", or a line about lost output.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "gradus/distributed/base/split.h"
#include "gradus/distributed/launch/supervisor.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

std::string clock_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto part = std::chrono::duration_cast<Milliseconds>(time.time_since_epoch()).count() % 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[40], all[50];
  std::strftime(text, sizeof text, "%F %T", &local);
  std::snprintf(all, sizeof all, "%s.%03d", text, int(part));
  return all;
}

// Returns the first line of a text, cut to `width` bytes and "..." if it is longer.
std::string first_line(const std::string& text, size_t width) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.size() > width) line = line.substr(0, width) + "...";
  return line;
}

std::string indented(const std::string& text, const char* indent) {
  std::string result;
  for (const std::string& line : split(text, "\n")) result += indent + line + '\n';
  return result;
}

// Returns how the process of a rank ended.
std::string how(const RankExit& end) {
  if (end.was_stopped) return "stopped (SIGSTOP), ended by the launcher";
  if (end.signal && end.ended_by_launcher)
    return concat("ended by the launcher (", signal_name(end.signal), ')');
  if (end.signal) return concat("signal ", end.signal, " (", signal_name(end.signal), ')');
  if (end.exit_code < 0) return "exit code unknown";
  return concat("exit code ", end.exit_code);
}

// Appends spaces up to `width` characters, at least one.
std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

// Returns why another rank ended: "" for success or an unknown reason, and "because of it" for an error that
// names the rank of the first failure.
std::string reason(const RankExit& end, const Failure& first) {
  if (end.message.empty() || end.ok()) return "";
  if (end.rank_at_fault == first.rank) return "because of it";
  return first_line(end.message, 100);
}

}  // namespace

std::string failure_report(const char* op, const Outcome& outcome) {
  if (outcome.ok) return outcome.lost_output.empty() ? "" : concat(op, ": ", outcome.lost_output, '\n');
  if (outcome.signal)
    return concat(op, ": ended by signal ", outcome.signal, " (", signal_name(outcome.signal), ")\n");
  std::string report = concat(op, ": ", outcome.failure.text, '\n');
  const auto root = std::find_if(outcome.exits.begin(), outcome.exits.end(),
                                 [&](const RankExit& e) { return e.rank == outcome.failure.rank; });
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  if (root != outcome.exits.end()) {
    report +=
        concat("  first failure: rank ", root->rank, " (local rank ", root->local_rank, "), host ", host,
               ", process ", root->pid, ", ", how(*root), ", ended ", clock_text(root->time), '\n');
    // The text of kFailed has the exception already.
    if (!root->message.empty() && outcome.failure.kind != Failure::Kind::kFailed)
      report += (root->message.starts_with("signal ") ? "  " : "  exception: ") +
                indented(root->message, "    ").substr(4);
    if (!root->traceback.empty()) report += "  traceback:\n" + indented(root->traceback, "    ");
    if (!root->error_file.empty()) report += concat("  error file: ", root->error_file, '\n');
    if (!root->last_lines.empty()) {
      report += concat("  last lines of rank ", root->rank, "'s stderr:\n");
      for (const std::string& line : root->last_lines) report += "    | " + line + '\n';
    }
  }
  constexpr size_t kShown = 16;
  size_t others = 0;
  for (const RankExit& end : outcome.exits) {
    if (root != outcome.exits.end() && end.rank == root->rank) continue;
    if (others++ == 0) report += "  other ranks:\n";
    if (others > kShown) continue;
    const std::string why = reason(end, outcome.failure);
    report += concat("    ", padded(concat("rank ", end.rank), 9), padded(concat("process ", end.pid), 17),
                     why.empty() ? how(end) : concat(padded(how(end), 14), why), '\n');
  }
  if (others > kShown) report += concat("    and ", others - kShown, " more\n");
  if (!outcome.log_dir.empty()) report += concat("  logs: ", outcome.log_dir, '\n');
  return report;
}

}  // namespace gradus::dist::internal
