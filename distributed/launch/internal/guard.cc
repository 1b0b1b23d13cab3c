// Guard: a watchdog process that kills a job's processes when the launcher ends without having stopped the
// guard. The launcher executes its own program again with GRADUS_JOB_GUARD=SOCKET:LAUNCHER_PID; become_guard
// then runs guard() in place of main(). The end of the socket or a changed parent process shows that the
// launcher is gone.
#include "gradus/distributed/launch/internal/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "gradus/distributed/launch/processes.h"
#include "gradus/tensor/base/error.h"

extern char** environ;

namespace gradus::dist::internal {
namespace {

// Messages are packets: a letter, then content. kId: the id in the environments of the job's processes.
// kStarted (processes.h): a pid_t, the process group of a started process, sent by that process. kUnrelated:
// a pid_t, a child of the launcher that is not of the job. kClear: all started processes are gone. kDone:
// exit without killing.
constexpr char kId = 'i', kUnrelated = 'o', kClear = 'f', kDone = 'd';
// How often the guard records the orphans that the launcher has adopted. Once the launcher is gone, the
// orphans have another parent and cannot be found any more.
constexpr Milliseconds kScanInterval{1'000};
constexpr size_t kMaxMessage = 1 << 16;

// The guard's main loop. Exits after kDone, or after it has killed the job's processes.
[[noreturn]] void guard(int socket, pid_t launcher) {
  prctl(PR_SET_NAME, "gradus-guard");
  for (int s = 1; s < NSIG; ++s)
    if (s != SIGCHLD) signal(s, SIG_IGN);  // only SIGKILL ends the guard
  // Keeps nothing of the launcher open: neither its folder, nor pipes that another process reads
  // until they close.
  (void)!chdir("/");
  if (socket != 3) dup2(socket, 3);
  socket = 3;
  close_range(4, ~0u, 0);
  JobProcesses job{.subreaper = launcher};
  std::vector<char> message(kMaxMessage);
  TimePoint next_scan = std::chrono::steady_clock::now() + kScanInterval;
  for (;;) {
    pollfd fd{socket, POLLIN, 0};
    poll(&fd, 1, 500);
    if (std::chrono::steady_clock::now() >= next_scan && getppid() == launcher) {
      job.adopted = adopted_processes(job);
      next_scan = std::chrono::steady_clock::now() + kScanInterval;
    }
    // A child that another thread of the launcher forked may hold the launcher's end of the socket open. Then
    // the parent's process id shows that the launcher is gone.
    if (fd.revents == 0 && getppid() == launcher) continue;
    const ssize_t n = recv(socket, message.data(), message.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN) && getppid() == launcher) continue;
    if (n <= 0) break;
    const std::string_view content(message.data() + 1, size_t(n) - 1);
    if (message[0] == kDone) _exit(0);
    if (message[0] == kId) job.id = content;
    if (message[0] == kClear) job.groups.clear();
    if ((message[0] == kStarted || message[0] == kUnrelated) && content.size() == sizeof(pid_t))
      std::memcpy(&(message[0] == kStarted ? job.groups : job.unrelated).emplace_back(), content.data(),
                  sizeof(pid_t));
  }
  job.subreaper = 0;  // its process id may soon belong to another process
  if (!job.id.empty()) kill_processes(job, Milliseconds(4'500));
  _exit(0);
}

// Runs before main() and before the constructors of this program's objects, in every program with a launcher.
__attribute__((constructor(101))) void become_guard() {
  const char* socket = std::getenv("GRADUS_JOB_GUARD");
  if (!socket) return;
  int fd = -1, launcher = -1;
  struct stat file;
  // The guard starts even if the launcher is gone already: then it has to act at once.
  if (std::sscanf(socket, "%d:%d", &fd, &launcher) == 2 && fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode))
    guard(fd, launcher);
}

}  // namespace

Guard::Guard(const std::string& id, const std::vector<pid_t>& unrelated) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    throw ValueError("launcher", "cannot make a socket: ", errno_text());
  socket_ = FileDescriptor(ends[0]);
  const FileDescriptor other(ends[1]), null(open("/dev/null", O_RDWR | O_CLOEXEC));
  ProcessOptions options{.path = "/proc/self/exe", .argv = {"gradus-guard"}, .start_new_session = true};
  for (char** variable = environ; *variable; ++variable)
    if (!std::string_view(*variable).starts_with("GRADUS_")) options.env.push_back(*variable);
  options.env.push_back(concat("GRADUS_JOB_GUARD=", other.fd(), ':', getpid()));
  options.in = options.out = options.err = null.fd();
  options.inherit = {other.fd()};
  pid_ = start_process("launcher", options);
  send(kId, id);
  for (const pid_t pid : unrelated) send(kUnrelated, {reinterpret_cast<const char*>(&pid), sizeof pid});
}

Guard::~Guard() {
  send(kDone, "");
  socket_.close();
  for (int i = 0; i < 1000; ++i) {  // a second
    const pid_t ended = waitpid(pid_, nullptr, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) return;
    if (i == 900) kill(pid_, SIGKILL);  // the guard is stopped or stuck
    usleep(1000);
  }
}

void Guard::clear_processes() { send(kClear, ""); }

void Guard::send(char kind, const std::string& content) {
  const std::string message = kind + content;
  while (::send(socket_.fd(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
         errno == EINTR) {
  }
}

}  // namespace gradus::dist::internal
