// Implementation of StoreServer, the TCP server of a job's key-value store: one thread that waits with epoll and
// moves bytes between sockets and a StoreService. The StoreService has the protocol: it knows which rank or
// launcher is behind a connection, and decides what to answer and when a connection ends. A mutex protects the
// service and the sockets. Public functions that change the service wake the thread, which sends the new output.
#include "gradus/distributed/store/store_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>

#include "gradus/distributed/health/still_threads.h"
#include "gradus/distributed/store/socket.h"

namespace gradus::dist {
namespace {

using internal::FileDescriptor;
using internal::SocketAddress;
using Id = internal::StoreService::Id;

constexpr const char* kOp = "store_server";
// The epoll ids of the listening socket and of the eventfd that wakes the thread. Ids of connections count from 1.
constexpr Id kListener = 0, kWake = ~Id(0);

// Returns how many connections the process's limit of open files (RLIMIT_NOFILE) allows.
size_t max_connections() {
  constexpr rlim_t kWanted = 16384, kOthers = 128;  // kOthers: files that this process needs besides
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= 2 * kOthers) return kOthers;
  return std::min(kWanted, limit.rlim_cur - kOthers);
}

// Returns a socket that listens at the first address of options.host.
// Errors: as StoreServer's constructor.
FileDescriptor listen_somewhere(const StoreServerOptions& options) {
  if (options.port < 0 || options.port > 65535)
    throw ValueError(kOp, "port is ", options.port, "; it must be in 0..65535");
  std::string why;
  const std::vector<SocketAddress> addresses =
      internal::resolve(options.host, options.port, Deadline::after(Milliseconds(10'000)), &why);
  if (addresses.empty()) throw ConnectionError(kOp, -1, "cannot listen at '", options.host, "': ", why);
  const auto is_loopback = [](const SocketAddress& a) { return a.is_loopback(); };
  if (options.token.empty() && !std::all_of(addresses.begin(), addresses.end(), is_loopback))
    throw ValueError(kOp, "a token is needed to listen at '", options.host, "', which other hosts can reach");
  bool taken = false;
  if (FileDescriptor socket = internal::listen_at(addresses[0], &why, &taken)) return socket;
  throw ConnectionError(taken ? ConnectionError::Reason::kPortTaken : ConnectionError::Reason::kOther, kOp,
                        -1, "cannot listen at ", options.host, ':', options.port, ": ",
                        taken ? "the port is taken by another process" : why);
}

// Opens a descriptor that refuse_one() can close when no others are left.
FileDescriptor open_spare() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

StoreServer::StoreServer(const StoreServerOptions& options)
    : listener_(listen_somewhere(options)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      reserve_descriptor_(open_spare()),
      port_(internal::local_address(listener_).port()),
      service_({.job_id = options.job_id,
                .token = options.token,
                .launcher_token = options.launcher_token,
                .max_connections = max_connections(),
                .max_greeting = std::min<size_t>(256, max_connections() / 2),
                .known_by_port_alone = options.known_by_port_alone}) {
  if (!wake_ || !epoll_) throw ConnectionError(kOp, -1, "no file descriptors left");
  watch(EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
  watch(EPOLL_CTL_ADD, wake_, kWake, EPOLLIN);
  thread_ = std::thread([this] {
    internal::name_framework_thread("store");
    run();
  });
}

StoreServer::~StoreServer() {
  stop_ = true;
  wake();
  thread_.join();
}

// The thread's loop: accepts and serves connections until the destructor sets stop_.
void StoreServer::run() {
  std::vector<epoll_event> events;
  while (!stop_) {
    // With room for the events of all sockets, each connection with input is read before service_.expire(), which
    // would otherwise declare a rank dead whose message has arrived.
    events.resize(sockets_.size() + 2);
    const int n = ::epoll_wait(epoll_.fd(), events.data(), int(events.size()), time_to_wait());
    std::lock_guard lock(mutex_);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kListener)
        accept_some();
      else if (events[i].data.u64 == kWake)
        clear_wake();
      else
        serve(events[i].data.u64, events[i].events);
    }
    service_.expire(now());
    flush();
  }
  std::lock_guard lock(mutex_);
  flush();  // sends the last messages
}

// Returns the milliseconds until the service's next deadline, at most an hour; -1 (no limit) without a deadline.
int StoreServer::time_to_wait() {
  std::lock_guard lock(mutex_);
  const std::optional<TimePoint> next = service_.next_deadline();
  if (!next) return -1;
  const auto left = std::chrono::ceil<Milliseconds>(*next - now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

// Accepts at most 64 waiting clients, so that connected clients get their turn.
void StoreServer::accept_some() {
  for (int i = 0; i < 64; ++i) {
    FileDescriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) refuse_one();
      return;
    }
    internal::set_up_connection(socket);
    const Id id = service_.connect(now());
    if (watch(EPOLL_CTL_ADD, socket, id, EPOLLIN))
      sockets_.emplace(id, std::move(socket));
    else
      service_.disconnect(id, "", now());
  }
}

// Accepts and closes one client's connection when the process has no file descriptors left: frees the spare
// descriptor for it. Otherwise epoll would report the waiting client again and again.
void StoreServer::refuse_one() {
  reserve_descriptor_.close();
  FileDescriptor(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  reserve_descriptor_ = open_spare();
}

void StoreServer::serve(Id id, uint32_t events) {
  if (!sockets_.contains(id)) return;  // ended by an earlier event of this round
  if (events & EPOLLOUT)
    write(id);
  else
    read(id, events);
}

// Passes the connection's input to the service, while the service wants input.
void StoreServer::read(Id id, uint32_t events) {
  const auto it = sockets_.find(id);
  // Reads at most 4 chunks at a time, so that other connections get their turn.
  for (int i = 0; i < 4 && service_.can_receive(id); ++i) {
    const ssize_t n = ::recv(it->second.fd(), receive_buffer_, sizeof receive_buffer_, 0);
    if (n <= 0) {
      if (n == 0 || !(errno == EAGAIN || errno == EINTR)) end(id, n == 0 ? 0 : errno);
      return;
    }
    if (!receive(id, n)) return end(id, ENOMEM);
    if (n < static_cast<ssize_t>(sizeof receive_buffer_)) break;
  }
  if (!service_.can_receive(id) && events & (EPOLLERR | EPOLLHUP)) {
    int error = 0;
    socklen_t size = sizeof error;
    (void)::getsockopt(it->second.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    drain_and_end(id, error);
  }
}

// Passes the first n bytes of receive_buffer_ to the service. Returns false if memory is short.
bool StoreServer::receive(Id id, ssize_t n) {
  try {
    service_.receive(id, {receive_buffer_, static_cast<size_t>(n)}, now());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Ends a connection that has failed with `error` (an errno value; 0: closed by the client), after all bytes that
// the client sent before have been received. They may contain the message kLeave, by which a rank signs off;
// without it the end of the connection counts as the death of the rank.
void StoreServer::drain_and_end(Id id, int error) {
  const int fd = sockets_.at(id).fd();
  for (ssize_t n; (n = ::recv(fd, receive_buffer_, sizeof receive_buffer_, 0)) > 0 && receive(id, n);) {
  }
  end(id, error);
}

// Sends the output of all connections whose state the service has changed.
void StoreServer::flush() {
  for (std::vector<Id> changed = service_.pop_changed(); !changed.empty(); changed = service_.pop_changed())
    for (const Id id : changed) write(id);
}

// Sends as much of the connection's output as the socket takes, then closes the connection if the service has
// finished it, else sets the epoll events that the connection waits for.
void StoreServer::write(Id id) {
  const auto it = sockets_.find(id);
  if (it == sockets_.end()) return;
  std::string_view output = service_.output(id);
  while (!output.empty()) {
    const ssize_t n = ::send(it->second.fd(), output.data(), output.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return drain_and_end(id, errno);
    if (n < 0) break;
    service_.mark_sent(id, static_cast<size_t>(n), now());
    output = service_.output(id);
  }
  if (output.empty() && service_.should_close(id)) return end(id, 0);
  watch(EPOLL_CTL_MOD, it->second, id,
        (service_.can_receive(id) ? uint32_t(EPOLLIN) : 0) | (output.empty() ? 0 : uint32_t(EPOLLOUT)));
}

// Closes the connection and reports its end to the service. `error` as in drain_and_end().
void StoreServer::end(Id id, int error) {
  sockets_.erase(id);
  const bool closed = error == 0 || error == ECONNRESET || error == EPIPE;
  service_.disconnect(
      id,
      closed ? "died: its connection closed"
             : "is out of reach: its connection failed: " + std::generic_category().message(error),
      now());
}

// Adds a socket to epoll or changes its events. Returns false on failure.
bool StoreServer::watch(int operation, const FileDescriptor& socket, Id id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return ::epoll_ctl(epoll_.fd(), operation, socket.fd(), &event) == 0;
}
void StoreServer::wake() { (void)!::eventfd_write(wake_.fd(), 1); }
void StoreServer::clear_wake() {
  eventfd_t count;
  (void)!::eventfd_read(wake_.fd(), &count);
}

void StoreServer::report(const Failure& failure) {
  std::lock_guard lock(mutex_);
  service_.report(failure);
  wake();
}

void StoreServer::rank_exited(int rank) {
  std::lock_guard lock(mutex_);
  service_.rank_exited(rank, now());
  wake();
}

bool StoreServer::failed(Failure* failure) const {
  std::lock_guard lock(mutex_);
  if (service_.failure() && failure != nullptr) *failure = *service_.failure();
  return service_.failure().has_value();
}

std::string StoreServer::refusals() const {
  std::lock_guard lock(mutex_);
  return service_.refusals();
}

int StoreServer::launchers() const {
  std::lock_guard lock(mutex_);
  return service_.launchers();
}

void StoreServer::begin_attempt(int attempt) {
  std::lock_guard lock(mutex_);
  service_.begin_attempt(attempt, now());
  wake();
}

}  // namespace gradus::dist
