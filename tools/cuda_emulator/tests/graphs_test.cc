// Tests of the emulated stream captures and graphs. Statuses equal those of an H100 (cudart_answers.txt), or
// those of CUDA's manual where none is recorded. Work of a graph runs in 20 orders: a correct program is
// correct in all of them, and one with missing synchronization fails in many.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/cuda_emulator/pinned.h"
#include "gradus/tools/cuda_emulator/streams.h"
#include "graph_kernels.h"
#include "record.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

constexpr uint64_t kSeeds = 20;

// Clears the last error, and returns the status.
cudaError_t status_of(cudaError_t status) {
  cudaGetLastError();
  return status;
}
#define EXPECT_STATUS(status, ...) EXPECT_EQ(status_of(__VA_ARGS__), status) << #__VA_ARGS__
#define MUST(...) ASSERT_EQ(__VA_ARGS__, cudaSuccess) << #__VA_ARGS__

cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
  return stream;
}
cudaEvent_t make_event() {
  cudaEvent_t event;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  return event;
}
template <class T> T* make_memory(size_t count) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, count * sizeof(T)), cudaSuccess);
  return static_cast<T*>(p);
}
template <class T> T* make_pinned(size_t count) {
  void* p = nullptr;
  EXPECT_EQ(cudaMallocHost(&p, count * sizeof(T)), cudaSuccess);
  return static_cast<T*>(p);
}

// Returns "none", "active", "invalidated", or the name of an error.
std::string status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (const cudaError_t e = status_of(cudaStreamIsCapturing(stream, &status)); e != cudaSuccess)
    return cudaGetErrorName(e);
  return status == cudaStreamCaptureStatusNone     ? "none"
         : status == cudaStreamCaptureStatusActive ? "active"
                                                   : "invalidated";
}
// Ends a capture and drops its graph.
cudaError_t end_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t status = status_of(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(graph != nullptr, status == cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), graph ? cudaSuccess : cudaErrorInvalidValue);
  return status_of(status);
}
size_t count_nodes(cudaGraph_t graph) {
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  return count;
}

cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  work();
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  return graph;
}
cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess) << "it may go";
  return executable;
}

// Runs each test on fresh devices, and checks for leaks.
class EmulatedGraphs : public testing::Test {
 protected:
  void SetUp() override {
    set_seed(1);
    set_devices(2, size_t(1) << 20);
    cudaSetDevice(0);
  }
  void TearDown() override {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    for (int d = 0; d < 2; ++d) {
      cudaSetDevice(d);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(memory_of(d)->blocks(), 0u);
    }
    cudaSetDevice(0);
    const Runtime& runtime = Runtime::get();
    EXPECT_EQ(runtime.graphs.size(), 0u);
    EXPECT_EQ(runtime.executable_graphs.size(), 0u);
    EXPECT_EQ(runtime.streams(), 0u);
    EXPECT_EQ(runtime.events, 0u);
    EXPECT_EQ(count_pinned(), 0u);
  }
};

// ---- what may be called while a stream is captured

// The objects on which the recorded calls operate.
struct Scene {
  cudaStream_t s = make_stream(), other = make_stream(), blocking = make_stream(cudaStreamDefault);
  cudaEvent_t before = make_event(), event = make_event(), unrecorded = make_event();
  char *d = make_memory<char>(4096), *pinned = make_pinned<char>(4096);
  void *extra = make_memory<char>(4096), *extra_host = make_pinned<char>(4096);
  char pageable[4096] = {};

