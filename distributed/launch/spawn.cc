// spawn: a call of launcher in a thread of its own, unless it joins at once or runs the function as a rank.
#include "gradus/distributed/launch/spawn.h"

#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "gradus/distributed/launch/internal/interrupts.h"
#include "gradus/distributed/launch/internal/launch_call.h"
#include "gradus/distributed/launch/supervisor.h"

namespace gradus::dist {

using internal::Ended;

struct SpawnContext::State {
  explicit State(bool daemon) : daemon(daemon) {}
  ~State() {
    if (!thread.joinable()) return;
    if (daemon || std::uncaught_exceptions() > exceptions) {
      std::unique_lock lock(mutex);
      changed.wait(lock,
                   [&] { return done || !pids.empty(); });  // before that nobody would notice the signal
      if (!done) internal::interrupt(SIGTERM);
    }
    thread.join();
  }

  void run(const LauncherOptions& options, const std::string& arguments,
           const std::function<void(std::string_view)>& f) noexcept {
    Ended outcome;
    std::exception_ptr raised;
    try {
      outcome =
          internal::launch_with_arguments(options, arguments, f, [&](const std::vector<pid_t>& started) {
            const std::lock_guard lock(mutex);
            pids = started;
            changed.notify_all();
          });
    } catch (...) {
      raised = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    ended = std::move(outcome);
    error = raised;
    done = true;
    changed.notify_all();
  }

  const bool daemon;
  const int exceptions = std::uncaught_exceptions();
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<pid_t> pids;  // of the last attempt
  bool done = false;
  Ended ended;               // once done
  std::exception_ptr error;  // of launcher itself
};

std::string ProcessExitedError::signal_name() const { return signal_ ? internal::signal_name(signal_) : ""; }

SpawnContext::SpawnContext(std::unique_ptr<State> state) : state_(std::move(state)) {}
SpawnContext::SpawnContext(SpawnContext&&) noexcept = default;
SpawnContext& SpawnContext::operator=(SpawnContext&&) noexcept = default;
SpawnContext::~SpawnContext() = default;

bool SpawnContext::join(std::optional<Milliseconds> timeout) {
  std::unique_lock lock(state_->mutex);
  const auto done = [&] { return state_->done; };
  if (!timeout)
    state_->changed.wait(lock, done);
  else if (!state_->changed.wait_for(lock, *timeout, done))
    return false;
  if (state_->error) std::rethrow_exception(state_->error);
  const Ended& ended = state_->ended;
  if (!ended.status) return true;
  if (ended.rank < 0) throw LaunchError("spawn", -1, ended.text);
  if (ended.threw) throw ProcessRaisedError(ended.rank, ended.pid, ended.text);
  throw ProcessExitedError(ended.rank, ended.pid, ended.exit_code, ended.signal, ended.text);
}

std::vector<pid_t> SpawnContext::pids() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pids;
}

SpawnContext internal::spawn_bytes(const SpawnOptions& options, std::string arguments,
                                   std::function<void(std::string_view)> f) {
  if (options.nprocs < 1) throw ValueError("spawn", "nprocs must be at least 1, got ", options.nprocs);
  const LauncherOptions launcher{
      .nproc_per_node = options.nprocs, .backend = options.backend, .timeout = options.timeout};
  auto owned = std::make_unique<SpawnContext::State>(options.daemon);
  SpawnContext::State& state = *owned;
  SpawnContext context(std::move(owned));
  if (options.join || is_rank_process()) {
    state.run(launcher, arguments, f);
    context.join();
  } else {
    state.thread = std::thread([&state, launcher, arguments = std::move(arguments), f = std::move(f)] {
      state.run(launcher, arguments, f);
    });
  }
  return context;
}

}  // namespace gradus::dist
