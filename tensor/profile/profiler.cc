// Profiler: scopes that make a ProfileSession the Observer of the thread's Context, and reports from a
// snapshot of its events: rows grouped by name, a text table, and a trace file in Chrome's JSON format.
// Durations of nested work are attributed to the innermost event, except in rows by range. Times in the
// records are ns, in reports seconds.
#include "gradus/tensor/profile/profiler.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>

#include "gradus/tensor/profile/profile_session.h"
#include "gradus/tensor/profile/trace_file.h"

namespace gradus {
namespace {

using internal::MemorySample;
using internal::ProfileEvent;
using internal::ProfileStream;
using internal::ProfileThread;
using internal::TimeSpan;
using internal::TraceFile;
using Snapshot = internal::ProfileSession::Snapshot;

constexpr char kName[] = "Profiler";

// Returns the name of the row to which an event is added; "": none.
std::string row_of(const Snapshot& s, const ProfileEvent& e, Profiler::By by) {
  if (by == Profiler::kRange) return e.kind == RangeKind::kUser ? s.names[e.name] : "";
  if (!e.is_work()) return "";
  std::string name = s.names[e.name];
  if (by == Profiler::kModule) name = s.names[e.module].empty() ? "(no module)" : s.names[e.module];
  if (by == Profiler::kOpAndShape && !s.names[e.shapes].empty()) name += " " + s.names[e.shapes];
  if (by == Profiler::kOpAndShape && !s.names[e.kernel].empty()) name += " (" + s.names[e.kernel] + ")";
  if (e.is_on_device()) return concat(name, " [", e.runs_on, ']');
  const ProfileThread& thread = s.threads[static_cast<size_t>(e.thread)];
  return thread.records ? name : name + " [" + thread.name + "]";
}

// Returns the rows in descending order of time. Events that have not ended are left out.
std::vector<ProfileRow> rows_of(const Snapshot& s, Profiler::By by) {
  std::map<std::string, ProfileRow> rows;
  for (const ProfileEvent& e : s.events) {
    if (!e.host.has_ended()) continue;
    const std::string name = row_of(s, e, by);
    if (name.empty()) continue;
    ProfileRow& row = rows[name];
    ++row.calls;
    row.bytes += e.bytes;
    row.flops += e.flops;
    if (!e.time().has_ended()) {
      ++row.untimed;
      continue;
    }
    const double seconds =
        1e-9 * static_cast<double>(by == Profiler::kRange ? e.time().length() : e.time().own());
    row.seconds += seconds;
    if (e.in_backward) row.backward_seconds += seconds;
  }
  std::vector<ProfileRow> sorted;
  for (auto& [name, row] : rows) {
    row.name = name;
    sorted.push_back(std::move(row));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return sorted;
}

// snprintf to a string of at most 255 characters.
template <class... Args> std::string formatted(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

// Returns `value` with `digits` decimals in `width` characters; `width` blanks if `there` is false.
std::string cell(int width, int digits, double value, bool there = true) {
  return there ? formatted("%*.*f", width, digits, value) : std::string(static_cast<size_t>(width), ' ');
}

std::string percent(double part, double of) { return formatted("%.1f %%", of > 0 ? 100 * part / of : 0.); }

// Total times of kernels and other work.
struct Work {
  double seconds = 0;                // host work on the recording threads
  double launching = 0;              // launches of GPU kernels on the recording threads
  std::map<std::string, double> on;  // GPU time, by device
  int64_t untimed = 0;               // GPU kernels of unknown time
};

Work work_of(const Snapshot& s) {
  Work work;
  for (const ProfileEvent& e : s.events) {
    if (!e.host.has_ended() || !e.is_work()) continue;
    if (s.threads[static_cast<size_t>(e.thread)].records)
      (e.is_on_device() ? work.launching : work.seconds) += 1e-9 * static_cast<double>(e.host.own());
    if (!e.is_on_device()) continue;
    double& on = work.on[to_string(e.runs_on)];
    if (e.device.has_ended())
      on += 1e-9 * static_cast<double>(e.device.own());
    else
      ++work.untimed;
  }
  return work;
}

// Returns the sample of the highest memory use on one device; null if there is no sample.
const MemorySample* peak_of(const Snapshot& s) {
  const auto peak = std::max_element(s.memory.begin(), s.memory.end(), [](const auto& a, const auto& b) {
    return a.live_bytes < b.live_bytes;
  });
  return peak == s.memory.end() ? nullptr : &*peak;
}

// Returns the lines below the table: recorded time, time outside of kernels, time per GPU, and peak memory.
std::string totals_of(const Snapshot& s) {
  const Work work = work_of(s);
  const double recorded = 1e-9 * static_cast<double>(s.recorded),
               outside = recorded - work.seconds - work.launching;
  std::string text;
  if (s.steps > 0) text += concat(s.steps, s.steps == 1 ? " step, " : " steps of ");
  if (s.steps > 1) text += formatted("%.3f ms, ", 1e3 * recorded / static_cast<double>(s.steps));
  text += formatted("%.3f ms recorded, ", 1e3 * recorded) + percent(outside, recorded) +
          " of it outside of kernels";
  if (!work.on.empty()) text += ", " + percent(work.launching, recorded) + " launching them";
  text += '\n';
  for (const auto& [device, seconds] : work.on)
    text += formatted("%.3f ms, ", 1e3 * seconds) + percent(seconds, recorded) + ", in kernels on " + device +
            '\n';
  if (work.untimed > 0)
    text += concat(work.untimed, work.untimed == 1 ? " kernel has" : " kernels have", " no time",
                   s.device_error.empty() ? "" : ": ", s.device_error, '\n');
  if (const MemorySample* peak = peak_of(s)) {
    text += formatted("peak memory %.1f MiB", static_cast<double>(peak->live_bytes) / (1 << 20));
    if (peak->event >= 0) {
      const ProfileEvent& e = s.events[static_cast<size_t>(peak->event)];
      text += concat(", in ", s.names[e.name], e.in_backward ? " backward" : "");
      if (!s.names[e.module].empty()) text += concat(" (", s.names[e.module], ')');
    }
    text += '\n';
  }
  return text;
}

// Track numbers of streams start here. Those of threads are system thread ids, which are smaller.
constexpr int64_t kFirstStream = int64_t(1) << 24;

std::string arguments_of(const Snapshot& s, const ProfileEvent& e) {
  std::string args;
  const auto add = [&](const char* key, const std::string& value) {
    args += concat(args.empty() ? "" : ",", '"', key, "\":", value);
  };
  if (!s.names[e.module].empty()) add("module", TraceFile::quoted(s.names[e.module]));
  if (!s.names[e.shapes].empty()) add("shapes", TraceFile::quoted(s.names[e.shapes]));
  if (!s.names[e.kernel].empty()) add("kernel", TraceFile::quoted(s.names[e.kernel]));
  if (e.bytes > 0) add("bytes", std::to_string(e.bytes));
  if (e.flops > 0) add("flops", std::to_string(e.flops));
  return args;
}

// Writes an event as a complete event ("ph":"X"); a GPU kernel as two: its launch on the thread, its run on
// the stream.
void write_range(TraceFile& file, const Snapshot& s, const ProfileEvent& e) {
  static constexpr const char* kCategories[] = {"kernel", "module", "backward", "collective", "data", "user"};
  const std::string &module = s.names[e.module], args = arguments_of(s, e);
  std::string name = s.names[e.name];
  if (e.kind == RangeKind::kBackward) name += " backward";
  if (e.kind == RangeKind::kModule && !module.empty()) name = module + " (" + name + ")";
  const ProfileThread& thread = s.threads[static_cast<size_t>(e.thread)];
  const auto write = [&](const std::string& category, int64_t line, const std::string& shown,
                         const TimeSpan& span) {
    file.event(concat("\"ph\":\"X\",\"cat\":\"", category, "\",\"pid\":", thread.rank, ",\"tid\":", line,
                      ",\"ts\":", TraceFile::microseconds(span.begin),
                      ",\"dur\":", TraceFile::microseconds(span.length()),
                      ",\"name\":", TraceFile::quoted(shown), ",\"args\":{", args, "}"));
  };
  const std::string category = kCategories[static_cast<int>(e.kind)];
  if (!e.is_on_device()) return write(category, thread.system_id, name, e.host);
  write("launch", thread.system_id, "launch " + name, e.host);
  if (e.device.has_ended()) write(category, kFirstStream + e.stream, name, e.device);
}

// Writes the names of processes (ranks), threads and streams. Several ranks may launch kernels on one stream.
void write_names(TraceFile& file, const Snapshot& s) {
  std::set<int> ranks;
  for (const ProfileThread& t : s.threads) {
    if (ranks.insert(t.rank).second) file.name_process(t.rank, concat("rank ", t.rank));
    file.name_thread(t.rank, t.system_id, t.name);
  }
  std::set<std::pair<int, int>> streams;
  for (const ProfileEvent& e : s.events) {
    if (!e.device.has_ended()) continue;
    const int rank = s.threads[static_cast<size_t>(e.thread)].rank;
    const ProfileStream& stream = s.streams[static_cast<size_t>(e.stream)];
    if (streams.emplace(rank, e.stream).second)
      file.name_thread(rank, kFirstStream + e.stream, concat(stream.device, " stream ", stream.number));
  }
}

}  // namespace

Profiler::Profiler(ProfilerOptions options) : session_(make_ref<internal::ProfileSession>(options)) {
  if (options.skip < 0 || options.steps < 0)
    throw ValueError(kName, "skip and steps must be at least 0, got ", options.skip, " and ", options.steps);
}
Profiler::~Profiler() = default;

Profiler::Scope Profiler::record() { return Scope(session_); }

Profiler::Scope::Scope(Ref<internal::ProfileSession> session) : session_(std::move(session)) {
  session_->open();
  outer_ = std::exchange(Context::current().observer, session_);
}
Profiler::Scope::Scope(Scope&&) noexcept = default;
Profiler::Scope::~Scope() {
  if (!session_) return;  // moved from
  Context::current().observer = std::move(outer_);
  session_->close();
}

void Profiler::step() { session_->step(); }
void Profiler::clear() { session_->clear(); }
double Profiler::seconds() const { return 1e-9 * static_cast<double>(session_->snapshot().recorded); }
int64_t Profiler::steps() const { return session_->snapshot().steps; }
std::vector<ProfileRow> Profiler::rows(By by) const {
  session_->wait_for_devices();
  return rows_of(session_->snapshot(), by);
}

int64_t Profiler::peak_bytes() const {
  const Snapshot s = session_->snapshot();
  const MemorySample* peak = peak_of(s);
  return peak ? peak->live_bytes : 0;
}

std::string Profiler::table() const { return table({}); }
std::string Profiler::table(const ProfileTableOptions& options) const {
  constexpr size_t kMaxNameWidth = 80;
  session_->wait_for_devices();
  const Snapshot s = session_->snapshot();
  const std::vector<ProfileRow> all = rows_of(s, options.by);
  const size_t shown = std::min(all.size(), static_cast<size_t>(std::max<int64_t>(options.limit, 0)));
  size_t width = 8;
  for (size_t i = 0; i < shown; ++i) width = std::max(width, std::min(all[i].name.size(), kMaxNameWidth));
  const auto padded = [&](const std::string& name) {
    return name + std::string(width - std::min(name.size(), width), ' ');
  };
  constexpr const char* kNames[] = {"op", "op", "module", "range"};
  std::string text = padded(kNames[options.by]) +
                     "   calls   total ms  backward ms    mean us   share        MB    GB/s  GFLOP/s\n";
  const double recorded = 1e-9 * static_cast<double>(s.recorded);
  const auto line = [&](const ProfileRow& r) {
    const int64_t timed = r.calls - r.untimed;
    const bool has_rate = r.seconds > 0 && r.untimed == 0;
    text += padded(r.name) + formatted("%8" PRId64, r.calls) + cell(11, 3, 1e3 * r.seconds, timed > 0) +
            cell(13, 3, 1e3 * r.backward_seconds, r.backward_seconds > 0) +
            cell(11, 1, 1e6 * r.seconds / static_cast<double>(timed), timed > 0) +
            formatted("%8s", percent(r.seconds, recorded).c_str()) +
            cell(10, 1, 1e-6 * static_cast<double>(r.bytes), r.bytes > 0) +
            cell(8, 1, 1e-9 * static_cast<double>(r.bytes) / r.seconds, r.bytes > 0 && has_rate) +
            cell(9, 1, 1e-9 * static_cast<double>(r.flops) / r.seconds, r.flops > 0 && has_rate);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  for (size_t i = 0; i < shown; ++i) line(all[i]);
  if (shown < all.size()) {
    ProfileRow rest{.name = concat("(", all.size() - shown, " more)")};
    for (size_t i = shown; i < all.size(); ++i) {
      rest.calls += all[i].calls, rest.seconds += all[i].seconds,
          rest.backward_seconds += all[i].backward_seconds;
      rest.bytes += all[i].bytes, rest.flops += all[i].flops, rest.untimed += all[i].untimed;
    }
    line(rest);
  }
  return text + totals_of(s);
}

void Profiler::write_trace(const std::filesystem::path& path) const {
  session_->wait_for_devices();
  const Snapshot s = session_->snapshot();
  TraceFile file(kName, path);
  write_names(file, s);
  for (const ProfileEvent& e : s.events)
    if (e.host.has_ended()) write_range(file, s, e);
  for (const MemorySample& m : s.memory)
    file.event(concat("\"ph\":\"C\",\"pid\":", m.rank, ",\"ts\":", TraceFile::microseconds(m.at),
                      ",\"args\":{\"bytes\":", m.live_bytes,
                      "},\"name\":", TraceFile::quoted("live memory " + to_string(m.device))));
  file.close();
}

}  // namespace gradus
