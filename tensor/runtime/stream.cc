// Streams of CPU devices (a worker thread with a task queue) and of GPUs (native streams of a DeviceRuntime),
// and their events. An event carries its stream's pending error to waiting streams.
#include "gradus/tensor/runtime/stream.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/backlog.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace internal {

// The process that created a stream. In a child of fork() the stream's worker thread does not exist.
class OwnerProcess {
 public:
  bool is_current() const { return process_ == fork_count(); }
  void check() const {
    if (!is_current())
      throw StateError("stream",
                       "this process was made by fork(), and the stream's thread is its parent's: compute on "
                       "cpu:0 here, or "
                       "start another program");
  }

 private:
  const int process_ = fork_count();
};

// Interfaces of events and streams: WorkerEvent and WorkerQueue on CPU devices, DeviceEvent and DeviceQueue
// on GPUs.
struct EventState {
  virtual ~EventState() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;  // blocks the host, and throws the stream's error from before the event
};
struct StreamQueue {
  virtual ~StreamQueue() = default;
  virtual void enqueue(std::function<void()> task) = 0;
  virtual void wait(const std::shared_ptr<EventState>& event) = 0;
  virtual void synchronize() = 0;
  virtual std::shared_ptr<EventState> record() = 0;
};

namespace {

struct WorkerEvent final : EventState {
  const OwnerProcess owner = {};
  std::mutex mutex;
  std::condition_variable changed;
  bool happened = false;
  std::exception_ptr error;  // the stream's error at that point

  void set(std::exception_ptr e) {
    {
      std::lock_guard lock(mutex);
      happened = true;
      error = std::move(e);
    }
    changed.notify_all();
  }
  bool done() override {
    std::lock_guard lock(mutex);
    return happened;
  }
  void wait() override {
    owner.check();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return happened; });
    if (error) std::rethrow_exception(error);
  }
};

struct Task {
  std::function<void()> run;
  int64_t bytes = 0;  // memory that was allocated for the task: Note [Backlog] in backlog.h
};

// The task queue of a CPU stream, shared by its worker thread, its handles, and synchronize(device), which
// may be called after the handles are destroyed.
struct WorkQueue {
  const OwnerProcess owner = {};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool busy = false, stop = false;  // a task runs; the last handle is destroyed
  std::exception_ptr error;         // the first one since the last synchronize

  void push(std::function<void()> task, int64_t bytes = 0) {
    owner.check();
    {
      std::lock_guard lock(mutex);
      tasks.push_back({std::move(task), bytes});
      backlog().add_task(bytes);
    }
    changed.notify_all();
  }

  // Blocks until the queue is idle, and throws its first error.
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

  // Returns whether the stream is closed, idle, and without an error to report.
  bool is_over() {
    std::lock_guard lock(mutex);
    return stop && tasks.empty() && !busy && !error;
  }

  // The loop of the worker thread.
  void run() {
    Backlog::exempt_this_thread();
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
      task.run = nullptr;  // frees its tensors before the stream becomes idle
      backlog().remove_task(task.bytes);
      lock.lock();
      if (thrown && !error) error = thrown;
      busy = false;
      if (tasks.empty()) changed.notify_all();
    }
  }
};

// A CPU stream, owned by its handles. When the last handle is destroyed, the worker finishes the queue and
// exits.
struct WorkerQueue final : StreamQueue {
  std::shared_ptr<WorkQueue> work = std::make_shared<WorkQueue>();
  std::thread worker{[work = work] { work->run(); }};

  ~WorkerQueue() override {
    if (!work->owner.is_current()) {
      abandon(std::move(worker));
      return;
    }
    {
      std::lock_guard lock(work->mutex);
      work->stop = true;
    }
    work->changed.notify_all();
    // The last handle may be destroyed by a task on the worker: a tensor refers to its node, a node to its
    // stream.
    if (worker.get_id() == std::this_thread::get_id())
      worker.detach();
    else
      worker.join();
  }

