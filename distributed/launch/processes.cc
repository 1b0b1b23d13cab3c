// Linux processes of a launcher: start_process() is fork and exec, with the exec error returned through a pipe that a
// successful exec closes. A job's processes are found by scanning /proc: by process group, by an id in their
// environment, as adopted children (PR_SET_CHILD_SUBREAPER), and as descendants of any of these.
#include "gradus/distributed/launch/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

// Returns a null-terminated argv or envp that refers to the strings.
std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the child between fork and exec, and so does only what is safe while other threads of the parent
// hold locks. Returns only on an error, with errno.
void become(const ProcessOptions& options, char* const* argv, char* const* env, pid_t parent) {
  if (options.start_new_session) {
    setsid();
  } else {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent ended before PR_SET_PDEATHSIG was set
  }
  if (options.guard >= 0) {
    char message[1 + sizeof(pid_t)] = {kStarted};
    const pid_t pid = getpid();
    std::memcpy(message + 1, &pid, sizeof pid);
    send(options.guard, message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (options.numa) bind(*options.numa);
  // exec resets handlers to the default. Ignored signals stay ignored (nohup), except these two.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  if (options.in >= 0 && dup2(options.in, 0) < 0) return;
  if (options.out >= 0 && dup2(options.out, 1) < 0) return;
  if (options.err >= 0 && dup2(options.err, 2) < 0) return;
  for (const int fd : options.inherit) fcntl(fd, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(options.path.c_str(), argv, env);  // runs a text file without #! by the shell
}

// Fields of /proc/PID/stat. `state` is 0 if there is no such process; `start` is in clock ticks since boot.
struct Stat {
  char state = 0;
  pid_t parent = 0, group = 0;
  uint64_t start = 0;

  bool lives() const { return state != 0 && state != 'Z' && state != 'X'; }
};

// Reads "pid (name) state ppid pgrp ...". The name may contain any characters. The start time is field 22.
Stat read_stat(pid_t pid) {
  const std::string text = read_file(concat("/proc/", pid, "/stat"), 4096);
  Stat stat;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return stat;
  if (std::sscanf(text.c_str() + name_end + 1,
                  " %c %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                  &stat.state, &stat.parent, &stat.group, &stat.start) != 4)
    return {};
  return stat;
}

}  // namespace

pid_t start_process(const char* op, const ProcessOptions& options) {
  const std::vector<char*> argv = pointers(options.argv), env = pointers(options.env);
  int failed[2];  // closed by a successful exec; else errno comes through it
  if (pipe2(failed, O_CLOEXEC) < 0) throw ValueError(op, "cannot make a pipe: ", errno_text());
  // Blocks signals: no handler of this process may run in the child before exec.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(options, argv.data(), env.data(), parent);
    const int error = errno;
    (void)!write(failed[1], &error, sizeof error);
    _exit(127);
  }
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(failed[1]);
  int error = 0;
  ssize_t n = 0;
  if (pid > 0)
    while ((n = read(failed[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
  close(failed[0]);
  if (pid < 0) throw ValueError(op, "cannot start a process: ", errno_text(fork_error));
  if (n == sizeof error) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw ValueError(op, "cannot run '", options.path, "': ", errno_text(error));
  }
  return pid;
}

std::string find_program(const char* op, const std::string& name) {
  if (name.empty()) throw ValueError(op, "the program's name is empty");
  const auto is_file = [](const std::string& path) {
    struct stat file;
    return stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode);
  };
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), F_OK) != 0) throw ValueError(op, "cannot run '", name, "': ", errno_text());
    if (!is_file(name)) throw ValueError(op, "cannot run '", name, "': it is no file");
    if (access(name.c_str(), X_OK) != 0)
      throw ValueError(op, "cannot run '", name, "': it is not executable (chmod +x ", name, ")");
    return name;
  }
  const char* path = std::getenv("PATH");
  std::string_view left = path ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t colon = left.find(':');
    const std::string folder(left.substr(0, colon));
    const std::string file = folder.empty() ? name : folder + '/' + name;
    if (is_file(file) && access(file.c_str(), X_OK) == 0) return file;
    if (colon == std::string_view::npos) break;
    left.remove_prefix(colon + 1);
  }
  const bool in_folder = is_file(name);
  throw ValueError(op, "there is no program '", name, "' in PATH",
                   in_folder ? concat("; the one in this folder is ./", name) : "");
}

