// The launcher's supervisor of this machine's ranks, as torchrun's agent: spawns one process per rank with
// the environment of torchrun, multiplexes the ranks' output, and polls for exits (pidfd), signals to the
// launcher, failures of other nodes, and stragglers. After a failure or a signal the ranks get some time,
// then SIGTERM, then SIGKILL. At the end no process of the job is left. NodeRendezvous decides with the other
// nodes about restarts. Everything here runs on one thread; a job is one call of supervise().
#include "gradus/distributed/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/launch/internal/guard.h"
#include "gradus/distributed/launch/internal/interrupts.h"
#include "gradus/distributed/launch/internal/log_multiplexer.h"
#include "gradus/distributed/launch/internal/symbols.h"
#include "gradus/distributed/launch/processes.h"
#include "gradus/tensor/runtime/parallel.h"

extern char** environ;

namespace gradus::dist::internal {
namespace {

using Clock = std::chrono::steady_clock;

// How long the other ranks may take after a failure to end with errors of their own.
constexpr Milliseconds kOwnErrors{1'200};
// How long processes may take to disappear after SIGKILL.
constexpr Milliseconds kKillLimit{2'000};
constexpr Milliseconds kReap{5'000};       // how often to reap orphans that have ended
constexpr size_t kMaxErrorFile = 1 << 20;  // bytes
constexpr size_t kLastLines = 15;          // of stderr, for the failure report

// Thrown for a signal to the launcher: ends its waits for other nodes, and the loop over attempts.
struct Interrupted {
  int signal;
};

// Opens descriptors 0 to 2 where they are closed, so that no other file gets their numbers.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
}

// Raises the limit of open files if needed. Each rank takes some descriptors of the launcher; the usual limit
// is enough for a few hundred ranks.
void allow_files(int ranks) {
  const rlim_t needed = 200 + 8 * rlim_t(ranks);
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// For its lifetime, keeps the exit codes of children, even if this process ignored SIGCHLD before.
class KeepExitCodes {
 public:
  KeepExitCodes() {
    sigaction(SIGCHLD, nullptr, &before_);
    changed_ = before_.sa_handler == SIG_IGN || (before_.sa_flags & SA_NOCLDWAIT);
    if (changed_) signal(SIGCHLD, SIG_DFL);
  }
  ~KeepExitCodes() {
    if (changed_) sigaction(SIGCHLD, &before_, nullptr);
  }

 private:
  struct sigaction before_;
  bool changed_;
};

// Makes an anonymous file in memory. Ranks write to it through an inherited descriptor, or through its path
// in /proc (path_of).
FileDescriptor memory_file(const char* op, const char* name) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC));
  if (!file) throw ValueError(op, "cannot make a file in memory: ", errno_text());
  return file;
}
std::string path_of(const FileDescriptor& file) { return concat("/proc/", getpid(), "/fd/", file.fd()); }

// Returns the prefix of a rank's console lines: torchrun's template (an environment variable) with
// ${role_name}, ${local_rank} and ${rank} replaced.
std::string line_prefix(const std::string& role, int local_rank, int rank) {
  const char* set = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  std::string prefix = set && *set ? set : "[${role_name}${local_rank}]:";
  const std::pair<std::string, std::string> values[] = {{"${role_name}", role},
                                                        {"${local_rank}", std::to_string(local_rank)},
                                                        {"${rank}", std::to_string(rank)}};
  for (const auto& [name, value] : values)
    for (size_t at = 0; (at = prefix.find(name, at)) != std::string::npos; at += value.size())
      prefix.replace(at, name.size(), value);
  return prefix;
}

// One attempt (0 for the first, then one per restart): the ranks of this machine, from their start until the
// last has exited and been reaped. `id`: the text in the environment that marks the job's processes; `logs`:
// the log folder, "" for none. The references must outlive the attempt.
class Attempt {
 public:
  Attempt(const SupervisorOptions& spec, const std::string& id, const SubreaperScope& subreaper,
          NodeRendezvous& rendezvous, Guard& guard, Interrupts& interrupts, int number,
          const std::string& logs)
      : spec_(spec),
        id_(id),
        subreaper_(subreaper),
        rendezvous_(rendezvous),
        guard_(guard),
        interrupts_(interrupts),
        number_(number),
        logs_(logs),
        output_(spec.op) {}

  ~Attempt() { end_all(); }

