// Types of the emulated NCCL: communicators, calls, and the work that a call or a group of calls queues on a
// stream. Callers hold the runtime's lock.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/libraries/nccl_exchange.h"
#include "gradus/tools/cuda_emulator/streams.h"

namespace gradus::cuda::emulated {

// Returns the number of communicators that were initialized and neither destroyed nor aborted. For tests,
// which check for leaks. Takes the runtime's lock.
size_t count_nccl_communicators();

enum class NcclFunction : int32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kSend,
  kRecv
};

// The arguments of a call that its ranks compare.
struct NcclRecord {
  NcclFunction function;
  int32_t dtype, op;   // op -1: none
  int32_t root;        // or the peer of a message; -1: none
  int32_t group_size;  // number of collectives in the group; 0 for messages
  uint64_t count;

  bool operator==(const NcclRecord&) const = default;
  bool is_message() const { return function >= NcclFunction::kSend; }
  const char* name() const;
  std::string describe() const;  // "ncclReduce(count 3, float32, sum, root 0)"
};

struct NcclCall {
  NcclRecord record;
  const void* send;
  void* receive;
  std::string sent{};                 // the file that this rank publishes
  std::vector<std::string> needed{};  // files: of a collective, one per rank; of a message, the peer's
  std::string input{};                // the bytes at `send` after the first half of the work
};

struct NcclWork;

struct NcclCommunicator {
  // kCallInProgress: a call of a non-blocking communicator returned ncclInProgress, and is queued by a later
  // ncclCommGetAsyncError().
  enum class State { kInitializing, kReady, kCallInProgress, kFinalizing, kFinalized };

  NcclExchange exchange;
  int rank, ranks, device;
  bool is_blocking;
  State state = State::kInitializing;
  ncclResult_t error = ncclSuccess;  // asynchronous
  bool is_aborted = false;
  int initialized = 0, finalized = 0;  // numbers of ranks
  std::shared_ptr<NcclWork> deferred{};
  uint32_t polls_left = 0;                             // until `deferred` is queued
  uint64_t collectives = 0;                            // number of collectives that were queued
  std::vector<uint64_t> sends{}, receives{};           // numbers of messages to and from each rank
  std::vector<std::string> old_files{};                // of this rank's latest finished collectives
  std::vector<std::weak_ptr<const NcclWork>> works{};  // that were queued

  bool has_queued_work() const;
  bool has_pending_work() const { return deferred || has_queued_work(); }
};

// The calls of one communicator in one group, or a single call. Its halves are two works on the stream: the
// first publishes the inputs, the second needs the files of other ranks and writes the outputs.
struct NcclWork {
  std::shared_ptr<NcclCommunicator> communicator;
  std::vector<NcclCall> calls;
  const char* op;  // the Gradus op that was called, a string literal; null: none
  cudaStream_t stream;
  size_t present = 0;         // number of needed files that are known to exist
  bool is_invalid = false;    // the first half found a fault: all ranks skip the work
  bool is_cancelled = false;  // part of a deadlock
  bool has_finished = false;

  bool is_aborted() const { return is_cancelled || communicator->is_aborted; }
  // The files for which the second half waits: of messages, and of the first collective.
  std::vector<std::string> needed() const;
};

// Queues both halves, or adds them to a graph, of which each launch is a new call. Works of one device exclude each other, and only streams order them: as at worst on a GPU without
// NCCL_LAUNCH_ORDER_IMPLICIT=1, where each may take the resources that the other one needs.
void enqueue_nccl_work(Runtime& runtime, const std::shared_ptr<NcclWork>& work);
// Returns the work of a device whose first half has run, and the second has not; or null.
std::shared_ptr<NcclWork> running_nccl_work(int device);
// Returns a text that names a communicator and its rank.
std::string name_of(const NcclCommunicator& c);

}  // namespace gradus::cuda::emulated