  void destroy() {
    for (const cudaStream_t stream : {s, other, blocking})
      EXPECT_EQ(cudaStreamDestroy(stream), stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
    for (const cudaEvent_t e : {before, event, unrecorded})
      EXPECT_EQ(cudaEventDestroy(e), e ? cudaSuccess : cudaErrorInvalidResourceHandle);
    for (void* const p : {static_cast<void*>(d), extra}) EXPECT_EQ(cudaFree(p), cudaSuccess);
    for (void* const p : {static_cast<void*>(pinned), extra_host}) EXPECT_EQ(cudaFreeHost(p), cudaSuccess);
    cudaGetLastError();
  }
};

// Makes one call in the middle of a capture, as the recorder did.
void in_capture(Record* record, const char* asked, cudaStreamCaptureMode mode,
                const std::function<cudaError_t(Scene&)>& call) {
  Scene c;
  MUST(cudaEventRecord(c.before, c.other));
  MUST(cudaDeviceSynchronize());
  MUST(cudaStreamBeginCapture(c.s, mode));
  MUST(graph_kernels::nothing(1, c.s));
  const std::string answer = said(call(c)), then = status_of(c.s);
  cudaGraph_t graph = nullptr;
  const cudaError_t end = cudaStreamEndCapture(c.s, &graph);
  const cudaError_t last = cudaGetLastError();
  const std::string got = answer + "; capture then " + then + "; end: " + cudaGetErrorName(end) + ", " +
                          (graph ? "graph" : "null") + ", " + std::to_string(graph ? count_nodes(graph) : 0) +
                          " nodes; last error after end: " + cudaGetErrorName(last);
  EXPECT_EQ(got, record->next(asked)) << asked;
  cudaGraphDestroy(graph);
  for (const cudaStream_t t : {c.other, c.blocking})
    if (t && status_of(t) != "none") end_capture(t);
  c.destroy();
}

// Returns the status of a launch. The recorder read it with cudaGetLastError(), which clears the error.
cudaError_t launched(cudaError_t status) {
  cudaGetLastError();
  return status;
}
cudaError_t on_another_thread(const std::function<cudaError_t()>& call) {
  cudaError_t status;
  std::thread([&] { status = call(); }).join();
  return status;
}

TEST_F(EmulatedGraphs, AnswersAsRecordedWhileAStreamIsCaptured) {
  for (const auto& [mode, group] : {std::pair{cudaStreamCaptureModeGlobal, "capture, global"},
                                    std::pair{cudaStreamCaptureModeThreadLocal, "capture, thread-local"},
                                    std::pair{cudaStreamCaptureModeRelaxed, "capture, relaxed"}}) {
    SCOPED_TRACE(group);
    Record record(group);
#define CAPTURED(...)                     \
  in_capture(&record, #__VA_ARGS__, mode, \
             []([[maybe_unused]] Scene& c) -> cudaError_t { return __VA_ARGS__; })
    CAPTURED(cudaSuccess);
    in_capture(&record, "cudaMalloc(&c.extra, 1 << 20)", mode, [](Scene& c) {
      void* p = nullptr;
      const cudaError_t status = cudaMalloc(&p, 4096);
      if (status == cudaSuccess) cudaFree(std::exchange(c.extra, p));
      return status;
    });
    in_capture(&record, "cudaFree(c.extra)", mode, [](Scene& c) {
      const cudaError_t status = cudaFree(c.extra);
      if (status == cudaSuccess) c.extra = nullptr;
      return status;
    });
    CAPTURED(cudaFree(nullptr));
    in_capture(&record, "cudaMallocHost(&c.extra_host, 4096)", mode, [](Scene& c) {
      void* p = nullptr;
      const cudaError_t status = cudaMallocHost(&p, 4096);
      if (status == cudaSuccess) cudaFreeHost(std::exchange(c.extra_host, p));
      return status;
    });
    in_capture(&record, "cudaFreeHost(c.extra_host)", mode, [](Scene& c) {
      const cudaError_t status = cudaFreeHost(c.extra_host);
      if (status == cudaSuccess) c.extra_host = nullptr;
      return status;
    });
    in_capture(&record, "cudaHostRegister(c.pageable, 4096, 0)", mode, [](Scene& c) {
      const cudaError_t status = cudaHostRegister(c.pageable, 4096, 0);
      if (status == cudaSuccess) cudaHostUnregister(c.pageable);
      return status;
    });
    CAPTURED(cudaDeviceSynchronize());
    CAPTURED(cudaStreamSynchronize(c.s));
    CAPTURED(cudaStreamSynchronize(c.other));
    CAPTURED(cudaStreamSynchronize(nullptr));
    CAPTURED(cudaStreamQuery(c.s));
    CAPTURED(cudaStreamQuery(c.other));
    CAPTURED(cudaStreamQuery(nullptr));
    CAPTURED(cudaEventQuery(c.before));
    CAPTURED(cudaEventSynchronize(c.before));
    CAPTURED(cudaEventRecord(c.event, c.s));
    CAPTURED((cudaEventRecord(c.event, c.s), cudaEventQuery(c.event)));
    CAPTURED((cudaEventRecord(c.event, c.s), cudaEventSynchronize(c.event)));
    in_capture(&record, "(cudaEventRecord(c.event, c.s), cudaEventDestroy(c.event))", mode, [](Scene& c) {
      return cudaEventRecord(c.event, c.s), cudaEventDestroy(std::exchange(c.event, nullptr));
    });
    CAPTURED(cudaStreamWaitEvent(c.s, c.before, 0));
    CAPTURED(cudaStreamWaitEvent(c.s, c.unrecorded, 0));
    CAPTURED((cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0)));
    in_capture(&record,
               "(cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0), nothing<<<1, 1, 0, "
               "c.other>>>(), cudaGetLastError())",
               mode, [](Scene& c) {
                 cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0);
                 return launched(graph_kernels::nothing(1, c.other));
               });
    in_capture(&record,
               "(cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0), nothing<<<1, 1, 0, "
               "c.other>>>(), cudaEventRecord(c.event, c.other), cudaStreamWaitEvent(c.s, c.event, 0))",
               mode, [](Scene& c) {
                 cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0);
                 graph_kernels::nothing(1, c.other), cudaEventRecord(c.event, c.other);
                 return cudaStreamWaitEvent(c.s, c.event, 0);
               });
    CAPTURED((cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(nullptr, c.event, 0)));
    in_capture(&record, "(nothing<<<1, 1>>>(), cudaGetLastError())", mode,
               [](Scene&) { return launched(graph_kernels::nothing(1, nullptr)); });
    in_capture(&record, "(nothing<<<1, 1, 0, c.other>>>(), cudaGetLastError())", mode,
               [](Scene& c) { return launched(graph_kernels::nothing(1, c.other)); });
    in_capture(&record, "(nothing<<<1, 1, 0, c.blocking>>>(), cudaGetLastError())", mode,
               [](Scene& c) { return launched(graph_kernels::nothing(1, c.blocking)); });
    in_capture(&record, "(nothing<<<1, 2000, 0, c.s>>>(), cudaGetLastError())", mode,
               [](Scene& c) { return launched(graph_kernels::nothing(2000, c.s)); });
    CAPTURED(cudaMemcpy(c.d, c.pageable, 64, cudaMemcpyHostToDevice));
    CAPTURED(cudaMemcpyAsync(c.d, c.pageable, 64, cudaMemcpyHostToDevice, c.s));
    CAPTURED(cudaMemcpyAsync(c.pageable, c.d, 64, cudaMemcpyDeviceToHost, c.s));
    CAPTURED(cudaMemcpyAsync(c.d, c.pinned, 64, cudaMemcpyHostToDevice, c.s));
    CAPTURED(cudaMemcpyAsync(c.d, c.d + 64, 64, cudaMemcpyDeviceToDevice, c.s));
    CAPTURED(cudaMemcpyAsync(c.d, c.d + 64, 64, cudaMemcpyDeviceToDevice, nullptr));
    CAPTURED(cudaMemcpyAsync(c.d, c.pinned, 5000, cudaMemcpyHostToDevice, c.s));
    CAPTURED(cudaMemset(c.d, 0, 64));
    CAPTURED(cudaMemsetAsync(c.d, 0, 64, c.s));
    in_capture(&record, "cudaLaunchHostFunc(c.s, [](void*) {}, nullptr)", mode, [](Scene& c) {
      return cudaLaunchHostFunc(
          c.s, [](void*) {}, nullptr);
    });
    in_capture(&record, "cudaStreamCreate(&c.blocking)", mode,
               [](Scene& c) { return cudaStreamDestroy(c.blocking), cudaStreamCreate(&c.blocking); });
    in_capture(&record,
               "[&] { const cudaError_t e = cudaStreamDestroy(c.other); c.other = nullptr; return e; }()",
               mode, [](Scene& c) { return cudaStreamDestroy(std::exchange(c.other, nullptr)); });
    in_capture(&record, "cudaEventCreate(&c.event)", mode,
               [](Scene& c) { return cudaEventDestroy(c.event), cudaEventCreate(&c.event); });
    in_capture(&record, "cudaEventDestroy(c.before)", mode,
               [](Scene& c) { return cudaEventDestroy(std::exchange(c.before, nullptr)); });
    CAPTURED(cudaEventRecord(c.before, c.other));
    CAPTURED(cudaStreamBeginCapture(c.s, cudaStreamCaptureModeRelaxed));
    CAPTURED(cudaStreamBeginCapture(c.other, cudaStreamCaptureModeRelaxed));
    in_capture(&record, "[&] { size_t a, b; return cudaMemGetInfo(&a, &b); }()", mode,
               [](Scene&) { return cudaMemGetInfo(nullptr, nullptr); });
    CAPTURED([&] {
      cudaDeviceProp a;
      return cudaGetDeviceProperties(&a, 0);
    }());
    CAPTURED([&] {
      cudaPointerAttributes a;
      return cudaPointerGetAttributes(&a, c.d);
    }());
    CAPTURED([&] {
      float ms;
      return cudaEventElapsedTime(&ms, c.before, c.before);
    }());
    CAPTURED(cudaSetDevice(0));
    in_capture(
        &record,
        "[&] { cudaError_t e; std::thread([&] { e = cudaMalloc(&c.extra, 4096); }).join(); return e; }()",
        mode, [](Scene& c) {
          void* const old = c.extra;
          const cudaError_t e = on_another_thread([&] { return cudaMalloc(&c.extra, 4096); });
          if (e != cudaSuccess) return c.extra = old, e;
          cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
          cudaThreadExchangeStreamCaptureMode(&relaxed);
          EXPECT_EQ(cudaFree(old), cudaSuccess);
          cudaThreadExchangeStreamCaptureMode(&relaxed);
          return e;
        });
    in_capture(
        &record,
        "[&] { cudaError_t e; std::thread([&] { e = cudaStreamQuery(c.other); }).join(); return e; }()", mode,
        [](Scene& c) { return on_another_thread([&] { return cudaStreamQuery(c.other); }); });
    in_capture(
        &record,
        "[&] { cudaError_t e; std::thread([&] { e = cudaStreamSynchronize(c.other); }).join(); return e; }()",
        mode, [](Scene& c) { return on_another_thread([&] { return cudaStreamSynchronize(c.other); }); });
    in_capture(&record,
               "[&] { cudaError_t e; std::thread([&] { e = cudaDeviceSynchronize(); }).join(); return e; }()",
               mode, [](Scene&) { return on_another_thread(cudaDeviceSynchronize); });
    in_capture(
        &record,
        "[&] { cudaError_t e; std::thread([&] { e = cudaMemcpy(c.d, c.pageable, 64, "
        "cudaMemcpyHostToDevice); }).join(); return e; }()",
        mode, [](Scene& c) {
          return on_another_thread([&] { return cudaMemcpy(c.d, c.pageable, 64, cudaMemcpyHostToDevice); });
        });
    in_capture(&record,
               "[&] { cudaError_t e; std::thread([&] { nothing<<<1, 1, 0, c.s>>>(); e = cudaGetLastError(); "
               "}).join(); return e; }()",
               mode,
               [](Scene& c) { return on_another_thread([&] { return graph_kernels::nothing(1, c.s); }); });
    in_capture(&record,
               "[&] { cudaError_t e; std::thread([&] { cudaGraph_t g; e = cudaStreamEndCapture(c.s, &g); "
               "}).join(); return e; }()",
               mode, [](Scene& c) { return on_another_thread([&] { return end_capture(c.s); }); });
    in_capture(
        &record,
        "[&] { auto m = cudaStreamCaptureModeRelaxed; cudaThreadExchangeStreamCaptureMode(&m); const "
        "cudaError_t e = cudaMalloc(&c.extra, 4096); cudaThreadExchangeStreamCaptureMode(&m); return e; "
        "}()",
        mode, [](Scene&) {
          auto m = cudaStreamCaptureModeRelaxed;
          EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&m), cudaSuccess);
          EXPECT_EQ(m, cudaStreamCaptureModeGlobal);
          void* p = nullptr;
          const cudaError_t e = cudaMalloc(&p, 4096);
          EXPECT_EQ(cudaFree(p), cudaSuccess);
          EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&m), cudaSuccess);
          return e;
        });