  void run(Outcome& outcome) {
    start();
    if (spec_.on_start) spec_.on_start(rank_pids());
    watch();
    end_all();
    output_.finish(Milliseconds(1'000));
    collect(outcome);
  }

 private:
  struct Rank {
    RankExit end;
    FileDescriptor watch;          // pidfd: readable when the rank has ended
    FileDescriptor error, result;  // files in memory
    std::string error_file;        // `error`, or in the folder of logs
    bool running = true;
  };

  // ---- start ----

  void start() {
    const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (int i = 0; i < spec_.nproc; ++i) {
      Rank rank;
      rank.end.local_rank = i;
      rank.end.rank = rendezvous_.placement().first_rank + i;
      std::string folder;
      if (logs_.empty()) {
        rank.error = memory_file(spec_.op, "error.json");
        rank.error_file = path_of(rank.error);
      } else {
        folder = concat(logs_, "/attempt_", number_, '/', i);
        std::error_code error;
        std::filesystem::create_directories(folder, error);
        if (error) throw FileError(spec_.op, folder, ": ", error.message());
        rank.error_file = rank.end.error_file = folder + "/error.json";
      }
      if (spec_.results) rank.result = memory_file(spec_.op, "result");
      ProcessOptions options{
          .path = spec_.path, .argv = spec_.argv, .env = environment(rank), .inherit = spec_.inherit};
      if (spec_.pass_local_rank) options.argv.insert(options.argv.begin() + 1, concat("--local-rank=", i));
      if (rank.result) options.inherit.push_back(rank.result.fd());
      if (isatty(0)) options.in = null.fd();  // background processes may not read a terminal
      const FileDescriptor out = stream(rank.end, kStdout, folder), err = stream(rank.end, kStderr, folder);
      if (spec_.numa_binding) options.numa = numa_binding(*spec_.numa_binding, i, spec_.nproc);
      options.guard = guard_.socket();
      options.out = out.fd();
      options.err = err.fd();
      rank.end.pid = start_process(spec_.op, options);
      rank.watch = FileDescriptor(int(syscall(SYS_pidfd_open, rank.end.pid, 0)));
      ranks_.push_back(std::move(rank));
    }
  }

  // Returns the descriptor for a rank's stdout or stderr (`which`): the write end of a pipe that `output_`
  // reads. An empty descriptor stands for the launcher's own stream.
  FileDescriptor stream(const RankExit& rank, int which, const std::string& folder) {
    const auto has = [&](const std::vector<int>& streams) {
      return !streams.empty() && (streams[size_t(rank.local_rank)] & which);
    };
    const bool tee = has(spec_.tee), redirect = has(spec_.redirects) && !tee;
    const bool shown = spec_.shown.empty() || spec_.shown[size_t(rank.local_rank)];
    StreamOptions options;
    if ((tee || redirect) && !folder.empty())
      options.file = folder + (which == kStdout ? "/stdout.log" : "/stderr.log");
    if (shown && !redirect) options.console = which;
    if (tee) options.prefix = line_prefix(spec_.role, rank.local_rank, rank.rank);
    // stderr always passes through the launcher, which keeps its last lines. stdout stays a
    // terminal if it is one.
    if (which == kStdout && !tee && !redirect && shown) return {};
    return FileDescriptor(output_.add(rank.rank, which == kStderr, options));
  }

  // Returns the whole environment of a rank as NAME=value, each name once: the variables set here, those of
  // spec_.variables with other names, and the launcher's variables with other names.
  std::vector<std::string> environment(const Rank& rank) const {
    const NodePlacement& placement = rendezvous_.placement();
    const auto text = [](const auto& value) { return concat(value); };
    const std::string size = text(placement.world_size), number = text(rank.end.rank);
    std::map<std::string, std::string> own = {
        {"RANK", number},
        {"LOCAL_RANK", text(rank.end.local_rank)},
        {"GROUP_RANK", text(placement.node)},
        {"ROLE_RANK", number},
        {"ROLE_NAME", spec_.role},
        {"WORLD_SIZE", size},
        {"LOCAL_WORLD_SIZE", text(spec_.nproc)},
        {"GROUP_WORLD_SIZE", text(placement.nodes)},
        {"ROLE_WORLD_SIZE", size},
        {"MASTER_ADDR", placement.master_addr},
        {"MASTER_PORT", text(placement.master_port)},
        {"TORCHELASTIC_RESTART_COUNT", text(number_)},
        {"TORCHELASTIC_MAX_RESTARTS", text(placement.max_restarts)},
        {"TORCHELASTIC_RUN_ID", spec_.run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},  // no store of PyTorch listens at MASTER_PORT
        {"TORCHELASTIC_ERROR_FILE", rank.error_file},
        {"GRADUS_ERROR_FILE", rank.error_file},
        {"GRADUS_STORE", placement.store},
        {"GRADUS_TOKEN", placement.token},
        {"GRADUS_JOB_ID", spec_.rendezvous.job_id},
        {"GRADUS_LAUNCHER_ID", id_},
    };
    if (!std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING")) own["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
    if (spec_.threads > 0 || !std::getenv("OMP_NUM_THREADS"))
      own["OMP_NUM_THREADS"] =
          text(spec_.threads > 0 ? spec_.threads : std::max(1, usable_cores() / spec_.nproc));
    if (rank.result) own["GRADUS_RESULT_FD"] = text(rank.result.fd());
    // This launcher may run in a rank of another launcher. Then its ranks belong to both.
    if (const char* outer = std::getenv("GRADUS_LAUNCHER_ID"))
      own["GRADUS_LAUNCHER_ID"] = concat(outer, ',', id_);

    for (const std::string& v : spec_.variables) {
      const size_t equals = v.find('=');
      own.emplace(v.substr(0, equals), v.substr(equals + 1));
    }

    std::vector<std::string> all;
    for (const auto& [name, value] : own) all.push_back(name + '=' + value);
    for (char** variable = environ; *variable; ++variable) {
      const std::string name(*variable, std::strcspn(*variable, "="));
      const bool stale = name == "GRADUS_LAUNCH" || name == "GRADUS_RESULT_FD" || name == "GRADUS_JOB_GUARD";
      if (!own.count(name) && !stale) all.push_back(*variable);
    }
    return all;
  }

  // ---- watch ----

  // Polls until all ranks have ended or, after SIGKILL and kKillLimit, are given up.
  void watch() {
    for (;;) {
      bool running = false, has_watch = true;
      std::vector<pollfd> fds = {{interrupts_.fd(), POLLIN, 0}};
      for (const Rank& r : ranks_)
        if (r.running) {
          running = true;
          has_watch = has_watch && r.watch;
          if (r.watch) fds.push_back({r.watch.fd(), POLLIN, 0});
        }
      if (!running) return;
      const Milliseconds limit = std::min(spec_.monitor_interval, Milliseconds(has_watch ? 50 : 10));
      poll(fds.data(), fds.size(), int(limit.count()));
      for (Rank& r : ranks_)
        if (r.running) check_exit(r);
      handle_signals();
      check_failure();
      check_stragglers();
      if (Clock::now() >= next_step_) step();
      if (Clock::now() >= next_reap_) {
        reap();
        next_reap_ = Clock::now() + kReap;
      }
    }
  }

  // If the rank has exited, records how. The rank stays a zombie until all ranks have exited (WNOWAIT), so
  // that its process group's number is not reused.
  void check_exit(Rank& rank) {
    siginfo_t info;
    info.si_pid = 0;
    const int result = waitid(P_PID, id_t(rank.end.pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (result == 0 && info.si_pid == 0) return;
    rank.running = false;
    RankExit& end = rank.end;
    end.time = std::chrono::system_clock::now();
    end.ended_by_launcher = terminating_;
    if (result == 0 && info.si_code == CLD_EXITED) end.exit_code = info.si_status;
    if (result == 0 && info.si_code != CLD_EXITED) end.signal = info.si_status;
    if (const std::optional<ErrorFile> error = parse_error_file(read_file(rank.error_file, kMaxErrorFile))) {
      end.message = error->message;
      end.rank_at_fault = error->rank_at_fault;
      end.traceback = error->traceback;
    }
    if (end.ended_by_launcher || failed_) return;
    if (end.ok()) {
      if (!first_end_) first_end_.emplace(end.rank, Deadline::after(spec_.rendezvous.exit_timeout));
      return rendezvous_.rank_exited(end.rank);
    }
    failure_ = {.kind = end.signal ? Failure::Kind::kDied : Failure::Kind::kFailed,
                .rank = end.rank,
                .text = end.describe()};
    rendezvous_.report(failure_);
    fail();
  }

  void handle_signals() {
    while (const int signal = interrupts_.next_signal()) {
      if (!signal_) {
        signal_ = signal;
        send(signal);
        next_step_ = Clock::now() + spec_.shutdown_timeout;
        stage_ = Stage::kTerminated;
      } else if (stage_ != Stage::kKilled) {
        next_step_ = Clock::now();  // a second signal: the next stage begins at once
        stage_ = Stage::kTerminated;
      }
    }
  }

  // Fails if a rank of another node, or a rank's own report to the store, has failed the attempt.
  void check_failure() {
    if (!failed_ && !signal_ && rendezvous_.failed()) fail();
  }

  // Ends ranks that go on for too long after another rank has returned. No rank waits for a rank that hangs
  // after its last collective, so no rank would report it.
  void check_stragglers() {
    const Milliseconds limit = spec_.rendezvous.exit_timeout;
    if (!first_end_ || failed_ || signal_ || limit == Milliseconds(0)) return;
    const auto& [first, deadline] = *first_end_;
    if (!deadline.passed()) return;
    const auto straggler = std::ranges::find(ranks_, true, &Rank::running);
    if (straggler == ranks_.end()) return;
    failure_ = {.kind = Failure::Kind::kTimeout,
                .rank = straggler->end.rank,
                .text = concat("rank ", straggler->end.rank, " has not ended within ", limit.count(),
                               " ms after rank ", first, " had")};
    rendezvous_.report(failure_);
    fail();
  }

  // Gives the running ranks kOwnErrors to end by themselves, before step() ends them.
  void fail() {
    failed_ = true;
    if (stage_ != Stage::kRunning) return;
    stage_ = Stage::kFailed;
    next_step_ = Clock::now() + kOwnErrors;
    for (Rank& r : ranks_)
      if (r.running) r.end.was_stopped = process_state(r.end.pid) == 'T';
  }

  // Goes to the next stage when the time of a stage is over.
  void step() {
    if (stage_ == Stage::kFailed) {
      send(SIGTERM);
      stage_ = Stage::kTerminated;
      next_step_ = Clock::now() + spec_.shutdown_timeout;
    } else if (stage_ == Stage::kTerminated) {
      send(SIGKILL);
      stage_ = Stage::kKilled;
      next_step_ = Clock::now() + kKillLimit;
    } else if (stage_ == Stage::kKilled) {
      for (Rank& r : ranks_) r.running = false;  // ranks that survive SIGKILL are stuck in the kernel
    }
  }

  // Sends a signal to the process groups of the ranks that still run.
  void send(int signal) {
    terminating_ = true;
    for (const Rank& r : ranks_)
      if (r.running) {
        kill(-r.end.pid, signal);
        if (signal != SIGKILL) kill(-r.end.pid, SIGCONT);  // a stopped process would not notice the signal
      }
  }

  // ---- end ----

  std::vector<pid_t> rank_pids() const {
    std::vector<pid_t> pids;
    for (const Rank& r : ranks_) pids.push_back(r.end.pid);
    return pids;
  }

  JobProcesses job_processes() const {
    return {.id = id_, .groups = rank_pids(), .subreaper = getpid(), .unrelated = subreaper_.unrelated()};
  }

  // Reaps the orphans adopted from ranks that have ended. Ranks and the guard are not reaped.
  void reap() const {
    std::vector<pid_t> own_processes = rank_pids();
    own_processes.push_back(guard_.pid());
    reap_adopted(job_processes(), own_processes);
  }

  // Kills the ranks and all processes that they have started, and reaps the ranks. Later calls do nothing.
  void end_all() {
    if (ended_) return;
    ended_ = true;
    for (const Rank& r : ranks_) kill(-r.end.pid, SIGKILL);
    const std::vector<pid_t> left = kill_processes(job_processes(), kKillLimit);
    for (const pid_t pid : left)
      write_console(2, concat(spec_.op, ": process ", pid, " does not end\n"), Milliseconds(100));
    guard_.clear_processes();
    reap();
    for (const Rank& r : ranks_) {
      const bool gone = std::find(left.begin(), left.end(), r.end.pid) == left.end();
      while (waitpid(r.end.pid, nullptr, gone ? 0 : WNOHANG) < 0 && errno == EINTR) {
      }
    }
  }

  // Writes the ends, results and failure of this attempt to `outcome`.
  void collect(Outcome& outcome) {
    outcome.exits.clear();
    outcome.results.clear();
    outcome.signal = signal_;
    outcome.ok = !signal_;
    for (Rank& r : ranks_) {
      r.end.traceback = with_symbols(r.end.traceback);
      r.end.last_lines = output_.last_lines(r.end.rank, kLastLines);
      if (!logs_.empty() && access(r.end.error_file.c_str(), F_OK) != 0) r.end.error_file.clear();
      outcome.ok = outcome.ok && r.end.ok();
      if (r.result) outcome.results.push_back(read_file(path_of(r.result)));
      outcome.exits.push_back(r.end);
    }
    outcome.failure = failure_;
    rendezvous_.failed(&outcome.failure);
    if (outcome.lost_output.empty()) outcome.lost_output = output_.first_loss();
  }

  // kFailed: the ranks may end by themselves. kTerminated: they were asked to end. kKilled: they were killed.
  enum class Stage { kRunning, kFailed, kTerminated, kKilled };

  const SupervisorOptions& spec_;
  const std::string& id_;
  const SubreaperScope& subreaper_;
  NodeRendezvous& rendezvous_;
  Guard& guard_;
  Interrupts& interrupts_;
  const int number_;
  const std::string& logs_;
  LogMultiplexer output_;
  std::vector<Rank> ranks_;
  Stage stage_ = Stage::kRunning;
  Clock::time_point next_step_ = Clock::time_point::max(), next_reap_ = Clock::now() + kReap;
  // The rank that first exited with code 0, and the deadline for the others to exit.
  std::optional<std::pair<int, Deadline>> first_end_;
  // terminating_: the launcher has sent the ranks a signal. ended_: end_all has run.
  bool failed_ = false, terminating_ = false, ended_ = false;
  int signal_ = 0;   // the first signal to the launcher; 0: none
  Failure failure_;  // the first failure seen here
};

// Makes the folder of a job's logs. Returns its path.
std::string make_logs(const SupervisorOptions& spec, const std::string& id) {
  if (spec.log_dir.empty()) return "";
  std::string name = spec.run_id;
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string folder = concat(spec.log_dir, '/', name, '_', id.substr(0, 8));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(spec.op, folder, ": ", error.message());
  return folder;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? concat("SIG", name) : concat("signal ", signal);
}

std::string RankExit::describe() const {
  if (signal) return concat("rank ", rank, " was killed by signal ", signal, " (", signal_name(signal), ')');
  if (exit_code < 0) return concat("rank ", rank, " ended, and something else took its exit code");
  if (exit_code > 0 && !message.empty()) return concat("rank ", rank, " failed: ", message);
  return concat("rank ", rank, " exited with code ", exit_code);
}

Outcome supervise(const SupervisorOptions& options) {
  SupervisorOptions spec = options;
  open_standard_streams();
  allow_files(spec.nproc);
  const KeepExitCodes keep;
  Interrupts interrupts(spec.signals);
  const std::function<void()> check = [&] {
    if (const int signal = interrupts.next_signal()) throw Interrupted{signal};
  };
  const std::string random = random_hex(spec.op, 32), id = "gradus-" + random;
  if (!spec.rendezvous.multi_node()) {
    spec.rendezvous.job_id = id;
    if (spec.rendezvous.token.empty()) spec.rendezvous.token = random_hex(spec.op, 32);
  }
  Outcome outcome;
  std::optional<NodeRendezvous> rendezvous_or_none;
  try {
    NodeRendezvous& rendezvous = rendezvous_or_none.emplace(spec.rendezvous, spec.nproc, check);
    const SubreaperScope subreaper;
    Guard guard(id, subreaper.unrelated());
    outcome.log_dir = make_logs(spec, random);
    for (int attempt = 0;; ++attempt) {
      outcome.attempts = attempt + 1;
      rendezvous.begin_attempt(attempt);
      Attempt(spec, id, subreaper, rendezvous, guard, interrupts, attempt, outcome.log_dir).run(outcome);
      if (outcome.signal) throw Interrupted{outcome.signal};
      const Verdict verdict = rendezvous.end_attempt(outcome.ok, &outcome.results);
      outcome.ok = verdict == Verdict::kDone;
      if (!outcome.ok) rendezvous.failed(&outcome.failure);
      if (verdict != Verdict::kRestart) return outcome;
      write_console(2,
                    concat(spec.op, ": ", outcome.failure.text, "; all ranks start again (restart ",
                           attempt + 1, " of ", rendezvous.placement().max_restarts, ")\n"),
                    Milliseconds(1'000));
    }
  } catch (const Interrupted& interrupted) {
    outcome.ok = false;
    outcome.signal = interrupted.signal;
    if (rendezvous_or_none)
      rendezvous_or_none->report(
          {.kind = Failure::Kind::kFailed,
           .text = concat("the launcher of node ", rendezvous_or_none->placement().node, " was ended by ",
                          signal_name(interrupted.signal))});
    return outcome;
  }
}

}  // namespace gradus::dist::internal
