#include "gradus/tests/distributed/data_parallel/train_faults_kills.h"

#include <limits.h>
#include <poll.h>
#include <sys/inotify.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLimit = 120;  // seconds that any job may take
constexpr int kTries = 4;       // kills that may miss what they are meant for

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

bool exists(const std::string& file) {
  std::error_code error;
  return fs::exists(file, error);
}

bool has_ended(const Subprocess& p) {
  siginfo_t info;
  info.si_pid = 0;
  return waitid(P_PID, id_t(p.pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

// The processes of ranks, as far as there are some just now.
std::map<int, int> processes_of_ranks(const Subprocess& p, int nproc) {
  std::map<int, int> pids;
  for (const int pid : p.left()) {
    const std::string variables = '\0' + read_whole(concat("/proc/", pid, "/environ")) + '\0';
    for (int rank = 0; rank < nproc; ++rank)
      if (variables.find(concat('\0', "RANK=", rank, '\0')) != std::string::npos) pids[rank] = pid;
  }
  return pids;
}

// Kills a process, and waits until it can do nothing more. False when it has ended already.
bool kill_now(int pid) {
  const auto ended = [&] {
    const std::string stat = read_whole(concat("/proc/", pid, "/stat"));
    const size_t name_end = stat.rfind(')');
    return name_end == std::string::npos || stat[name_end + 2] == 'Z';
  };
  if (ended() || ::kill(pid, SIGKILL) != 0) return false;
  for (int i = 0; i < 1000 && !ended(); ++i) usleep(100);
  return true;
}

}  // namespace

double uniform(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

int one_of(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

Watch::Watch(std::string folder, const std::string& name, std::string log, const Epochs& epochs)
    : folder_(std::move(folder)),
      file_(name + ".ckpt"),
      log_(std::move(log)),
      epochs_(epochs),
      fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      read_(log_size()) {
  inotify_add_watch(fd_, folder_.c_str(), IN_OPEN | IN_CREATE | IN_MOVED_TO);
}

Watch::~Watch() { close(fd_); }

void Watch::look() {
  pollfd p{fd_, POLLIN, 0};
  poll(&p, 1, 1);
  alignas(inotify_event) char buffer[16 * (sizeof(inotify_event) + NAME_MAX + 1)];
  for (ssize_t n; (n = read(fd_, buffer, sizeof buffer)) > 0;)
    for (ssize_t at = 0; at < n;) {
      const auto* e = reinterpret_cast<const inotify_event*>(buffer + at);
      note(e->mask, e->len ? e->name : "");
      at += ssize_t(sizeof *e) + e->len;
    }
  if (log_size() > read_) read_log();
}

void Watch::note(uint32_t mask, const std::string& name) {
  if (name == file_ + ".tmp" && (mask & IN_OPEN)) ++begun, begun_at_ = Clock::now();
  if (name == file_ + ".previous.tmp" && (mask & IN_CREATE)) ++replacing;
  if (name != file_ || !(mask & IN_MOVED_TO)) return;
  ++done;
  save_seconds.push_back(seconds_since(begun_at_));
  if (when_done) when_done();
}

void Watch::read_log() {
  const std::string news = read_whole(log_).substr(read_);
  const size_t whole = news.rfind('\n') + 1;  // 0: no line
  read_ += whole;
  std::istringstream lines(news.substr(0, whole));
  for (std::string text; std::getline(lines, text);) {
    const LogLine line = read_line(text, epochs_);
    if (line.begin) {
      ++runs;
      step.reset();
    } else {
      if (step) step_seconds.push_back(seconds_since(step_at_));
      step = line.at;
      step_at_ = Clock::now();
    }
  }
}

bool Watch::is_writing() const { return exists(folder_ + '/' + file_ + ".tmp"); }
bool Watch::is_replacing() const { return exists(folder_ + '/' + file_ + ".previous.tmp"); }

size_t Watch::log_size() const {
  std::error_code error;
  const auto size = fs::file_size(log_, error);
  return error ? 0 : size_t(size);
}

Attended attend(Subprocess& job, int nproc, Watch& watch, const std::vector<Kill>& kills) {
  const Clock::time_point begin = Clock::now();
  Attended result;
  auto next = kills.begin();
  int count = 0;                 // of events before the next kill's turn
  bool reached = false;          // its event has come
  Clock::time_point at = begin;  // when that was
  const auto take_turn = [&] {
    reached = next == kills.end() || (!next->event && !next->step);
    at = Clock::now();
    if (!reached && next->event) count = watch.*(next->event);
    watch.step.reset();  // of the run before
  };
  take_turn();
  int misses = 0;
  std::map<int, int> pids;
  while (!has_ended(job)) {
    if (seconds_since(begin) > kLimit) {
      job.kill(SIGKILL);
      job.wait();
      result.wrong.push_back(concat("it did not end within ", kLimit, " s"));
      return result;
    }
    const int runs = watch.runs;
    watch.look();
    if (next == kills.end()) continue;
    if (watch.runs > runs)
      pids = processes_of_ranks(job, nproc);  // now, so that a kill comes at once when it is due
    if (!reached && (next->step ? watch.step && *watch.step >= *next->step
                                : watch.*(next->event) >= count + (misses ? 1 : next->count))) {
      reached = true;
      at = Clock::now();
    }
    if (!reached || seconds_since(at) < next->delay) continue;
    if (!next->event && !next->step) pids = processes_of_ranks(job, nproc);
    if (!kill_now(pids[next->rank])) {  // between two attempts: the next one's
      pids = processes_of_ranks(job, nproc);
      continue;
    }
    const Moment& m = result.kills.emplace_back(watch.is_writing(), watch.is_replacing(), watch.log_size());
    const bool missed = next->hits && !(m.*(next->hits));
    if (!missed || ++misses == kTries) ++next, misses = 0;
    take_turn();
  }
  watch.look();
  job.wait();
  if (!job.left().empty()) result.wrong.push_back(concat(job.left().size(), " processes are left"));
  return result;
}

}  // namespace gradus::dist