#undef CAPTURED
  }
}

TEST_F(EmulatedGraphs, AnswersAsRecordedAboutTheEndOfACapture) {
  Record record("capture ends");
  cudaStream_t s;
  cudaGraph_t g;
  MUST(cudaStreamCreate(&s));
  ASK(cudaStreamEndCapture(s, &g));
  ASK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
  ASK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed));
  ASK(cudaStreamEndCapture(cudaStreamPerThread, &g));
  MUST(cudaGraphDestroy(g));
#if !defined(__SANITIZE_ADDRESS__)  // sanitizers refuse values outside of an enum
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureMode(7)));
#endif
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ASK(cudaStreamEndCapture(s, nullptr));
  EXPECT_EQ(status_of(s), record.next("capture after an end without a place for the graph"));
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ASK(cudaStreamEndCapture(s, &g));
  size_t nodes = 99;
  ASK(cudaGraphGetNodes(g, nullptr, &nodes));
  EXPECT_EQ(std::to_string(nodes), record.next("nodes of an empty capture"));
  MUST(cudaGraphDestroy(g));
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ASK(cudaStreamDestroy(s));
  ASK(cudaDeviceSynchronize());
  cudaStreamCaptureStatus status;
  ASK(cudaStreamIsCapturing(nullptr, &status));
}

