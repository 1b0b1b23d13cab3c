#include "gradus/distributed/transport/gloo_mesh.h"

#include <gloo/transport/tcp/device.h>
#include <sched.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/health/still_threads.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
// How long the job's failure may take to become known after a connection broke. After that, the broken
// connection is reported as the failure.
constexpr Milliseconds kTruthLimit{1000};

std::string key_of(int rank) { return concat("gloo/", rank); }

// gloo writes to connections that the peer may have closed. This must be an error, and not end the process.
void ignore_broken_pipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

// Note [gloo's thread]
// gloo's thread may be woken while another thread sends and holds the connection's lock. It then tries the
// lock again and again, and may keep the core from the lock's holder for a whole time slice (some 3 ms). A
// batch thread does not preempt a running thread. Threads inherit the scheduling class and the name, so the
// thread that makes the device sets both first.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& address) {
  ignore_broken_pipes();
  gloo::transport::tcp::attr attr;
  attr.hostname = address.empty() ? "127.0.0.1" : address;
  std::shared_ptr<gloo::transport::Device> device;
  std::string trouble;
  std::thread([&] {
    name_own_thread("gloo");
    const sched_param parameters{};
    sched_setscheduler(0, SCHED_BATCH, &parameters);  // if the system allows it
    try {
      device = gloo::transport::tcp::CreateDevice(attr);
    } catch (const std::exception& e) {
      trouble = gloo_text(e);
    }
  }).join();
  if (device) return device;
  throw ConnectionError(kOp, -1, "cannot use the address ", attr.hostname, " of this host: ", trouble);
}

// Note [gloo's device]
// A stranger may connect and send nothing. Its connection keeps gloo's loop alive, even longer than the
// device. When the connection ends, the loop's own thread destroys the loop and waits for itself, which
// ends the program. So a device is never destroyed. A mesh that ends leaves its device to the next mesh
// with the same address.
class IdleDevices {
 public:
  using Device = std::shared_ptr<gloo::transport::Device>;

  static IdleDevices& of_this_process() {
    static std::atomic<IdleDevices*> known{nullptr};
    IdleDevices* devices = known.load();
    if (devices && devices->forks == gradus::internal::fork_count()) return *devices;
    // In a forked child, the parent's devices have no threads.
    auto* const fresh = new IdleDevices;
    if (known.compare_exchange_strong(devices, fresh)) return *fresh;
    delete fresh;
    return *devices;
  }
  Device take(const std::string& address) {
    {
      std::lock_guard lock(mutex_);
      std::vector<Device>& idle = idle_[address];
      if (!idle.empty()) {
        const Device device = std::move(idle.back());
        idle.pop_back();
        return device;
      }
    }
    return make_device(address);
  }
  void put(const std::string& address, const Device& device) {
    std::lock_guard lock(mutex_);
    idle_[address].push_back(device);
  }
  const int forks = gradus::internal::fork_count();

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<Device>> idle_;
};

// Returns a device that no other mesh uses. The end of the last reference makes it idle.
IdleDevices::Device borrow_device(const std::string& address) {
  IdleDevices& idle = IdleDevices::of_this_process();
  const IdleDevices::Device device = idle.take(address);
  return {device.get(), [&idle, address, device](auto*) {
            if (idle.forks == gradus::internal::fork_count())
              idle.put(address, device);
            else
              gradus::internal::abandon(device);  // the device is the parent's
          }};
}

}  // namespace

std::string gloo_text(const std::exception& error) {
  const std::string text = error.what();
  const size_t place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return place == std::string::npos ? text : text.substr(place + 2);
}

GlooMesh::GlooMesh(const GlooSetup& setup, const Watch& watch)
    : rank_(setup.rank), size_(setup.size), device_(borrow_device(setup.address)) {
  for (auto& context : contexts_) {
    context = device_->createContext(rank_, size_);
    // gloo's own timeouts must never end a wait: see connect_all and gloo_link.h.
    context->setTimeout(std::chrono::hours(24));
  }

  // Per peer: the addresses where this rank awaits it, and the secret that the peer must send.
  using Note = std::pair<std::vector<std::string>, std::string>;
  std::vector<Note> mine(size_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    for (const auto& context : contexts_) {
      const Address address = context->createPair(peer)->address().bytes();
      mine[peer].first.emplace_back(address.begin(), address.end());
    }
    mine[peer].second = my_secrets_[peer] = random_digits(kOp, 32);
  }
  setup.store->set(key_of(rank_), to_wire(mine));

  std::map<int, std::array<Address, 2>> addresses;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    std::string bytes;
    const WaitScope waiting(*watch.membership, Wait::for_ranks([peer] { return std::vector{peer}; }));
    try {
      bytes = setup.store->get(key_of(peer), watch.deadline.left());
    } catch (const TimeoutError&) {
      throw_wait(kOp, watch.membership->failed() ? WaitResult::kFailed : WaitResult::kTimeout, watch, {peer});
    }
    const auto theirs = from_wire<std::vector<Note>>(bytes);
    if (theirs.size() != size_t(size_) || theirs[rank_].first.size() != contexts_.size()) WireReader::fail();
    for (size_t i = 0; i < contexts_.size(); ++i)
      addresses[peer][i].assign(theirs[rank_].first[i].begin(), theirs[rank_].first[i].end());
    secrets_[peer] = theirs[rank_].second;
  }
  try {
    connect_all(addresses, watch);
  } catch (...) {
    close();
    throw;
  }
}

// gloo's connect blocks until it has succeeded or failed, so it runs in a thread. Closing the connections
// ends the thread.
void GlooMesh::connect_all(const std::map<int, std::array<Address, 2>>& addresses, const Watch& watch) {
  Futex signal;
  std::atomic<bool> ended{false};
  std::atomic<int> at{-1};  // the peer that is being connected
  std::string trouble;      // set when the thread has ended
  std::thread thread([&] {
    try {
      for (const auto& [peer, both] : addresses) {
        at = peer;
        for (size_t i = 0; i < both.size(); ++i) contexts_[i]->getPair(peer)->connect(both[i]);
      }
    } catch (const std::exception& e) {
      trouble = gloo_text(e);
    }
    ended.store(true, std::memory_order_release);
    signal.notify();
  });
  const auto has_ended = [&] { return ended.load(std::memory_order_acquire); };
  const WaitScope waiting(
      *watch.membership, Wait::for_ranks([&] { return std::vector<int>(at.load() < 0 ? 0 : 1, at.load()); }));
  const WaitResult outcome = signal.wait(watch, has_ended, "connect");
  while (!has_ended()) {
    close();  // again, for a connection that was just begun
    std::this_thread::sleep_for(Milliseconds(10));
  }
  thread.join();
  if (outcome != WaitResult::kReady) throw_wait(kOp, outcome, watch, {at});
  if (trouble.empty()) return;

  const auto limit = std::min(watch.deadline.left(), kTruthLimit);
  signal.wait(
      {watch.membership, Deadline::after(limit)}, [&] { return false; }, "connect");
  const std::string text = concat("rank ", rank_, " cannot connect to rank ", at.load(), ": ", trouble);
  throw_failure(kOp, watch.membership->report({Failure::Kind::kDied, at, text}));
}

void GlooMesh::close() {
  for (const auto& context : contexts_)
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) context->getPair(peer)->close();
}

}  // namespace gradus::dist::internal
