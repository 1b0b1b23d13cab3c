// Child processes of tests: output, exit code, duration, remaining descendants; temporary folders, ports.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace gradus::dist {

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// A program with pipes for stdout and stderr, in the environment of this process plus `variables`. A variable
// TEST_MARK identifies the program and its descendants. The destructor kills them. 126: execve failed.
class Subprocess {
 public:
  using Variables = std::map<std::string, std::string>;
  using Clock = std::chrono::steady_clock;

  // Without read_stderr, the pipe of stderr is not read.
  explicit Subprocess(std::vector<std::string> argv, const Variables& variables = {}, bool read_stderr = true)
      : read_stderr_(read_stderr) {
    static std::atomic<int> count{0};
    mark_ = "TEST_MARK=" + std::to_string(getpid()) + "-" + std::to_string(count++) + "-end";
    std::vector<std::string> env = {mark_};
    for (const auto& [name, value] : variables) env.push_back(name + "=" + value);
    for (char** v = environ; *v; ++v) {
      const std::string name(*v, std::strcspn(*v, "="));
      const bool job =
          name == "RANK" || name == "WORLD_SIZE" || name == "TEST_MARK" || name == "OMP_NUM_THREADS";
      if (!job && !variables.count(name)) env.push_back(*v);
    }
    std::vector<char*> arguments, environment;
    for (std::string& a : argv) arguments.push_back(a.data());
    for (std::string& e : env) environment.push_back(e.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    (void)!pipe2(out_, O_CLOEXEC);
    (void)!pipe2(err_, O_CLOEXEC);
    begin_ = Clock::now();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out_[1], 1);
      dup2(err_[1], 2);
      execve(arguments[0], arguments.data(), environment.data());
      _exit(126);
    }
    close(out_[1]);
    close(err_[1]);
    out_[1] = err_[1] = -1;
    reader_ = std::thread([this] { read_all(); });
  }
  ~Subprocess() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    for (const int pid : left()) ::kill(pid, SIGKILL);
    close(out_[0]);
    close(err_[0]);
  }
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }

  // Waits for its end. Returns the exit code, or minus the signal.
  int wait() {
    if (ended_) return status_;
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    seconds_ = std::chrono::duration<double>(Clock::now() - begin_).count();
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    ended_ = true;
    stop_ = true;
    reader_.join();
    return status_;
  }
  double seconds() const { return seconds_; }  // from its start to its end
  // After wait().
  const std::string& out() const { return text_[0]; }
  const std::string& err() const { return text_[1]; }

  // Living processes that descend from it.
  std::vector<int> left() const {
    std::vector<int> pids;
    DIR* proc = opendir("/proc");
    while (const dirent* entry = readdir(proc)) {
      const int pid = std::atoi(entry->d_name);
      if (pid <= 0) continue;
      const std::string folder = std::string("/proc/") + entry->d_name;
      if (read_whole(folder + "/environ").find(mark_) == std::string::npos) continue;
      const std::string stat = read_whole(folder + "/stat");
      const size_t name_end = stat.rfind(')');
      if (name_end != std::string::npos && stat[name_end + 2] != 'Z') pids.push_back(pid);
    }
    closedir(proc);
    return pids;
  }
  // Waits until none is left, at most `limit` seconds. Returns the seconds that it waited.
  double until_none_left(double limit) const {
    const auto begin = Clock::now();
    for (;;) {
      const bool none = left().empty();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (none || seconds > limit) return seconds;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  // Reads until all writers have closed the pipes, or 300 ms after the end of the program.
  void read_all() {
    Clock::time_point last{};
    std::vector<pollfd> fds = {{out_[0], POLLIN, 0}, {err_[0], POLLIN, 0}};
    if (!read_stderr_) fds[1].fd = -1;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
      if (stop_ && last == Clock::time_point{}) last = Clock::now();
      if (stop_ && Clock::now() - last > std::chrono::milliseconds(300)) return;
      poll(fds.data(), fds.size(), 20);
      for (int i = 0; i < 2; ++i) {
        if (!fds[size_t(i)].revents) continue;
        char part[65536];
        const ssize_t n = read(fds[size_t(i)].fd, part, sizeof part);
        if (n <= 0)
          fds[size_t(i)].fd = -1;
        else
          text_[i].append(part, size_t(n));
      }
    }
  }

  const bool read_stderr_;
  std::string mark_;
  pid_t pid_ = -1;
  int out_[2], err_[2];
  Clock::time_point begin_;
  std::thread reader_;
  std::string text_[2];
  std::atomic<bool> stop_ = false;
  bool ended_ = false;
  int status_ = 0;
  double seconds_ = 0;
};

// A port of the loopback interface on which a socket listens until release().
class TakenPort {
 public:
  TakenPort() {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(socket_, reinterpret_cast<sockaddr*>(&address), size);
    listen(socket_, 1);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { release(); }
  void release() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  std::string port() const { return std::to_string(port_); }

 private:
  int socket_, port_;
};

// Returns a port of the loopback interface that nobody listens on.
inline std::string unused_port() { return TakenPort().port(); }

// A folder that is gone at the end of its scope.
class TestFolder {
 public:
  TestFolder() {
    const char* base = std::getenv("TEST_TMPDIR");
    path_ = std::string(base ? base : "/tmp") + "/gradus_test_XXXXXX";
    (void)!mkdtemp(path_.data());
  }
  ~TestFolder() { (void)!std::system(("rm -rf '" + path_ + "'").c_str()); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Waits until the file exists and is not empty. Returns false at the timeout.
inline bool wait_for_file(const std::string& path, double seconds = 10) {
  for (int i = 0; i < seconds * 100; ++i) {
    if (!read_whole(path).empty()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace gradus::dist