TEST_F(EmulatedGraphs, AnswersAsRecordedAboutGraphs) {
  Record record("graphs");
  const cudaStream_t s = make_stream();
  cudaGraph_t empty;
  cudaGraphExec_t exec, stale_exec;
  ASK(cudaGraphCreate(&empty, 0));
  ASK(cudaGraphCreate(&empty, 1));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphCreate(nullptr, 0));
  ASK(cudaGraphInstantiate(&exec, empty, 0));
  ASK(cudaGraphLaunch(exec, s));
  ASK(cudaGraphLaunch(exec, nullptr));
  ASK(cudaGraphLaunch(nullptr, s));
  cudaGraphExec_t none;
  EXPECT_EQ(said(cudaGraphInstantiate(&none, nullptr, 0)),
            record.next("cudaGraphInstantiate(&exec, nullptr, 0)"));
  ASK(cudaGraphExecDestroy(exec));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphExecDestroy(exec));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphLaunch(exec, s));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphInstantiate(nullptr, empty, 0));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphInstantiate(&exec, empty, 16));
  EXPECT_STATUS(cudaErrorNotSupported,
                cudaGraphInstantiate(&exec, empty, cudaGraphInstantiateFlagDeviceLaunch));
  MUST(cudaGraphDestroy(empty));
  const cudaGraph_t g = empty;
  EXPECT_EQ(said(cudaGraphDestroy(g)), Record("graph destroyed twice").next("cudaGraphDestroy(g)"));
  // A buffer freed after the capture.
  char* const gone = make_memory<char>(4096);
  const cudaGraph_t stale = capture(s, [&] { MUST(cudaMemsetAsync(gone, 0, 4096, s)); });
  MUST(cudaFree(gone));
  ASK(cudaGraphInstantiate(&stale_exec, stale, 0));
  MUST(cudaGraphDestroy(stale));
  // The nodes.
  const cudaGraph_t two = capture(s, [&] {
    MUST(graph_kernels::nothing(1, s));
    MUST(graph_kernels::nothing(1, s));
  });
  cudaGraphNode_t nodes[3] = {};
  size_t count = 3;
  MUST(cudaGraphGetNodes(two, nodes, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_TRUE(nodes[0] && nodes[1] && nodes[0] != nodes[1] && !nodes[2]);
  count = 1;
  MUST(cudaGraphGetNodes(two, nodes, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphGetNodes(two, nodes, nullptr));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphGetNodes(nullptr, nodes, &count));
  MUST(cudaGraphDestroy(two));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaGraphGetNodes(two, nodes, &count));
  MUST(cudaStreamDestroy(s));
}

// ---- not recorded: expected from CUDA's manual

