// Faults of data-parallel training on GPUs. Three ranks are processes, each with an emulated GPU, that train a small
// network together. One of them fails, and run_fault() checks how the others end:
//
//   * each other rank throws a DistributedError whose text names the call and the rank at fault, within 2 s of the
//     fault, or of the calls' timeout if the rank at fault is stopped;
//   * its GPU then computes, and it trains on in a new job of the ranks that are left;
//   * no process hangs or is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradus::dist {

// When a rank fails. The points from kForward to kUpdated are in each step, in this order.
enum class Point {
  kInit,         // before init_process_group
  kModel,        // before the model is wrapped
  kForward,      // after the first layer, before SyncBatchNorm
  kLoss,         // between forward and backward
  kHook,         // in the backward, when `count` gradients are complete
  kBackward,     // after the backward
  kCall,         // at an asynchronous all_reduce; instead of it for Way::kSkip to kOnHost
  kWait,         // while the all_reduce is under way
  kUpdated,      // after a broadcast and the optimizer's step
  kEnd,          // after all steps, before a barrier
  kLeaving,      // after the barrier
  kAny,          // `count` microseconds after the ranks have joined: kKill and kStop only
  kLibraryCall,  // call number `count` of `function` of CUDA or NCCL fails with `status`: kLibraryError only
};

enum class Way {
  kKill,    // SIGKILL
  kStop,    // SIGSTOP, and SIGKILL after the others' end
  kPause,   // SIGSTOP, and SIGCONT after the others' end: the rank then throws their error, or one of joining
  kThrow,   // an exception that nobody catches
  kExit,    // std::exit(3)
  kReturn,  // main() returns 0
  kKernelError,   // a kernel reads an index that is out of range
  kLoseDevice,    // all further calls of CUDA fail
  kSkip,          // leaves out the all_reduce
  kShape,         // calls all_reduce with another shape
  kOp,            // calls all_reduce with another reduction
  kOtherCall,     // calls broadcast
  kOnHost,        // calls all_reduce with a tensor of the host
  kLibraryError,  // see Point::kLibraryCall
};

constexpr int kRanks = 3, kSteps = 4;

struct RankFault {
  Point point;
  Way way;
  int rank = 1;  // at fault
  int step = 1;  // of points that are in each step
  int64_t count = 0;
  std::string function = {};
  int status = 0;
  bool by_nccl = true;            // false: the data goes through host memory
  bool rank_0_has_store = false;  // false: the store's server is outside of the ranks
  int second = -1;                // a rank that is killed as soon as it has thrown
  uint64_t seed = 1;              // of the emulated GPUs
};

struct FaultReport {
  bool has_happened = false;
  std::vector<std::string> wrong = {};  // empty: all ranks ended as they must
};

// A fault as text: "nccl kill hook rank=1 step=2 ...". Errors of parse_fault: ValueError.
std::string describe(const RankFault& fault);
RankFault parse_fault(const std::string& text);
FaultReport run_fault(const RankFault& fault);

// A program that calls run_fault() first calls this function. In the processes of the ranks it returns their exit code.
std::optional<int> run_as_rank(int argc, char** argv);

}  // namespace gradus::dist
