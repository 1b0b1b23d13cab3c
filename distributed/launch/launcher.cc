// launcher(), launch() and launch_program(): run a function on every rank of a job. With backend gloo each
// rank is a process that executes this program again, from main() on. GRADUS_LAUNCH has the number of the
// launcher call that started the process: earlier calls return their recorded outcomes, and that call runs
// its function as a rank. So main() must make the same calls of launcher in the same order in every process.
// With backend local, ranks are threads. In a process of torchrun or a scheduler, the function runs in place.
#include "gradus/distributed/launch/launcher.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <tuple>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/base/split.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/launch/internal/launch_call.h"
#include "gradus/distributed/launch/internal/log_multiplexer.h"
#include "gradus/distributed/launch/processes.h"
#include "gradus/distributed/launch/supervisor.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist {
namespace {

using internal::Ended;
using internal::FileDescriptor;
using internal::RendezvousOptions;
using internal::SupervisorOptions;
using internal::World;
using Body = std::function<std::string()>;

constexpr const char* kOp = "launcher";
constexpr int kMaxRanks = 4096;
// The last byte of a complete result in its file. Without it, the rank ended before its function returned.
constexpr char kReturned = '+';

// The ranks whose results a call returns. The process that started the ranks gets the results of all ranks,
// with kOwn and with kAll. In a process that torchrun or a scheduler started, kOwn is the result of this
// rank, and kAll gathers the results of all ranks (collective).
enum class Results { kNone, kOwn, kAll };

// ---- options ----

// Returns the value of an option that has two names, or `unset` if it is set under neither name.
// Errors: ValueError if the two values differ.
template <class T>
T same(const char* name, const T& value, const char* other_name, const T& other, const T& unset) {
  if (value != unset && other != unset && value != other)
    throw ValueError(kOp, name, " is ", value, ", but ", other_name, " is ", other, ": they mean the same");
  return value != unset ? value : other;
}

// Errors: ValueError for a number out of range.
void check_ranges(const LauncherOptions& o) {
  const std::tuple<const char*, int64_t, int64_t, int64_t> ranges[] = {
      {"nproc_per_node", o.nproc_per_node, 0, kMaxRanks},
      {"n_gpus", o.n_gpus, 0, kMaxRanks},
      {"nnodes", o.nnodes, 1, 65536},
      {"node_rank", o.node_rank, 0, o.nnodes - 1},
      {"world_size", o.world_size, 0, 1'000'000},
      {"rank_start", o.rank_start, 0, std::max(0, o.world_size - 1)},
      {"master_port", o.master_port, 0, 65535},
      {"port", o.port, 0, 65535},
      {"max_restarts", o.max_restarts, 0, 1'000'000},
      {"threads_per_rank", o.threads_per_rank, 0, 4096},
      {"timeout", o.timeout.count(), 1, INT64_MAX},
      {"shutdown_timeout", o.shutdown_timeout.count(), 0, INT64_MAX}};
  for (const auto& [name, value, low, high] : ranges)
    if (value < low || value > high)
      throw ValueError(kOp, name, " is ", value, "; expected ", low, " to ", high);
}

// Checks the options, merges those with two names (of PyTorch and of MegEngine), and fills in the defaults.
// Errors: ValueError for options that contradict each other.
SupervisorOptions read_options(const LauncherOptions& o) {
  check_ranges(o);
  if (o.backend != "local") internal::uses_nccl(kOp, o.backend);
  SupervisorOptions spec;
  RendezvousOptions& nodes = spec.rendezvous;
  const std::string unset_address = LauncherOptions().master_addr;
  nodes.host = same<std::string>("master_addr", o.master_addr == unset_address ? "" : o.master_addr,
                                 "master_ip", o.master_ip, "");
  if (nodes.host.empty()) nodes.host = unset_address;
  nodes.port = same("master_port", o.master_port, "port", o.port, 0);
  spec.nproc = same("nproc_per_node", o.nproc_per_node, "n_gpus", o.n_gpus, 0);
  if (!spec.nproc && o.world_size && o.nnodes == 1) {
    if (o.rank_start)
      throw ValueError(kOp, "rank_start is ", o.rank_start,
                       ": say with n_gpus how many ranks this machine has");
    spec.nproc = o.world_size;
  }
  if (!spec.nproc) spec.nproc = std::max(1, internal::gpu_count());
  if (o.nnodes > 1) {
    if (o.world_size && o.world_size != o.nnodes * spec.nproc)
      throw ValueError(kOp, "world_size is ", o.world_size, ", but ", o.nnodes, " nodes with ", spec.nproc,
                       " ranks each have ", o.nnodes * spec.nproc);
    if (o.rank_start && o.rank_start != o.node_rank * spec.nproc)
      throw ValueError(kOp, "rank_start is ", o.rank_start, ", but node ", o.node_rank, " begins with rank ",
                       o.node_rank * spec.nproc);
    nodes.min_nodes = nodes.max_nodes = o.nnodes;
    nodes.node_rank = o.node_rank;
  } else if (o.world_size) {
    if (o.rank_start + spec.nproc > o.world_size)
      throw ValueError(kOp, "world_size is ", o.world_size, ", but this machine has ", spec.nproc,
                       " ranks from rank ", o.rank_start, " on");
    if (spec.nproc < o.world_size) {
      // The rendezvous ends when world_size ranks have joined. Each node has a rank, so world_size also
      // bounds the number of nodes.
      nodes.min_nodes = nodes.max_nodes = o.world_size;
      nodes.world_size = o.world_size;
      nodes.first_rank = o.rank_start;
    }
  }
  if (nodes.multi_node() && o.backend == "local")
    throw ValueError(kOp, "backend is local: its ranks are threads of one process, not of several machines");
  if (nodes.multi_node() && !nodes.port)
    throw ValueError(kOp, "ranks on several machines need a master_port that all of them know");
  if (const char* token = std::getenv("GRADUS_TOKEN")) nodes.token = token;
  nodes.max_restarts = o.max_restarts;
  spec.threads = o.threads_per_rank;
  spec.log_dir = o.log_dir;
  if (!o.log_dir.empty()) spec.tee.assign(size_t(spec.nproc), internal::kStdout | internal::kStderr);
  nodes.exit_timeout = o.timeout;
  spec.shutdown_timeout = o.shutdown_timeout;
  return spec;
}

// ---- in a rank ----

// In a process that a launcher started for a rank: the number `ordinal` (from 0) of the call of launcher that
// runs its function here, the outcomes of the calls before it, the function's arguments as bytes, and the file
// that receives the function's result (no file with Results::kNone).
struct Started {
  int ordinal = 0;
  std::vector<Ended> earlier;
  std::string arguments;
  FileDescriptor result;
};

// Returns null in a process that no call of launcher started. GRADUS_LAUNCH is "ordinal:process id of the
// launcher:descriptor of the file with the earlier outcomes and the arguments". GRADUS_RESULT_FD: that of the
// result file.
Started* started() {
  static const std::unique_ptr<Started> instance = []() -> std::unique_ptr<Started> {
    const char* text = std::getenv("GRADUS_LAUNCH");
    const char* result = std::getenv("GRADUS_RESULT_FD");
    int ordinal = 0, launcher = 0, earlier = -1;
    // Programs that a rank starts inherit the variable too, but the launcher is not their parent.
    if (!text || std::sscanf(text, "%d:%d:%d", &ordinal, &launcher, &earlier) != 3 || launcher != getppid())
      return {};
    auto s = std::make_unique<Started>();
    s->ordinal = ordinal;
    const FileDescriptor file(earlier);
    const std::string bytes = internal::read_file(concat("/proc/self/fd/", earlier));
    WireReader reader(bytes);
    reader.get(s->earlier, s->arguments);
    if (result) {
      s->result = FileDescriptor(std::atoi(result));
      fcntl(s->result.fd(), F_SETFD, FD_CLOEXEC);
    }
    return s;
  }();
  return instance.get();
}

// Reports the exception that ends this rank: in the error file for the launcher, and as a failure to the
// other ranks. Does nothing in a child that the rank has forked.
void report_error(const std::exception_ptr& error) {
  if (const World* world = World::current(); world && !world->membership->is_rank())
    return;  // in a forked child
  write_error_file(error);
  if (World* world = World::current()) world->membership->report(failure_of(world->rank, error));
}

// Writes results to a file in memory. Errors: ValueError if the file cannot take them.
void write_results(const FileDescriptor& file, std::string_view bytes) {
  if (!internal::write_all(file.fd(), bytes))
    throw ValueError(kOp, "cannot keep ", bytes.size(), " bytes of results: ", internal::errno_text());
}

// Runs the function as a rank in a process that a launcher started: joins the process group, writes the
// function's result to `result`, and ends the process with exit code 0, or with 1 after an exception.
[[noreturn]] void run_rank(const LauncherOptions& options, const Body& body, const FileDescriptor& result) {
  const int process = gradus::internal::fork_count();
  int status = 1;
  try {
    init_process_group({.backend = options.backend, .timeout = options.timeout});
    const std::string bytes = body();
    if (process != gradus::internal::fork_count()) std::exit(0);  // a forked child has no result
    if (result) write_results(result, bytes + kReturned);
    // No barrier here: ranks that wait for a message of this rank must be able to see that it has left.
    destroy_process_group();
    status = 0;
  } catch (...) {
    report_error(std::current_exception());
  }
  std::exit(status);
}

// Returns whether gradus-run, torchrun or a scheduler started this process as a rank.
bool is_external_rank() {
  const auto environment = read_environment();
  return environment && (environment->source == "RANK" || environment->world_size > 1);
}

// Runs the function in this process, which gradus-run, torchrun or a scheduler started as a rank. The process
// group stays initialized until the process ends, and later calls use it. Throws what the function throws,
// after a report to the other ranks.
Ended run_in_place(const LauncherOptions& options, const Body& body, Results results) {
  Ended ended;
  try {
    if (!is_initialized()) init_process_group({.backend = options.backend, .timeout = options.timeout});
    const std::string bytes = body();
    ended.results = {bytes};
    if (results == Results::kAll) ended.results = all_gather_object(bytes);
  } catch (...) {
    report_error(std::current_exception());
    throw;
  }
  return ended;
}

// ---- in the launcher ----

void print(const std::string& text) {
  internal::write_console(2, concat(kOp, ": ", text, '\n'), Milliseconds(1'000));
}

// Runs the function on `ranks` threads of this process. A failure gives status 1 and the first failed rank.
Ended run_threads(const LauncherOptions& options, const Body& body, int ranks) {
  Ended ended;
  ended.results.resize(size_t(ranks));
  std::mutex mutex;
  const auto run = [&] {
    const int rank = get_rank();
    try {
      ended.results[size_t(rank)] = body();
    } catch (const std::exception&) {
      std::lock_guard lock(mutex);
      if (ended.rank < 0) {
        ended.rank = rank;
        ended.threw = true;
        ended.text = failure_of(rank, std::current_exception()).text;
      }
      throw;
    }
  };
  try {
    run_ranks(ranks, run, {.timeout = options.timeout});
  } catch (...) {
    ended.status = 1;
    if (ended.rank < 0) ended.text = error_text(std::current_exception());
    ended.results.clear();
  }
  return ended;
}

// An environment variable of this process that set() changes and the destructor restores. Not thread-safe.
class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  void set(int value) { setenv(name_, std::to_string(value).c_str(), 1); }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

// Runs the ranks as threads, and runs all of them again after a failure, up to max_restarts times. As for
// ranks that are processes, TORCHELASTIC_RESTART_COUNT is the number of the attempt (0, 1, ...).
Ended run_threads_with_restarts(const LauncherOptions& options, const Body& body, int ranks) {
  Variable count("TORCHELASTIC_RESTART_COUNT");
  for (int attempt = 0;; ++attempt) {
    count.set(attempt);
    const Ended ended = run_threads(options, body, ranks);
    if (!ended.status) return ended;
    const bool again = attempt < options.max_restarts;
    print(again ? concat(ended.text, "; all ranks start again (restart ", attempt + 1, " of ",
                         options.max_restarts, ')')
                : ended.text);
    if (!again) return ended;
  }
}

// Returns this program's argv.
std::vector<std::string> own_arguments() {
  std::vector<std::string> arguments =
      internal::split(internal::read_file("/proc/self/cmdline"), std::string_view("\0", 1));
  if (arguments.empty())
    throw ValueError(kOp, "cannot read this program's arguments: /proc/self/cmdline is empty");
  return arguments;
}

// Runs the ranks of this machine as processes that execute this program again with the same arguments, and
// waits for the job's end. `earlier` are the outcomes of the earlier calls of launcher, which the processes
// inherit with the function's arguments as a file in memory.
Ended run_processes(SupervisorOptions spec, const std::vector<Ended>& earlier, const std::string& arguments,
                    Results results) {
  WireWriter writer;
  writer.put(earlier, arguments);
  const FileDescriptor file(memfd_create("earlier", MFD_CLOEXEC));
  if (!file) throw ValueError(kOp, "cannot make a file in memory: ", internal::errno_text());
  write_results(file, writer.release());
  spec.path = "/proc/self/exe";
  spec.argv = own_arguments();
  spec.variables = {concat("GRADUS_LAUNCH=", earlier.size(), ':', getpid(), ':', file.fd())};
  spec.inherit = {file.fd()};
  spec.results = results != Results::kNone;
  std::cout.flush();  // earlier output must come before the ranks' output
  std::fflush(stdout);
  internal::Outcome outcome = internal::supervise(spec);
  Ended ended;
  internal::write_console(2, internal::failure_report(kOp, outcome), Milliseconds(1'000));
  if (!outcome.ok) {
    ended.status = outcome.signal ? 128 + outcome.signal : 1;
    ended.rank = outcome.failure.rank;
    ended.text = outcome.signal ? concat("ended by signal ", outcome.signal, " (",
                                         internal::signal_name(outcome.signal), ')')
                                : outcome.failure.text;
    for (const internal::RankExit& exit : outcome.exits)
      if (exit.rank == ended.rank) {
        ended.threw = !exit.message.empty() && !exit.signal;
        ended.pid = exit.pid;
        ended.exit_code = exit.exit_code;
        ended.signal = exit.signal;
      }
    return ended;
  }
  if (!outcome.lost_output.empty()) {
    ended.status = 1;
    ended.text = outcome.lost_output;
    return ended;
  }
  for (size_t rank = 0; rank < outcome.results.size(); ++rank) {
    std::string& result = outcome.results[rank];
    if (result.empty() || result.back() != kReturned) {
      ended.status = 1;
      ended.rank = int(rank);
      ended.text = concat("rank ", rank, " exited with code 0 before its function returned");
      print(ended.text);
      break;
    }
    result.pop_back();
  }
  ended.results = std::move(outcome.results);
  return ended;
}

// Runs one call of launcher in the way that fits this process. Does not return in the process of a rank whose
// function this call runs.
// Errors: StateError if another call is running in this process; ValueError for options.
Ended run(const LauncherOptions& options, const Body& body, Results results,
          const std::string& arguments = {},
          const std::function<void(const std::vector<pid_t>&)>& on_start = {}) {
  static std::mutex mutex;
  static bool busy = false;
  static std::vector<Ended> earlier;
  {
    std::lock_guard lock(mutex);
    if (busy)
      throw StateError(
          kOp,
          "a call of launcher is going on in this process: the function that ranks run cannot launch ranks");
    busy = true;
  }
  struct Done {
    ~Done() {
      std::lock_guard lock(mutex);
      busy = false;
    }
  } done;
  SupervisorOptions spec = read_options(options);
  spec.on_start = on_start;
  Ended ended;
  if (Started* s = started()) {
    if (earlier.size() == size_t(s->ordinal)) run_rank(options, body, s->result);
    ended = s->earlier.at(earlier.size());
  } else if (is_external_rank()) {
    return run_in_place(options, body, results);
  } else if (options.backend == "local") {
    ended = run_threads_with_restarts(options, body, spec.nproc);
  } else {
    ended = run_processes(spec, earlier, arguments, results);
  }
  earlier.push_back(ended);
  return ended;
}

}  // namespace

int launcher(const LauncherOptions& options, const std::function<void()>& body) {
  return internal::launch_status(options, {}, [&](std::string_view) { body(); });
}

bool internal::is_rank_process() { return started() || is_external_rank(); }

Ended internal::launch_with_arguments(const LauncherOptions& options, const std::string& arguments,
                                      const std::function<void(std::string_view)>& f,
                                      const std::function<void(const std::vector<pid_t>&)>& on_start) {
  const Body body = [&] {
    f(started() ? started()->arguments : arguments);
    return std::string();
  };
  return run(options, body, Results::kNone, arguments, on_start);
}

int internal::launch_status(const LauncherOptions& options, const std::string& arguments,
                            const std::function<void(std::string_view)>& f) {
  return launch_with_arguments(options, arguments, f).status;
}

int internal::launch_program(const LauncherOptions& options, const std::function<int()>& body) {
  const Ended ended = run(
      options, [&] { return to_wire(body()); }, Results::kOwn);
  int status = ended.status;
  for (const std::string& bytes : ended.results) status = std::max(status, from_wire<int>(bytes));
  return status;
}

std::vector<std::string> internal::launch_bytes(const LauncherOptions& options, const Body& body) {
  Ended ended = run(options, body, Results::kAll);
  if (ended.status) throw LaunchError("launch", ended.rank, ended.text);
  return std::move(ended.results);
}

}  // namespace gradus::dist