TEST_F(EmulatedGraphs, WhatTheLegacyStreamMayNotDoBesideACapturedBlockingStream) {
  const cudaStream_t s = make_stream(cudaStreamDefault);
  const cudaEvent_t event = make_event();
  char* const d = make_memory<char>(64);
  const std::function<cudaError_t()> calls[] = {[&] { return graph_kernels::nothing(1, nullptr); },
                                                [&] { return cudaMemset(d, 0, 64); },
                                                [&] { return cudaMemcpy(d, d + 32, 32, cudaMemcpyDefault); },
                                                [&] { return cudaEventRecord(event, nullptr); },
                                                [&] { return cudaStreamWaitEvent(nullptr, event, 0); },
                                                [&] { return cudaStreamSynchronize(nullptr); },
                                                [&] { return cudaStreamQuery(cudaStreamLegacy); },
                                                [&] {
                                                  return cudaLaunchHostFunc(
                                                      nullptr, [](void*) {}, nullptr);
                                                }};
  for (const auto& call : calls) {
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    cudaStreamCaptureStatus status;
    EXPECT_STATUS(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(nullptr, &status));
    EXPECT_STATUS(cudaErrorStreamCaptureImplicit,
                  cudaStreamGetCaptureInfo(nullptr, &status, nullptr, nullptr, nullptr, nullptr, nullptr));
    EXPECT_EQ(status_of(s), "active") << "asking harms nothing";
    EXPECT_STATUS(cudaErrorStreamCaptureImplicit, call());
    EXPECT_EQ(status_of(s), "invalidated");
    EXPECT_EQ(end_capture(s), cudaErrorStreamCaptureInvalidated);
    EXPECT_STATUS(cudaSuccess, call());
  }
  // Another device's legacy stream does not wait.
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  cudaSetDevice(1);
  EXPECT_STATUS(cudaSuccess, graph_kernels::nothing(1, nullptr));
  cudaSetDevice(0);
  EXPECT_EQ(end_capture(s), cudaSuccess);
  MUST(cudaFree(d));
  MUST(cudaEventDestroy(event));
  MUST(cudaStreamDestroy(s));
}