namespace {

using Stats = std::map<pid_t, Stat>;

Stats all_stats() {
  Stats all;
  std::error_code error;
  for (std::filesystem::directory_iterator proc("/proc", error), end; !error && proc != end;
       proc.increment(error)) {
    const pid_t pid = std::atoi(proc->path().filename().c_str());  // 0: no process
    if (pid <= 0) continue;
    if (const Stat stat = read_stat(pid); stat.state != 0) all.emplace(pid, stat);
  }
  return all;
}

// Returns whether the subreaper has inherited the orphan `pid`. `subreaper_group`: its process group.
bool is_adopted(const JobProcesses& job, pid_t pid, const Stat& stat, pid_t subreaper_group) {
  return job.subreaper && stat.parent == job.subreaper && stat.group != subreaper_group &&
         std::ranges::find(job.unrelated, pid) == job.unrelated.end();
}

// Adds all living descendants of `found`, except those below the processes in `except`.
void add_descendants(const Stats& all, const std::set<pid_t>& except, std::set<pid_t>& found) {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const auto& [pid, stat] : all)
    if (stat.lives()) children[stat.parent].push_back(pid);
  for (std::vector<pid_t> left(found.begin(), found.end()); !left.empty();) {
    const pid_t pid = left.back();
    left.pop_back();
    for (const pid_t child : children[pid])
      if (!except.count(child) && found.insert(child).second) left.push_back(child);
  }
}

}  // namespace

SubreaperScope::SubreaperScope() {
  prctl(PR_GET_CHILD_SUBREAPER, &previous_subreaper_);
  std::set<pid_t> own = {getpid()};
  add_descendants(all_stats(), {}, own);
  unrelated_.assign(own.begin(), own.end());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

SubreaperScope::~SubreaperScope() { prctl(PR_SET_CHILD_SUBREAPER, previous_subreaper_); }

std::vector<pid_t> find_processes(const JobProcesses& job) {
  const std::set<pid_t> groups(job.groups.begin(), job.groups.end());
  const auto was_adopted = [&](pid_t pid, const Stat& stat) {
    return std::ranges::any_of(job.adopted,
                               [&](const Process& p) { return p.pid == pid && p.start == stat.start; });
  };
  std::set<pid_t> found, others = {getpid()};  // others: this process and guards, never part of a job
  const Stats all = all_stats();
  const pid_t group = getpgid(job.subreaper);
  for (const auto& [pid, stat] : all) {
    if (pid == getpid() || !stat.lives()) continue;
    const std::string environment = read_file(concat("/proc/", pid, "/environ"), 4 << 20);
    if (environment.find("GRADUS_JOB_GUARD=") != std::string::npos)
      others.insert(pid);
    else if (groups.count(stat.group) || (!job.id.empty() && environment.find(job.id) != std::string::npos) ||
             is_adopted(job, pid, stat, group) || was_adopted(pid, stat))
      found.insert(pid);
  }
  add_descendants(all, others, found);
  return {found.begin(), found.end()};
}

std::vector<pid_t> kill_processes(const JobProcesses& job, Milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<pid_t> left;
  for (Milliseconds pause{1};; pause = std::min(2 * pause, Milliseconds(50))) {
    left = find_processes(job);
    for (const pid_t pid : left) kill(pid, SIGKILL);
    if (left.empty() || std::chrono::steady_clock::now() >= end) return left;
    usleep(useconds_t(pause.count()) * 1000);
  }
}

std::vector<Process> adopted_processes(const JobProcesses& job) {
  std::vector<Process> adopted;
  const pid_t group = getpgid(job.subreaper);
  for (const auto& [pid, stat] : all_stats())
    if (is_adopted(job, pid, stat, group)) adopted.push_back({pid, stat.start});
  return adopted;
}

void reap_adopted(const JobProcesses& job, const std::vector<pid_t>& except) {
  for (const Process& p : adopted_processes(job))
    if (std::ranges::find(except, p.pid) == except.end() && process_state(p.pid) == 'Z')
      waitpid(p.pid, nullptr, WNOHANG);
}

char process_state(pid_t pid) { return read_stat(pid).state; }

int gpu_count() {
  int present = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    present += name.size() > 6 && name.starts_with("nvidia") &&
               std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return present;
  const std::string list = visible;
  if (list.empty() || list[0] == '-') return 0;
  return std::min<int>(present, 1 + int(std::count(list.begin(), list.end(), ',')));
}

}  // namespace gradus::dist::internal
