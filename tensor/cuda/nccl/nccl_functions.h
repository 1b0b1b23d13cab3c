// The functions of NCCL that Gradus calls: communicators, collectives and messages between GPUs. Programs do not link
// with NCCL: the first collective on GPUs opens the library with dlopen.
//
//   int version;
//   const ncclResult_t status = nccl("all_reduce").ncclGetVersion(&version);
#pragma once

#include <nccl.h>

// Expands F(name) for each function.
#define GRADUS_NCCL_FUNCTIONS(F) \
  F(ncclGetVersion)              \
  F(ncclGetUniqueId)             \
  F(ncclCommInitRankConfig)      \
  F(ncclCommFinalize)            \
  F(ncclCommDestroy)             \
  F(ncclCommAbort)               \
  F(ncclCommGetAsyncError)       \
  F(ncclGetErrorString)          \
  F(ncclGetLastError)            \
  F(ncclAllReduce)               \
  F(ncclReduce)                  \
  F(ncclBroadcast)               \
  F(ncclAllGather)               \
  F(ncclReduceScatter)           \
  F(ncclSend)                    \
  F(ncclRecv)                    \
  F(ncclGroupStart)              \
  F(ncclGroupEnd)

namespace gradus::cuda {

// Pointers to the functions, with NCCL's names and signatures.
struct Nccl {
#define GRADUS_MEMBER(name) decltype(&::name) name;
  GRADUS_NCCL_FUNCTIONS(GRADUS_MEMBER)
#undef GRADUS_MEMBER
};

// Returns the functions, loaded until the process ends. The first call opens the library. Thread-safe.
// Errors: DeviceError if NCCL or a function is missing, with the name `op` of the calling op and how to install the
// library. A later call tries again.
const Nccl& nccl(const char* op);

}  // namespace gradus::cuda