TEST_F(EmulatedGraphs, CapturesMustNotMeet) {
  const cudaStream_t s = make_stream(), t = make_stream(), u = make_stream();
  const cudaEvent_t event = make_event();
  // Two captures.
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  MUST(cudaStreamBeginCapture(t, cudaStreamCaptureModeRelaxed));
  MUST(cudaEventRecord(event, s));
  EXPECT_STATUS(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(t, event, 0));
  for (const cudaStream_t stream : {s, t}) {
    EXPECT_EQ(status_of(stream), "invalidated");
    EXPECT_STATUS(cudaErrorStreamCaptureInvalidated, graph_kernels::nothing(1, stream));
    EXPECT_STATUS(cudaErrorStreamCaptureInvalidated, cudaEventRecord(event, stream));
    EXPECT_STATUS(cudaErrorStreamCaptureInvalidated, cudaStreamWaitEvent(stream, event, 0));
    EXPECT_EQ(end_capture(stream), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(status_of(stream), "none");
  }
  // A capture that another stream began.
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  MUST(cudaEventRecord(event, s));
  MUST(cudaStreamWaitEvent(t, event, 0));
  EXPECT_EQ(status_of(t), "active");
  EXPECT_STATUS(cudaErrorIllegalState, cudaStreamBeginCapture(t, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(end_capture(t), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end_capture(s), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(status_of(t), "none");
  // An event of a capture that has ended.
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  MUST(cudaEventRecord(event, s));
  EXPECT_EQ(end_capture(s), cudaSuccess);
  float ms;
  EXPECT_STATUS(cudaErrorCapturedEvent, cudaEventQuery(event));
  EXPECT_STATUS(cudaErrorCapturedEvent, cudaEventSynchronize(event));
  EXPECT_STATUS(cudaErrorCapturedEvent, cudaEventElapsedTime(&ms, event, event));
  EXPECT_STATUS(cudaErrorCapturedEvent, cudaStreamWaitEvent(t, event, 0));
  MUST(cudaStreamBeginCapture(t, cudaStreamCaptureModeRelaxed));
  EXPECT_STATUS(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(t, event, 0));
  EXPECT_EQ(end_capture(t), cudaErrorStreamCaptureInvalidated);
  MUST(cudaEventRecord(event, u));
  EXPECT_STATUS(cudaSuccess, cudaEventSynchronize(event));
  // External events are not emulated.
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  EXPECT_STATUS(cudaErrorNotSupported, cudaStreamWaitEvent(s, event, cudaEventWaitExternal));
  EXPECT_EQ(end_capture(s), cudaSuccess);
  for (const cudaStream_t stream : {s, t, u}) MUST(cudaStreamDestroy(stream));
  MUST(cudaEventDestroy(event));
}

TEST_F(EmulatedGraphs, WhatIsForkedMustBeJoined) {
  const cudaStream_t s = make_stream(), t = make_stream();
  const cudaEvent_t event = make_event();
  const auto fork = [&] {
    EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, s), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(t, event, 0), cudaSuccess);
    EXPECT_EQ(graph_kernels::nothing(1, t), cudaSuccess);
  };
  fork();
  EXPECT_EQ(end_capture(s), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status_of(t), "none");
  // Work that is captured after the join.
  fork();
  MUST(cudaEventRecord(event, t));
  MUST(cudaStreamWaitEvent(s, event, 0));
  MUST(graph_kernels::nothing(1, t));
  EXPECT_EQ(end_capture(s), cudaErrorStreamCaptureUnjoined);
  // A stream that is destroyed before it is joined.
  const cudaStream_t gone = make_stream();
  fork();
  MUST(cudaStreamWaitEvent(gone, event, 0));
  MUST(graph_kernels::nothing(1, gone));
  MUST(cudaStreamDestroy(gone));
  MUST(cudaEventRecord(event, t));
  MUST(cudaStreamWaitEvent(s, event, 0));
  EXPECT_EQ(end_capture(s), cudaErrorStreamCaptureUnjoined);
  // The stream that began the capture is destroyed.
  fork();
  MUST(cudaStreamDestroy(s));
  EXPECT_EQ(status_of(t), "none");
  MUST(cudaStreamDestroy(t));
  MUST(cudaEventDestroy(event));
}

TEST_F(EmulatedGraphs, ACaptureTellsItsNumber) {
  const cudaStream_t s = make_stream();
  cudaStreamCaptureStatus status;
  unsigned long long first = 0, second = 0;
  size_t count = 99;
  const auto ask = [&](unsigned long long* id) {
    return cudaStreamGetCaptureInfo(s, &status, id, nullptr, nullptr, nullptr, &count);
  };
  MUST(ask(&first));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  MUST(ask(&first));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(count, 0u);
  MUST(graph_kernels::nothing(1, s));
  MUST(ask(nullptr));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(end_capture(s), cudaSuccess);
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  MUST(ask(&second));
  EXPECT_NE(first, second);
  cudaGraph_t graph;
  const cudaGraphEdgeData* edges;
  EXPECT_STATUS(cudaErrorNotSupported,
                cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  EXPECT_STATUS(cudaErrorInvalidValue,
                cudaStreamGetCaptureInfo(s, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  EXPECT_STATUS(cudaErrorInvalidValue,
                cudaStreamGetCaptureInfo(s, &status, nullptr, nullptr, nullptr, &edges, nullptr));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaStreamIsCapturing(s, nullptr));
  EXPECT_STATUS(cudaErrorInvalidValue, cudaThreadExchangeStreamCaptureMode(nullptr));
#if !defined(__SANITIZE_ADDRESS__)
  auto unknown = cudaStreamCaptureMode(3);
  EXPECT_STATUS(cudaErrorInvalidValue, cudaThreadExchangeStreamCaptureMode(&unknown));
#endif
  EXPECT_EQ(end_capture(s), cudaSuccess);
  // No graph within a graph.
  const cudaGraphExec_t executable = instantiate(capture(s, [&] { MUST(graph_kernels::nothing(1, s)); }));
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  EXPECT_STATUS(cudaErrorNotSupported, cudaGraphLaunch(executable, s));
  EXPECT_EQ(end_capture(s), cudaSuccess);
  MUST(cudaGraphExecDestroy(executable));
  MUST(cudaStreamDestroy(s));
}

TEST_F(EmulatedGraphs, AnEndThatATestLetsFailEndsTheCapture) {
  const cudaStream_t s = make_stream();
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  fail_call_of("cudaStreamEndCapture", 0, cudaErrorInvalidValue);
  EXPECT_EQ(end_capture(s), cudaErrorInvalidValue);
  EXPECT_EQ(status_of(s), "none");
  fail_call_of("cudaGraphCreate", 0, cudaErrorMemoryAllocation);
  cudaGraph_t graph;
  EXPECT_STATUS(cudaErrorMemoryAllocation, cudaGraphCreate(&graph, 0));
  MUST(cudaStreamDestroy(s));
}

// ---- what graphs compute

struct Mistake {
  bool forked_early = false;  // the second stream does not wait for what it reads
  bool joined_late = false;   // the sum does not wait for the second stream
  bool overwritten = false;   // the source changes before the graph has read it
  bool no_event = false;      // a third stream does not wait for the graph
  bool early = false;         // the host does not wait
};

// Launches a graph of two streams three times, which computes 4 x + 3 of x in pinned memory. Returns whether
// all results are correct and no fault was found.
bool is_right(const Mistake& mistake) {
  constexpr int n = 32;
  constexpr size_t bytes = n * sizeof(float);
  FaultScope faults;
  const cudaStream_t s = make_stream(), t = make_stream(), reader = make_stream();
  const cudaEvent_t forked = make_event(), joined = make_event(), done = make_event();
  float *const from = make_pinned<float>(n), *const to = make_pinned<float>(n);
  float *a = make_memory<float>(n), *b = make_memory<float>(n), *c = make_memory<float>(n),
        *d = make_memory<float>(n);
  const cudaGraphExec_t graph = instantiate(capture(s, [&] {
    if (mistake.forked_early) cudaEventRecord(forked, s);
    cudaMemcpyAsync(a, from, bytes, cudaMemcpyDefault, s);
    if (!mistake.forked_early) cudaEventRecord(forked, s);
    cudaStreamWaitEvent(t, forked, 0);
    graph_kernels::add(c, a, a, 2, n, t);
    cudaEventRecord(joined, t);
    graph_kernels::add(b, a, a, 1, n, s);
    if (!mistake.joined_late) cudaStreamWaitEvent(s, joined, 0);
    graph_kernels::add(d, b, c, 0, n, s);
    if (mistake.joined_late) cudaStreamWaitEvent(s, joined, 0);
  }));
  bool right = true;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < n; ++i) from[i] = float(100 * round + i), to[i] = -1;
    const cudaStream_t launched_on = round == 1 ? t : s;
    EXPECT_EQ(cudaGraphLaunch(graph, launched_on), cudaSuccess);
    if (mistake.overwritten) from[7] = 77;
    cudaEventRecord(done, launched_on);
    if (!mistake.no_event) cudaStreamWaitEvent(reader, done, 0);
    cudaMemcpyAsync(to, d, bytes, cudaMemcpyDefault, reader);
    if (!mistake.early) cudaStreamSynchronize(reader);
    for (int i = 0; i < n; ++i) right = right && to[i] == 4 * float(100 * round + i) + 3;
    cudaDeviceSynchronize();
  }
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  for (const cudaEvent_t e : {forked, joined, done}) cudaEventDestroy(e);
  for (const cudaStream_t stream : {s, t, reader}) cudaStreamDestroy(stream);
  for (float* const p : {a, b, c, d}) cudaFree(p);
  for (float* const p : {from, to}) cudaFreeHost(p);
  return right && faults.take().empty();
}
// Returns in how many orders a mistake shows.
uint64_t noticed(const Mistake& mistake) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    set_seed(seed);
    wrong += !is_right(mistake);
  }
  return wrong;
}