  // The task runs with the caller's number of threads (Context::threads). May block: Note [Backlog].
  void enqueue(std::function<void()> task) override {
    backlog().wait_until_below_limit();
    work->push(
        [task = std::move(task), threads = Context::current().threads] {
          Context::current().threads = threads;
          task();
        },
        Backlog::take_recorded_bytes());
  }
  void wait(const std::shared_ptr<EventState>& event) override {
    work->push([event] { event->wait(); });
  }
  void synchronize() override { work->drain(); }
  std::shared_ptr<EventState> record() override {
    auto event = std::make_shared<WorkerEvent>();
    // The raw pointer is valid: the queue owns its tasks.
    work->push([event, queue = work.get()] { event->set(queue->pending_error()); });
    return event;
  }
};

// The native streams on which an event depends.
using NativeStreams = std::vector<std::shared_ptr<NativeStream>>;

void add_missing(NativeStreams* to, const NativeStreams& from) {
  for (const auto& stream : from)
    if (std::find(to->begin(), to->end(), stream) == to->end()) to->push_back(stream);
}

// An event of a GPU stream. `dependencies`: the streams whose errors (throw_errors) are thrown
// after the event.
struct DeviceEvent final : EventState {
  DeviceEvent(std::unique_ptr<NativeEvent> e, NativeStreams b)
      : event(std::move(e)), dependencies(std::move(b)) {}
  const std::unique_ptr<NativeEvent> event;
  const NativeStreams dependencies;
  bool done() override {
    make_current();
    return event->is_done();
  }
  void wait() override {
    make_current();
    event->synchronize();
    for (const auto& stream : dependencies) stream->throw_errors();
  }
  void make_current() const {
    if (!dependencies.empty())
      dependencies.front()->runtime().make_current(dependencies.front()->device().index);
  }
};

// A host function that runs in the order of a GPU stream (cudaLaunchHostFunc). It must not call the runtime.
struct HostTask {
  std::function<void()> run;
  std::exception_ptr error;
  std::atomic<bool> done{false};

  static void call(void* task) {
    auto* const t = static_cast<HostTask*>(task);
    try {
      t->run();
    } catch (...) {
      t->error = std::current_exception();
    }
    t->done = true;
  }
};

// Host tasks that are queued or not yet collected. They and their tensors are freed by host threads, because
// the thread that runs them must not call the runtime.
using HostTasks = std::list<std::unique_ptr<HostTask>>;

// Host tasks of streams whose handles are destroyed.
struct OrphanedTasks {
  std::mutex mutex;
  HostTasks tasks;

  void take(HostTasks&& more) {
    const std::lock_guard lock(mutex);
    tasks.splice(tasks.end(), std::move(more));
    std::erase_if(tasks, [](const auto& task) { return task->done.load(); });
  }
  static OrphanedTasks& get() {
    static auto* all = new OrphanedTasks;  // never destroyed: tasks may run until the process ends
    return *all;
  }
};

struct DeviceQueue final : StreamQueue {
  explicit DeviceQueue(std::shared_ptr<NativeStream> s) : stream(std::move(s)) {}
  ~DeviceQueue() override { OrphanedTasks::get().take(std::move(tasks_)); }

  const std::shared_ptr<NativeStream> stream;

  void enqueue(std::function<void()> run) override {
    auto task = std::make_unique<HostTask>();
    task->run = std::move(run);
    const std::lock_guard lock(mutex_);
    collect();
    tasks_.push_back(std::move(task));
    try {
      stream->runtime().call_on_host(stream->handle(), &HostTask::call, tasks_.back().get());
    } catch (...) {
      tasks_.pop_back();
      throw;
    }
  }
  void wait(const std::shared_ptr<EventState>& event) override {
    const auto* const native = dynamic_cast<DeviceEvent*>(event.get());
    if (!native) return enqueue([event] { event->wait(); });
    stream->wait(*native->event);
    const std::lock_guard lock(mutex_);
    add_missing(&dependencies_, native->dependencies);
  }
  void synchronize() override {
    stream->synchronize();
    stream->throw_errors();
    NativeStreams dependencies;
    {
      const std::lock_guard lock(mutex_);
      collect();
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      dependencies.swap(dependencies_);
    }
    try {
      for (const auto& s : dependencies) s->throw_errors();
    } catch (
        ...) {  // later calls report the errors of the remaining streams, but a failed stream's only once
      std::erase_if(dependencies, [](const auto& s) { return s->has_failed(); });
      const std::lock_guard lock(mutex_);
      add_missing(&dependencies_, dependencies);
      throw;
    }
  }
  std::shared_ptr<EventState> record() override {
    NativeStreams dependencies{stream};
    {
      const std::lock_guard lock(mutex_);
      add_missing(&dependencies, dependencies_);
    }
    return std::make_shared<DeviceEvent>(stream->record(), std::move(dependencies));
  }

