// Entry points of the emulated NCCL 2.28: communicators, groups and calls, which are checked and queued on a
// stream. Statuses are those of NCCL's documentation and source.
#include "gradus/tools/cuda_emulator/libraries/nccl.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/nccl/nccl_functions.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/libraries/library_operand.h"
#include "gradus/tools/cuda_emulator/order.h"

// A handle outlives its communicator, so that use of an old handle is found.
struct ncclComm {
  std::shared_ptr<gradus::cuda::emulated::NcclCommunicator> communicator;
};

namespace gradus::cuda::emulated {
namespace {

using State = NcclCommunicator::State;

// The following are behind the runtime's lock.
std::deque<ncclComm>& handles() {
  static auto& all = *new std::deque<ncclComm>;
  return all;
}
// The threads that are inside a call or a group with calls, by device.
std::map<int, std::thread::id>& callers() {
  static auto& threads = *new std::map<int, std::thread::id>;
  return threads;
}
Order next_choice() {
  static uint64_t choices = uint64_t(1) << 40;  // apart from those of streams
  return Order(++choices);
}

// The calls of the calling thread since ncclGroupStart().
struct Group {
  struct Entry {
    std::shared_ptr<NcclCommunicator> communicator;
    NcclCall call;
    cudaStream_t stream;
  };
  int depth = 0;
  ncclResult_t error = ncclSuccess;  // of the first call that failed
  std::vector<Entry> entries;
  std::vector<std::shared_ptr<NcclCommunicator>> aborted;
};
thread_local Group group;

// Runs f(runtime) with the runtime's lock, unless the device is lost or a test injected a failure.
template <class F> ncclResult_t device_call(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return ncclUnhandledCudaError;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return ncclUnhandledCudaError;
  if (const int status = injected_failure(function, ncclUnhandledCudaError))
    return static_cast<ncclResult_t>(status);
  return f(runtime);
}

// Delivers a fault, for a mistake that NCCL does not report reliably.
ncclResult_t refuse(const char* function, const std::string& what, ncclResult_t status = ncclInvalidUsage) {
  deliver(library_fault({function, gradus::internal::called_op}, FaultKind::kCollective, what));
  return status;
}

// Sets *found to the communicator of a handle.
ncclResult_t find(const char* function, ncclComm_t handle, std::shared_ptr<NcclCommunicator>* found) {
  if (!handle) return ncclInvalidArgument;
  for (const ncclComm& h : handles())
    if (&h == handle && (*found = h.communicator)) return ncclSuccess;
  return refuse(function, "the communicator was destroyed or aborted, or never made", ncclInvalidArgument);
}

// Delivers a fault for a call that would block until graphs with calls of the communicator are destroyed.
void check_graphs(const Runtime& runtime, const char* function, const NcclCommunicator& c) {
  for (const auto& [handle, graph] : runtime.executable_graphs)
    for (const auto& node : graph->graph->nodes)
      if (node->work.communicator == &c)
        return (void)refuse(function, "a graph has calls of the communicator");
}

void leave(ncclComm_t handle, bool aborts) {
  NcclCommunicator& c = *handle->communicator;
  c.is_aborted = aborts;
  c.deferred = nullptr;
  c.exchange.leave(c.rank, c.ranks);
  handle->communicator = nullptr;
}

// Calls advance() with the runtime's lock until it returns true. Sleeps without the lock.
template <class F> void wait_until(F&& advance) {
  for (;;) {
    {
      const auto lock = Runtime::get().lock();
      if (advance()) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Waits until all queued works of an aborted communicator's device have run, as NCCL does (commReclaim in its src/init.cc
// synchronizes a stream and calls cudaFree). A work that waits for other ranks meanwhile is a fault after kMaxAbortWait.
constexpr std::chrono::seconds kMaxAbortWait{2};
void wait_for_device(const NcclCommunicator& aborted) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point since = Clock::now();
  const auto has_work = [&] {
    return aborted.has_queued_work() ||
           std::any_of(handles().begin(), handles().end(), [&](const ncclComm& h) {
             return h.communicator && h.communicator->device == aborted.device &&
                    h.communicator->has_queued_work();
           });
  };
  wait_until([&] {
    Runtime& runtime = Runtime::get();
    while (runtime.sticky == cudaSuccess && has_work())
      if (!runtime.step()) break;
    if (runtime.sticky != cudaSuccess || !has_work()) return true;
    const std::shared_ptr<NcclWork> running = running_nccl_work(aborted.device);
    if (!running || running->is_aborted()) since = Clock::now();
    if (Clock::now() - since < kMaxAbortWait) return false;
    refuse("ncclCommAbort", "a deadlock: the abort of " + name_of(aborted) +
                                " waits for the device, which runs " + running->calls[0].record.describe() +
                                " of " + name_of(*running->communicator) +
                                ": only aborts in one group begin before one of them waits");
    return true;
  });
}

// ---- initialization

// What the ranks tell each other at initialization.
struct InitRecord {
  int32_t ranks, device;
  uint64_t host;  // different for processes whose devices are different GPUs
};

uint64_t host_of_devices() {
  if (std::getenv("GRADUS_EMULATED_SHARED_GPUS")) return 0;
  static const uint64_t number = uint64_t(std::random_device()()) << 32;
  return number | static_cast<uint64_t>(getpid());
}

// Counts the ranks that have entered. The last one decides whether the communicator is valid.
void advance_initialization(NcclCommunicator& c) {
  const auto file = [](int rank) { return "init." + std::to_string(rank); };
  while (c.initialized < c.ranks && c.exchange.contains(file(c.initialized))) ++c.initialized;
  if (c.initialized < c.ranks) return;
  c.state = State::kReady;
  std::map<std::pair<uint64_t, int32_t>, int> ranks_of_gpus;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const std::string bytes = c.exchange.read(file(rank));
    InitRecord record;
    if (bytes.size() != sizeof record) {
      c.error = ncclInternalError;
      return;
    }
    std::memcpy(&record, bytes.data(), sizeof record);
    if (record.ranks != c.ranks || !ranks_of_gpus.emplace(std::pair(record.host, record.device), rank).second)
      c.error = ncclInvalidUsage;
  }
}

ncclResult_t check_config(const ncclConfig_t* config) {
  if (!config) return ncclSuccess;
  const bool is_known = config->size == sizeof *config && config->magic == 0xcafebeef;
  const int blocking = config->blocking;
  const bool is_valid = blocking == 0 || blocking == 1 || blocking == NCCL_CONFIG_UNDEF_INT;
  return is_known && is_valid ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t begin_initialization(ncclComm_t* made, int ranks, const ncclUniqueId& id, int rank,
                                  const ncclConfig_t* config,
                                  std::shared_ptr<NcclCommunicator>* communicator) {
  if (!made || ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (const ncclResult_t status = check_config(config); status != ncclSuccess) return status;
  if (group.depth > 0) return ncclInvalidUsage;  // not emulated
  const size_t length = strnlen(id.internal, sizeof id.internal);
  if (length == 0 || length == sizeof id.internal) return ncclInvalidArgument;
  const bool is_blocking = !config || config->blocking != 0;
  const std::shared_ptr<NcclCommunicator> c(
      new NcclCommunicator{NcclExchange(id.internal), rank, ranks, current_device, is_blocking});
  if (!c->exchange.is_open()) return ncclSystemError;
  c->sends.resize(static_cast<size_t>(ranks));
  c->receives.resize(static_cast<size_t>(ranks));
  const InitRecord record{ranks, current_device, host_of_devices()};
  c->exchange.publish("init." + std::to_string(rank),
                      std::string(reinterpret_cast<const char*>(&record), sizeof record));
  handles().push_back({* communicator = c});
  *made = &handles().back();
  return is_blocking ? ncclSuccess : ncclInProgress;
}

// ---- calls

// Checks a call's arguments. Sets *stream to the stream that the handle names.
ncclResult_t check_call(Runtime& runtime, const NcclCommunicator& c, const NcclRecord& r, bool has_root,
                        cudaStream_t* stream) {
  if (r.dtype < ncclInt8 || r.dtype > ncclBfloat16 || r.op < -1 || r.op >= ncclNumOps)
    return ncclInvalidArgument;
  if (has_root && (r.root < 0 || r.root >= c.ranks)) return ncclInvalidArgument;
  if (c.state == State::kFinalizing || c.state == State::kFinalized)
    return refuse(r.name(), "the communicator was finalized");
  for (const ncclComm& other : handles())
    if (other.communicator && other.communicator->device == c.device && other.communicator->deferred)
      return refuse(r.name(),
                    "an earlier call on the device is in progress: ncclCommGetAsyncError() has not "
                    "returned ncclSuccess for it");
  if (c.state == State::kInitializing) return refuse(r.name(), "the communicator is being initialized");
  if (c.error != ncclSuccess) return c.error;
  *stream = runtime.stream(*stream);
  if ((*stream)->device != c.device) return refuse(r.name(), "the stream is another device's");
  return runtime.captures.check_work(*stream) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// Marks the calling thread as inside a call for a device.
void enter(const char* function, int device) {
  const auto self = std::this_thread::get_id();
  if (callers().emplace(device, self).first->second != self)
    refuse(function, "two threads call NCCL for device " + std::to_string(device) + " at the same time");
}

// Queues a work. Half of the time the work of a non-blocking communicator is deferred.
ncclResult_t issue(Runtime& runtime, const std::shared_ptr<NcclWork>& work) {
  NcclCommunicator& c = *work->communicator;
  if (c.is_aborted) return ncclInvalidUsage;
  Order choice = next_choice();
  if (c.is_blocking || choice.below(2) == 0) return enqueue_nccl_work(runtime, work), ncclSuccess;
  c.deferred = work;
  c.polls_left = 1 + choice.below(3);
  c.state = State::kCallInProgress;
  return ncclInProgress;
}

ncclResult_t issue_all(Runtime& runtime, const std::vector<Group::Entry>& entries) {
  std::vector<std::shared_ptr<NcclWork>> works;
  for (const auto& [communicator, call, stream] : entries) {
    if (communicator->is_blocking != entries[0].communicator->is_blocking) return ncclInvalidArgument;
    auto found = std::find_if(works.begin(), works.end(),
                              [&](const auto& w) { return w->communicator == communicator; });
    if (found == works.end())
      found = works.insert(
          found, std::make_shared<NcclWork>(NcclWork{communicator, {}, gradus::internal::called_op, stream}));
    if ((*found)->stream != stream) return ncclInvalidUsage;  // several streams: not emulated
    (*found)->calls.push_back(call);
  }
  ncclResult_t status = ncclSuccess;
  for (const auto& work : works)
    if (const ncclResult_t s = issue(runtime, work); s != ncclSuccess) status = s;
  return status;
}

// Issues the calls of the thread's group, which ends.
ncclResult_t end_group() {
  const Group ended = std::exchange(group, {});
  for (const auto& communicator : ended.aborted) wait_for_device(*communicator);
  // Another thread's call may begin before this one ends.
  if (!ended.entries.empty()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  std::erase_if(callers(), [](const auto& caller) { return caller.second == std::this_thread::get_id(); });
  return ended.error != ncclSuccess ? ended.error : issue_all(runtime, ended.entries);
}

// Adds a call to the thread's group. Outside of a group, the call is a group by itself.
ncclResult_t add_call(const NcclRecord& record, const void* send, void* receive, bool has_root,
                      ncclComm_t handle, cudaStream_t stream) {
  const auto add = [&](Runtime& runtime) {
    std::shared_ptr<NcclCommunicator> c;
    if (const ncclResult_t status = find(record.name(), handle, &c); status != ncclSuccess) return status;
    cudaStream_t s = stream;
    const ncclResult_t status = check_call(runtime, *c, record, has_root, &s);
    if (status != ncclSuccess) return status;
    enter(record.name(), c->device);
    const NcclCall call{record, send, receive};
    // NCCL drops empty collectives.
    if (record.count > 0 || record.is_message()) group.entries.push_back({std::move(c), call, s});
    return ncclSuccess;
  };
  const ncclResult_t status = device_call(add, record.name());
  if (group.error == ncclSuccess) group.error = status;
  return group.depth > 0 ? status : end_group();
}

// ---- the end of communicators

// A rank is finalized when its works have ended, the communicator when all ranks are.
bool advance_finalization(Runtime& runtime, NcclCommunicator& c) {
  const auto file = [](int rank) { return "finalized." + std::to_string(rank); };
  if (c.is_aborted || c.state == State::kFinalized) return true;
  if (c.has_pending_work()) runtime.step();
  // One thread may wait for several communicators, one after the other.
  for (const ncclComm& h : handles()) {
    const NcclCommunicator* const own = h.communicator.get();
    if (own && own->state == State::kFinalizing && !own->has_pending_work() &&
        !own->exchange.contains(file(own->rank)))
      own->exchange.publish(file(own->rank), "");
  }
  while (c.finalized < c.ranks && c.exchange.contains(file(c.finalized))) ++c.finalized;
  if (c.finalized < c.ranks) return false;
  c.state = State::kFinalized;
  return true;
}

// Makes progress of what is in progress, and returns the communicator's asynchronous error.
ncclResult_t poll(Runtime& runtime, NcclCommunicator& c) {
  if (c.state == State::kInitializing) advance_initialization(c);
  if (c.state == State::kCallInProgress && --c.polls_left == 0) {
    enqueue_nccl_work(runtime, std::exchange(c.deferred, nullptr));
    c.state = State::kReady;
  }
  if (c.state == State::kFinalizing) advance_finalization(runtime, c);
  if (c.error != ncclSuccess) return c.error;
  return c.state == State::kReady || c.state == State::kFinalized ? ncclSuccess : ncclInProgress;
}

}  // namespace

size_t count_nccl_communicators() {
  const auto lock = Runtime::get().lock();
  return static_cast<size_t>(std::count_if(handles().begin(), handles().end(),
                                           [](const ncclComm& h) { return h.communicator != nullptr; }));
}

}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (!version) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t status) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return static_cast<size_t>(status) < std::size(kTexts) ? kTexts[status] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return "the emulated NCCL has no details"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return device_call([&](Runtime&) {
    if (!id) return ncclInvalidArgument;
    const std::string path = NcclExchange::make_directory();
    if (path.empty() || path.size() >= sizeof id->internal) return ncclSystemError;
    std::memset(id->internal, 0, sizeof id->internal);
    std::memcpy(id->internal, path.data(), path.size());
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  std::shared_ptr<NcclCommunicator> c;
  const ncclResult_t status =
      device_call([&](Runtime&) { return begin_initialization(made, ranks, id, rank, config, &c); });
  if (status != ncclSuccess) return status;
  wait_until([&] {
    if (!c->is_aborted) advance_initialization(*c);
    return c->is_aborted || c->state != State::kInitializing;
  });
  const auto lock = Runtime::get().lock();
  if (c->error != ncclSuccess && !c->is_aborted) leave(std::exchange(*made, nullptr), true);
  return c->error;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  std::shared_ptr<NcclCommunicator> c;
  const ncclResult_t status = device_call([&](Runtime&) {
    if (const ncclResult_t s = find("ncclCommFinalize", handle, &c); s != ncclSuccess) return s;
    if (c->state == State::kFinalizing || c->state == State::kFinalized) return ncclInvalidArgument;
    if (c->state != State::kReady) return refuse("ncclCommFinalize", "a call is in progress");
    if (c->error != ncclSuccess) return c->error;
    check_graphs(Runtime::get(), "ncclCommFinalize", *c);
    c->state = State::kFinalizing;
    return ncclSuccess;
  });
  if (status != ncclSuccess) return status;
  if (!c->is_blocking) return ncclInProgress;
  wait_until([&] { return advance_finalization(Runtime::get(), *c); });
  return ncclSuccess;
}

// Destroys the communicator even if a test injected a failure.
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  const auto lock = Runtime::get().lock();
  const auto injected =
      static_cast<ncclResult_t>(injected_failure("ncclCommDestroy", ncclUnhandledCudaError));
  std::shared_ptr<NcclCommunicator> c;
  if (const ncclResult_t status = find("ncclCommDestroy", handle, &c); status != ncclSuccess) return status;
  check_graphs(Runtime::get(), "ncclCommDestroy", *c);
  const bool is_in_progress = c->state == State::kInitializing || c->has_pending_work();
  leave(handle, is_in_progress);
  return is_in_progress ? refuse("ncclCommDestroy", "calls are in progress: only ncclCommAbort() ends them")
                        : injected;
}

// Aborts the communicator even if a test injected a failure.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  auto lock = Runtime::get().lock();
  const auto injected = static_cast<ncclResult_t>(injected_failure("ncclCommAbort", ncclUnhandledCudaError));
  std::shared_ptr<NcclCommunicator> c;
  if (const ncclResult_t status = find("ncclCommAbort", handle, &c); status != ncclSuccess) return status;
  check_graphs(Runtime::get(), "ncclCommAbort", *c);
  leave(handle, true);
  lock.unlock();
  if (group.depth > 0)
    group.aborted.push_back(c);
  else
    wait_for_device(*c);
  return injected;
}

// A failure that a test injected is reported as an asynchronous error.
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  const int injected = injected_failure("ncclCommGetAsyncError", ncclUnhandledCudaError);
  std::shared_ptr<NcclCommunicator> c;
  const ncclResult_t status = find("ncclCommGetAsyncError", handle, &c);
  if (status != ncclSuccess || !error) return ncclInvalidArgument;
  if (injected) c->error = static_cast<ncclResult_t>(injected);
  *error = poll(runtime, *c);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return add_call({NcclFunction::kAllReduce, type, op, -1, 0, count}, send, receive, false, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return add_call({NcclFunction::kReduce, type, op, root, 0, count}, send, receive, true, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add_call({NcclFunction::kBroadcast, type, -1, root, 0, count}, send, receive, true, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add_call({NcclFunction::kAllGather, type, -1, -1, 0, count}, send, receive, false, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add_call({NcclFunction::kReduceScatter, type, op, -1, 0, count}, send, receive, false, comm, stream);
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_call({NcclFunction::kSend, type, -1, peer, 0, count}, send, nullptr, true, comm, stream);
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_call({NcclFunction::kRecv, type, -1, peer, 0, count}, nullptr, receive, true, comm, stream);
}

ncclResult_t ncclGroupStart() {
  return device_call([](Runtime&) {
    ++group.depth;
    return ncclSuccess;
  });
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  const ncclResult_t status = device_call([](Runtime&) { return ncclSuccess; });
  if (group.error == ncclSuccess) group.error = status;
  return --group.depth > 0 ? status : end_group();
}

}  // extern "C"

namespace gradus::cuda {

const Nccl& nccl(const char*) {
#define GRADUS_FUNCTION(name) &::name,
  static constexpr Nccl functions{GRADUS_NCCL_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  return functions;
}

}  // namespace gradus::cuda