TEST_F(EmulatedGraphs, ARightProgramIsRightInEveryOrder) { EXPECT_EQ(noticed({}), 0u); }

TEST_F(EmulatedGraphs, MistakesShowInManyOrders) {
  EXPECT_GE(noticed({.forked_early = true}), kSeeds / 4);
  EXPECT_GE(noticed({.joined_late = true}), kSeeds / 4);
  EXPECT_GE(noticed({.overwritten = true}), kSeeds / 2);
  EXPECT_GE(noticed({.no_event = true}), kSeeds / 4);
  EXPECT_GE(noticed({.early = true}), kSeeds / 2);
}

// Launches of one graph on different streams run one after another. Arguments are those of the capture;
// memory is read when the launch runs.
TEST_F(EmulatedGraphs, ALaunchRepeatsWhatWasCaptured) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    set_seed(seed);
    const cudaStream_t s = make_stream(), t = make_stream();
    float *const x = make_memory<float>(4), *const y = make_memory<float>(4),
                 *const zero = make_memory<float>(4);
    float by = 1;
    int value = 0, calls = 0;
    float source[4] = {};
    const cudaGraph_t graph = capture(s, [&] {
      MUST(cudaMemsetAsync(zero, value, 16, s));
      // Two concurrent launches would lose additions.
      MUST(graph_kernels::add(y, x, zero, by, 4, s));
      MUST(cudaMemcpyAsync(x, y, 16, cudaMemcpyDefault, s));
      MUST(cudaLaunchHostFunc(
          s, [](void* p) { ++*static_cast<int*>(p); }, &calls));
    });
    const cudaGraph_t copying =
        capture(s, [&] { MUST(cudaMemcpyAsync(x, source, 16, cudaMemcpyDefault, s)); });
    EXPECT_EQ(count_nodes(graph), 4u);
    by = 10, value = 1;
    for (float& e : source) e = 5;
    const cudaGraphExec_t adds = instantiate(graph), copies = instantiate(copying);
    EXPECT_EQ(calls, 0) << "nothing runs while it is captured";
    MUST(cudaGraphLaunch(copies, s));
    MUST(cudaStreamSynchronize(s));
    for (int i = 0; i < 6; ++i) MUST(cudaGraphLaunch(adds, i % 2 ? s : t));
    MUST(cudaGraphExecDestroy(adds));  // it still runs
    MUST(cudaDeviceSynchronize());
    float got[4];
    MUST(cudaMemcpy(got, x, 16, cudaMemcpyDefault));
    for (const float g : got) EXPECT_EQ(g, 11) << "seed " << seed;
    EXPECT_EQ(calls, 6);
    MUST(cudaGraphExecDestroy(copies));
    for (const cudaStream_t stream : {s, t}) MUST(cudaStreamDestroy(stream));
    for (float* const p : {x, y, zero}) MUST(cudaFree(p));
  }
}

// The legacy stream waits for a graph on a blocking stream; a graph waits for earlier work of its stream.
TEST_F(EmulatedGraphs, ALaunchIsPutBehindWhatItsStreamHas) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    set_seed(seed);
    const cudaStream_t s = make_stream(cudaStreamDefault);
    float* const x = make_memory<float>(4);
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    MUST(graph_kernels::add(x, x, x, 1, 4, s));
    cudaGraph_t graph;
    MUST(cudaStreamEndCapture(s, &graph));
    const cudaGraphExec_t doubles = instantiate(graph);
    MUST(cudaMemset(x, 0, 16));
    MUST(cudaGraphLaunch(doubles, s));                 // 1
    MUST(graph_kernels::add(x, x, x, 0, 4, nullptr));  // 2
    MUST(cudaGraphLaunch(doubles, s));                 // 5
    MUST(graph_kernels::add(x, x, x, 0, 4, s));        // 10
    MUST(cudaGraphLaunch(doubles, nullptr));           // 21
    float got[4];
    MUST(cudaMemcpy(got, x, 16, cudaMemcpyDefault));
    for (const float g : got) EXPECT_EQ(g, 21) << "seed " << seed;
    MUST(cudaGraphExecDestroy(doubles));
    MUST(cudaStreamDestroy(s));
    MUST(cudaFree(x));
  }
}