 private:
  // Frees finished host tasks. Requires mutex_.
  void collect() {
    while (!tasks_.empty() && tasks_.front()->done) {
      if (!error_) error_ = tasks_.front()->error;
      tasks_.pop_front();
    }
  }

  std::mutex mutex_;
  HostTasks tasks_;
  std::exception_ptr error_;    // the first one since the last synchronize
  NativeStreams dependencies_;  // other streams that this one has waited for since then
};

}  // namespace

std::shared_ptr<NativeStream> native_stream(const Stream& stream) {
  if (stream.device().type != DeviceType::kCUDA) return nullptr;
  return static_cast<DeviceQueue*>(stream.queue_.get())->stream;
}

}  // namespace internal

namespace {

// All streams of CPU devices, and the default streams.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<DeviceType, int>, Stream> defaults;                     // by device
  std::vector<std::pair<Device, std::shared_ptr<internal::WorkQueue>>> all;  // to synchronize a device
};
Registry& registry() {
  static auto* r = new Registry;  // never destroyed: workers run until the process ends
  return *r;
}

// Returns whether the device's stream has no queue: tasks run at once on the calling thread.
bool is_inline_on(Device device) { return device == kCPU || device.type == DeviceType::kMeta; }

}  // namespace

Stream Stream::of(Device device) {
  if (is_inline_on(device)) {
    Stream s;
    s.device_ = device;
    return s;
  }
  const std::pair key(device.type, int(device.index));
  Registry& r = registry();
  {
    std::lock_guard lock(r.mutex);
    if (auto it = r.defaults.find(key); it != r.defaults.end()) return it->second;
  }
  Stream fresh = create(device);
  std::lock_guard lock(r.mutex);
  return r.defaults.emplace(key, fresh).first->second;
}

Stream Stream::create(Device device) {
  if (is_inline_on(device)) return of(device);
  Stream s;
  s.device_ = device;
  if (device.type == DeviceType::kCUDA) {
    internal::DeviceRuntime& runtime = internal::runtime_of(device, "stream");
    s.queue_ =
        std::make_shared<internal::DeviceQueue>(std::make_shared<internal::NativeStream>(runtime, device));
    return s;
  }
  auto queue = std::make_shared<internal::WorkerQueue>();
  s.queue_ = queue;
  s.enqueue([name = to_string(device)] { name_thread(name); });
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::erase_if(r.all, [](const auto& entry) { return entry.second->is_over(); });
  r.all.emplace_back(device, queue->work);
  return s;
}

void Stream::enqueue(std::function<void()> task) const {
  if (is_inline()) return task();
  queue_->enqueue(std::move(task));
}

void Stream::wait(const Event& event) const {
  if (!event.state_) return;
  if (is_inline()) return event.synchronize();
  queue_->wait(event.state_);
}

void Stream::synchronize() const {
  if (queue_) queue_->synchronize();
}

Event Event::record(const Stream& stream) {
  Event e;
  if (!stream.is_inline()) e.state_ = stream.queue_->record();
  return e;
}

bool Event::done() const { return !state_ || state_->done(); }

void Event::synchronize() const {
  if (state_) state_->wait();
}

void synchronize(Device device) {
  if (is_inline_on(device)) return;
  if (device.type == DeviceType::kCUDA) {
    internal::DeviceRuntime& runtime = internal::runtime_of(device, "synchronize");
    runtime.synchronize_device(device.index);
    internal::OrphanedTasks::get().take({});
    Stream::of(device).synchronize();  // throws the exceptions of its host tasks
    return runtime.throw_kernel_errors_on_device(device.index);
  }
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
