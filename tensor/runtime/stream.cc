#include "gradus/tensor/runtime/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/backlog.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace internal {

// The process that made a stream. In a child of fork() the stream has no thread that would do its work.
class Owner {
 public:
  bool is_here() const { return process_ == fork_count(); }
  void check() const {
    if (!is_here())
      throw StateError("stream",
                       "this process was made by fork(), and the stream's thread is its parent's: compute on "
                       "cpu:0 here, or "
                       "start another program");
  }

 private:
  const int process_ = fork_count();
};

struct EventState {
  const Owner owner = {};
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;  // the stream's error at that point

  void set(std::exception_ptr e) {
    {
      std::lock_guard lock(mutex);
      done = true;
      error = std::move(e);
    }
    changed.notify_all();
  }
  void wait() {
    owner.check();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    if (error) std::rethrow_exception(error);
  }
};

struct Task {
  std::function<void()> run;
  int64_t bytes = 0;  // of the memory taken for it: Note [Backlog]
};

// State that a worker thread, the handles of its stream and synchronize(device) share. synchronize may come
// when the handles are gone.
struct WorkQueue {
  const Owner owner = {};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool busy = false, stop = false;
  std::exception_ptr error;  // the first one since the last synchronize

  void push(std::function<void()> task, int64_t bytes = 0) {
    owner.check();
    {
      std::lock_guard lock(mutex);
      tasks.push_back({std::move(task), bytes});
      backlog().enter(bytes);
    }
    changed.notify_all();
  }

  void drain() {
    owner.check();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return tasks.empty() && !busy; });
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::exception_ptr pending_error() {
    std::lock_guard lock(mutex);
    return error;
  }

  // Returns whether there is nothing to wait for and no error to report any more.
  bool is_over() {
    std::lock_guard lock(mutex);
    return stop && tasks.empty() && !busy && !error;
  }

  void run() {
    Backlog::never_wait_here();
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || !tasks.empty(); });
      if (tasks.empty()) return;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        task.run();
      } catch (...) {
        thrown = std::current_exception();
      }
      task.run = nullptr;  // frees its tensors before the stream counts as idle
      backlog().leave(task.bytes);
      lock.lock();
      if (thrown && !error) error = thrown;
      busy = false;
      if (tasks.empty()) changed.notify_all();
    }
  }
};

// The part that belongs to the handles. When the last handle is gone, the worker finishes the queue and ends.
struct StreamQueue {
  std::shared_ptr<WorkQueue> work = std::make_shared<WorkQueue>();
  std::thread worker{[work = work] { work->run(); }};

  ~StreamQueue() {
    if (!work->owner.is_here()) {
      forget_thread(worker);
      return;
    }
    {
      std::lock_guard lock(work->mutex);
      work->stop = true;
    }
    work->changed.notify_all();
    // The last handle may be in a task: a tensor refers to its node, a node to its stream.
    if (worker.get_id() == std::this_thread::get_id())
      worker.detach();
    else
      worker.join();
  }
};

}  // namespace internal

namespace {

struct Registry {
  std::mutex mutex;
  std::map<int, Stream> defaults;                                            // by device index
  std::vector<std::pair<Device, std::shared_ptr<internal::WorkQueue>>> all;  // to synchronize a device
};
Registry& registry() {
  static auto* r = new Registry;  // workers live until the process ends
  return *r;
}

}  // namespace

Stream Stream::of(Device device) {
  if (device == kCPU || device.type != DeviceType::kCPU) {
    Stream s;
    s.device_ = device;
    return s;
  }
  Registry& r = registry();
  {
    std::lock_guard lock(r.mutex);
    if (auto it = r.defaults.find(device.index); it != r.defaults.end()) return it->second;
  }
  Stream fresh = create(device);
  std::lock_guard lock(r.mutex);
  return r.defaults.emplace(device.index, fresh).first->second;
}

Stream Stream::create(Device device) {
  if (device == kCPU || device.type != DeviceType::kCPU) return of(device);
  Stream s;
  s.device_ = device;
  s.queue_ = std::make_shared<internal::StreamQueue>();
  s.enqueue([name = to_string(device)] { name_thread(name); });
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::erase_if(r.all, [](const auto& entry) { return entry.second->is_over(); });
  r.all.emplace_back(device, s.queue_->work);
  return s;
}

void Stream::enqueue(std::function<void()> task) const {
  if (is_inline()) return task();
  internal::backlog().wait_for_room();
  queue_->work->push(
      [task = std::move(task), threads = Context::current().threads] {
        Context::current().threads = threads;
        task();
      },
      internal::Backlog::take_for_task());
}

void Stream::wait(const Event& event) const {
  if (!event.state_) return;
  if (is_inline()) return event.synchronize();
  queue_->work->push([state = event.state_] { state->wait(); });
}

void Stream::synchronize() const {
  if (queue_) queue_->work->drain();
}

Event Event::record(const Stream& stream) {
  Event e;
  if (stream.is_inline()) return e;
  e.state_ = std::make_shared<internal::EventState>();
  internal::WorkQueue* work = stream.queue_->work.get();  // lives as long as its tasks
  work->push([state = e.state_, work] { state->set(work->pending_error()); });
  return e;
}

bool Event::done() const {
  if (!state_) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Event::synchronize() const {
  if (state_) state_->wait();
}

void synchronize(Device device) {
  if (device == kCPU || device.type != DeviceType::kCPU) return;
  std::vector<std::shared_ptr<internal::WorkQueue>> queues;
  {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    for (const auto& [d, queue] : r.all)
      if (d == device) queues.push_back(queue);
  }
  for (const auto& queue : queues) queue->drain();
}

}  // namespace gradus