TEST_F(EmulatedGraphs, AGraphMayHaveWorkOfTwoDevices) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    set_seed(seed);
    const cudaStream_t s = make_stream();
    const cudaEvent_t forked = make_event();
    float* const here = make_memory<float>(4);
    cudaSetDevice(1);
    const cudaStream_t t = make_stream();
    const cudaEvent_t joined = make_event();
    float* const there = make_memory<float>(4);
    cudaSetDevice(0);
    const cudaGraphExec_t graph = instantiate(capture(s, [&] {
      MUST(cudaMemsetAsync(here, 0, 16, s));
      MUST(graph_kernels::add(here, here, here, 3, 4, s));
      MUST(cudaEventRecord(forked, s));
      MUST(cudaStreamWaitEvent(t, forked, 0));
      MUST(cudaMemcpyPeerAsync(there, 1, here, 0, 16, t));
      MUST(graph_kernels::add(there, there, there, 1, 4, t));
      MUST(cudaEventRecord(joined, t));
      MUST(cudaStreamWaitEvent(s, joined, 0));
    }));
    MUST(cudaGraphLaunch(graph, s));
    cudaSetDevice(1);
    MUST(cudaDeviceSynchronize());
    float got[4];
    MUST(cudaMemcpy(got, there, 16, cudaMemcpyDefault));
    for (const float g : got) EXPECT_EQ(g, 7) << "seed " << seed;
    cudaSetDevice(0);
    MUST(cudaGraphExecDestroy(graph));
    for (const cudaStream_t stream : {s, t}) MUST(cudaStreamDestroy(stream));
    for (const cudaEvent_t e : {forked, joined}) MUST(cudaEventDestroy(e));
    for (float* const p : {here, there}) MUST(cudaFree(p));
  }
}

// If memory that a graph uses is freed before a launch, the first node that uses the memory is a fault.
TEST_F(EmulatedGraphs, MemoryThatIsGoneIsAFault) {
  const auto told = [](const std::function<void(float*, cudaStream_t)>& work, bool pinned) {
    FaultScope faults;
    const cudaStream_t s = make_stream();
    float* const x = pinned ? make_pinned<float>(4) : make_memory<float>(4);
    const cudaGraphExec_t graph = instantiate(capture(s, [&] { work(x, s); }));
    EXPECT_EQ(cudaMemset(x, 0, 16), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(graph, s), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    EXPECT_TRUE(faults.take().empty()) << "the memory is there";
    EXPECT_EQ(pinned ? cudaFreeHost(x) : cudaFree(x), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(graph, s), cudaSuccess) << "nobody looks yet";
    EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    const std::vector<Fault> found = faults.take();
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
    EXPECT_EQ(found.size(), 1u);
    return found.size() == 1 ? found[0] : Fault{FaultKind::kRace, ""};
  };
  float* const there = make_memory<float>(4);
  EXPECT_EQ(cudaMemset(there, 0, 16), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    set_seed(seed);
    const auto expect_told = [&](FaultKind kind, const char* part, const Fault& fault) {
      EXPECT_EQ(fault.kind, kind) << fault.text;
      EXPECT_NE(fault.text.find(part), std::string::npos) << fault.text;
      EXPECT_NE(fault.text.find("GRADUS_EMULATED_SEED=" + std::to_string(seed)), std::string::npos)
          << fault.text;
    };
    const auto fill = [](float* x, cudaStream_t s) { MUST(cudaMemsetAsync(x, 0, 16, s)); };
    const auto read = [=](float* x, cudaStream_t s) {
      MUST(cudaMemcpyAsync(there, x, 16, cudaMemcpyDefault, s));
    };
    const auto write = [=](float* x, cudaStream_t s) {
      MUST(cudaMemcpyAsync(x, there, 16, cudaMemcpyDefault, s));
    };
    expect_told(FaultKind::kOutOfBounds, "a fill writes 16 bytes", told(fill, false));
    expect_told(FaultKind::kOutOfBounds, "which was freed", told(read, false));
    expect_told(FaultKind::kOutOfBounds, "which was freed", told(write, false));
    expect_told(FaultKind::kHostMemory, "of the host, which was pinned", told(fill, true));
    expect_told(FaultKind::kHostMemory, "reads 16 bytes", told(read, true));
    expect_told(FaultKind::kHostMemory, "writes 16 bytes", told(write, true));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they displace the checker
    const auto add = [=](float* x, cudaStream_t s) { MUST(graph_kernels::add(there, x, x, 0, 4, s)); };
    expect_told(FaultKind::kOutOfBounds, "which was freed", told(add, false));
    expect_told(FaultKind::kHostMemory, "memory that is not the device's", told(add, true));
#endif
  }
  EXPECT_EQ(cudaFree(there), cudaSuccess);
}

}  // namespace
