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
using internal::ProfileThread;
using internal::TraceFile;
using Snapshot = internal::ProfileSession::Snapshot;

constexpr char kName[] = "Profiler";

// Returns the name of the row to which an event belongs; "": none.
std::string row_of(const Snapshot& s, const ProfileEvent& e, Profiler::By by) {
  if (by == Profiler::kRange) return e.kind == RangeKind::kUser ? s.names[e.name] : "";
  if (!e.is_work()) return "";
  std::string name = s.names[e.name];
  if (by == Profiler::kModule) name = s.names[e.module].empty() ? "(no module)" : s.names[e.module];
  if (by == Profiler::kOpAndShape && !s.names[e.shapes].empty()) name += " " + s.names[e.shapes];
  if (by == Profiler::kOpAndShape && !s.names[e.kernel].empty()) name += " (" + s.names[e.kernel] + ")";
  const ProfileThread& thread = s.threads[static_cast<size_t>(e.thread)];
  return thread.records ? name : name + " [" + thread.name + "]";
}

std::vector<ProfileRow> rows_of(const Snapshot& s, Profiler::By by) {
  std::map<std::string, ProfileRow> rows;
  for (const ProfileEvent& e : s.events) {
    if (e.end < 0) continue;
    const std::string name = row_of(s, e, by);
    if (name.empty()) continue;
    ProfileRow& row = rows[name];
    const double seconds =
        1e-9 * static_cast<double>(e.end - e.begin - (by == Profiler::kRange ? 0 : e.inner));
    ++row.calls;
    row.seconds += seconds;
    if (e.in_backward) row.backward_seconds += seconds;
    row.bytes += e.bytes;
    row.flops += e.flops;
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

template <class... Args> std::string formatted(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

// Returns `value` with `digits` digits after the point; blanks if not `there`.
std::string cell(int width, int digits, double value, bool there = true) {
  return there ? formatted("%*.*f", width, digits, value) : std::string(static_cast<size_t>(width), ' ');
}

std::string percent(double part, double of) { return formatted("%.1f %%", of > 0 ? 100 * part / of : 0.); }

// Returns the seconds of work on the threads that record. The rest of their time is spent outside of kernels.
double working_seconds(const Snapshot& s) {
  int64_t ns = 0;
  for (const ProfileEvent& e : s.events)
    if (e.end >= 0 && e.is_work() && s.threads[static_cast<size_t>(e.thread)].records)
      ns += e.end - e.begin - e.inner;
  return 1e-9 * static_cast<double>(ns);
}

const MemorySample* peak_of(const Snapshot& s) {
  const auto peak = std::max_element(s.memory.begin(), s.memory.end(), [](const auto& a, const auto& b) {
    return a.live_bytes < b.live_bytes;
  });
  return peak == s.memory.end() ? nullptr : &*peak;
}

std::string totals_of(const Snapshot& s) {
  const double recorded = 1e-9 * static_cast<double>(s.recorded), outside = recorded - working_seconds(s);
  std::string text;
  if (s.steps > 0) text += concat(s.steps, s.steps == 1 ? " step, " : " steps of ");
  if (s.steps > 1) text += formatted("%.3f ms, ", 1e3 * recorded / static_cast<double>(s.steps));
  text += formatted("%.3f ms recorded, ", 1e3 * recorded) + percent(outside, recorded) +
          " of it outside of kernels\n";
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

void write_range(TraceFile& file, const Snapshot& s, const ProfileEvent& e) {
  static constexpr const char* kCategories[] = {"kernel", "module", "backward", "collective", "data", "user"};
  const std::string &module = s.names[e.module], &shapes = s.names[e.shapes];
  std::string name = s.names[e.name], args;
  if (e.kind == RangeKind::kBackward) name += " backward";
  if (e.kind == RangeKind::kModule && !module.empty()) name = module + " (" + name + ")";
  const auto add = [&](const char* key, const std::string& value) {
    args += concat(args.empty() ? "" : ",", '"', key, "\":", value);
  };
  if (!module.empty()) add("module", TraceFile::quoted(module));
  if (!shapes.empty()) add("shapes", TraceFile::quoted(shapes));
  if (!s.names[e.kernel].empty()) add("kernel", TraceFile::quoted(s.names[e.kernel]));
  if (e.bytes > 0) add("bytes", std::to_string(e.bytes));
  if (e.flops > 0) add("flops", std::to_string(e.flops));
  const ProfileThread& thread = s.threads[static_cast<size_t>(e.thread)];
  file.event(concat("\"ph\":\"X\",\"cat\":\"", kCategories[static_cast<int>(e.kind)], "\",\"pid\":",
                    thread.rank, ",\"tid\":", thread.system_id, ",\"ts\":", TraceFile::microseconds(e.begin),
                    ",\"dur\":", TraceFile::microseconds(e.end - e.begin),
                    ",\"name\":", TraceFile::quoted(name), ",\"args\":{", args, "}"));
}

}  // namespace

Profiler::Profiler(ProfilerOptions options) : session_(make_ref<internal::ProfileSession>(options)) {
  if (options.skip < 0 || options.steps < 0)
    throw ValueError(kName, "skip and steps must be at least 0, given ", options.skip, " and ",
                     options.steps);
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
std::vector<ProfileRow> Profiler::rows(By by) const { return rows_of(session_->snapshot(), by); }

int64_t Profiler::peak_bytes() const {
  const Snapshot s = session_->snapshot();
  const MemorySample* peak = peak_of(s);
  return peak ? peak->live_bytes : 0;
}

std::string Profiler::table() const { return table({}); }
std::string Profiler::table(const ProfileTableOptions& options) const {
  constexpr size_t kWidest = 80;
  const Snapshot s = session_->snapshot();
  const std::vector<ProfileRow> all = rows_of(s, options.by);
  const size_t shown = std::min(all.size(), static_cast<size_t>(std::max<int64_t>(options.limit, 0)));
  size_t width = 8;
  for (size_t i = 0; i < shown; ++i) width = std::max(width, std::min(all[i].name.size(), kWidest));
  const auto padded = [&](const std::string& name) {
    return name + std::string(width - std::min(name.size(), width), ' ');
  };
  constexpr const char* kNames[] = {"op", "op", "module", "range"};
  std::string text = padded(kNames[options.by]) +
                     "   calls   total ms  backward ms    mean us   share        MB    GB/s  GFLOP/s\n";
  const double recorded = 1e-9 * static_cast<double>(s.recorded);
  const auto line = [&](const ProfileRow& r) {
    text += padded(r.name) + formatted("%8" PRId64, r.calls) + cell(11, 3, 1e3 * r.seconds) +
            cell(13, 3, 1e3 * r.backward_seconds, r.backward_seconds > 0) +
            cell(11, 1, 1e6 * r.seconds / static_cast<double>(r.calls)) +
            formatted("%8s", percent(r.seconds, recorded).c_str()) +
            cell(10, 1, 1e-6 * static_cast<double>(r.bytes), r.bytes > 0) +
            cell(8, 1, 1e-9 * static_cast<double>(r.bytes) / r.seconds, r.bytes > 0 && r.seconds > 0) +
            cell(9, 1, 1e-9 * static_cast<double>(r.flops) / r.seconds, r.flops > 0 && r.seconds > 0);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  for (size_t i = 0; i < shown; ++i) line(all[i]);
  if (shown < all.size()) {
    ProfileRow rest{.name = concat("(", all.size() - shown, " more)")};
    for (size_t i = shown; i < all.size(); ++i) {
      rest.calls += all[i].calls, rest.seconds += all[i].seconds,
          rest.backward_seconds += all[i].backward_seconds;
      rest.bytes += all[i].bytes, rest.flops += all[i].flops;
    }
    line(rest);
  }
  return text + totals_of(s);
}

void Profiler::write_trace(const std::filesystem::path& path) const {
  const Snapshot s = session_->snapshot();
  TraceFile file(kName, path);
  std::set<int> ranks;
  for (const ProfileThread& t : s.threads) {
    if (ranks.insert(t.rank).second) file.name_process(t.rank, concat("rank ", t.rank));
    file.name_thread(t.rank, t.system_id, t.name);
  }
  for (const ProfileEvent& e : s.events)
    if (e.end >= 0) write_range(file, s, e);
  for (const MemorySample& m : s.memory)
    file.event(concat("\"ph\":\"C\",\"pid\":", m.rank, ",\"ts\":", TraceFile::microseconds(m.at),
                      ",\"args\":{\"bytes\":", m.live_bytes,
                      "},\"name\":", TraceFile::quoted("live memory " + to_string(m.device))));
  file.close();
}

}  // namespace gradus
