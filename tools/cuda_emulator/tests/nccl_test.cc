// Tests of the emulated NCCL with ranks that are threads, each with its own device, and with ranks that are
// processes: results against loops over the inputs, and that each mistake of a program is found.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/nccl/nccl_functions.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/libraries/nccl.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT
using gradus::bf16;
using gradus::f16;

const gradus::cuda::Nccl& nccl = gradus::cuda::nccl("test");

constexpr int kDevices = 3;

// Runs f(rank) in a thread for each rank, whose current device has the rank's number.
void run_ranks(int ranks, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      cudaSetDevice(rank);
      f(rank);
    });
  for (std::thread& thread : threads) thread.join();
}

ncclUniqueId make_id() {
  ncclUniqueId id{};
  EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

ncclComm_t join(const ncclUniqueId& id, int rank, int ranks, int blocking = 1) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, ranks, id, rank, &config),
            blocking ? ncclSuccess : ncclInProgress);
  return comm;
}

// Returns the asynchronous error when the communicator is no more in progress.
ncclResult_t poll(ncclComm_t comm) {
  for (;;) {
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(nccl.ncclCommGetAsyncError(comm, &error), ncclSuccess);
    if (error != ncclInProgress) return error;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// The end of a call of a non-blocking communicator.
ncclResult_t complete(ncclComm_t comm, ncclResult_t status) {
  return status == ncclInProgress ? poll(comm) : status;
}

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  operator cudaStream_t() const { return stream; }
};

// Device memory with elements that are copied on a stream.
template <class T> struct Buffer {
  T* p = nullptr;
  size_t size;
  explicit Buffer(size_t n) : size(n) { cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T)); }
  Buffer(const std::vector<T>& x, cudaStream_t stream) : Buffer(x.size()) { write(x, stream); }
  ~Buffer() { cudaFree(p); }
  Buffer(const Buffer&) = delete;
  void write(const std::vector<T>& x, cudaStream_t stream) {
    cudaMemcpyAsync(p, x.data(), x.size() * sizeof(T), cudaMemcpyDefault, stream);
  }
  std::vector<T> read(cudaStream_t stream) const {
    std::vector<T> x(size);
    cudaMemcpyAsync(x.data(), p, size * sizeof(T), cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
    return x;
  }
};

template <class T> std::vector<double> numbers(const std::vector<T>& x) {
  std::vector<double> y;
  for (const T& v : x) {
    if constexpr (std::is_arithmetic_v<T>)
      y.push_back(static_cast<double>(v));
    else
      y.push_back(float(v));
  }
  return y;
}

class NcclTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { set_devices(kDevices, size_t(16) << 20); }
  void SetUp() override { set_seed(1); }
  // No communicator, and no directory of one, is left behind.
  void TearDown() override {
    EXPECT_EQ(count_nccl_communicators(), 0u);
    for (const std::string& path : directories) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  }
  ncclUniqueId fresh_id() {
    const ncclUniqueId id = make_id();
    directories.emplace_back(id.internal);
    return id;
  }
  // Runs f(rank, communicator, stream) in a thread for each rank, and destroys the communicators.
  void run(int ranks, const std::function<void(int, ncclComm_t, cudaStream_t)>& f, int blocking = 1) {
    const ncclUniqueId id = fresh_id();
    run_ranks(ranks, [&](int rank) {
      const ncclComm_t comm = join(id, rank, ranks, blocking);
      EXPECT_EQ(poll(comm), ncclSuccess);
      const Stream stream;
      f(rank, comm, stream);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(complete(comm, nccl.ncclCommFinalize(comm)), ncclSuccess);
      EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclSuccess);
    });
  }

  std::vector<std::string> directories;
};

TEST_F(NcclTest, HasAVersionAndTexts) {
  int version = 0;
  EXPECT_EQ(nccl.ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_STREQ(nccl.ncclGetErrorString(ncclInvalidUsage), "invalid usage");
}

// ---- collectives

template <class T> struct Case {
  using Sum = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  ncclDataType_t type;
  int ranks;
  size_t count;

  // Element i of rank r's input.
  T input(int r, size_t i) const { return T(float((i * 3 + static_cast<size_t>(r) * 5) % 7 + 1)); }
  std::vector<T> inputs(int r, size_t n) const {
    std::vector<T> x;
    for (size_t i = 0; i < n; ++i) x.push_back(input(r, i));
    return x;
  }
  std::vector<double> reduced(ncclRedOp_t op, size_t from, size_t n) const {
    std::vector<T> y;
    for (size_t i = from; i < from + n; ++i) {
      Sum sum = Sum(input(0, i));
      for (int r = 1; r < ranks; ++r) {
        const Sum x = Sum(input(r, i));
        if (op == ncclSum || op == ncclAvg) sum = Sum(sum + x);
        if (op == ncclProd) sum = Sum(sum * x);
        if (op == ncclMax) sum = std::max(sum, x);
        if (op == ncclMin) sum = std::min(sum, x);
      }
      if (op == ncclAvg) sum = Sum(sum / Sum(ranks));
      y.push_back(T(sum));
    }
    return numbers(y);
  }
  std::vector<double> gathered() const {
    std::vector<T> y;
    for (int r = 0; r < ranks; ++r)
      for (size_t i = 0; i < count; ++i) y.push_back(input(r, i));
    return numbers(y);
  }

  void run(int rank, ncclComm_t comm, cudaStream_t s) const {
    const auto n = static_cast<size_t>(ranks), r = static_cast<size_t>(rank);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      SCOPED_TRACE("op " + std::to_string(op));
      const Buffer<T> x(inputs(rank, n * count), s), y(count), in_place(inputs(rank, n * count), s);
      EXPECT_EQ(nccl.ncclAllReduce(x.p, y.p, count, type, op, comm, s), ncclSuccess);
      EXPECT_EQ(numbers(y.read(s)), reduced(op, 0, count));
      EXPECT_EQ(nccl.ncclReduceScatter(x.p, y.p, count, type, op, comm, s), ncclSuccess);
      EXPECT_EQ(numbers(y.read(s)), reduced(op, r * count, count));
      const int root = ranks - 1;
      const Buffer<T> z(count);
      EXPECT_EQ(nccl.ncclReduce(x.p, rank == root ? z.p : nullptr, count, type, op, root, comm, s),
                ncclSuccess);
      if (rank == root) {
        EXPECT_EQ(numbers(z.read(s)), reduced(op, 0, count));
      }
      T* const own = in_place.p + r * count;
      EXPECT_EQ(nccl.ncclReduceScatter(in_place.p, own, count, type, op, comm, s), ncclSuccess);
      const std::vector<double> all = numbers(in_place.read(s));
      EXPECT_EQ(std::vector<double>(all.begin() + long(r * count), all.begin() + long((r + 1) * count)),
                reduced(op, r * count, count));
    }
    const int root = 1 % ranks;
    const Buffer<T> x(inputs(rank, count), s), y(count), all(n * count), whole(n * count);
    EXPECT_EQ(nccl.ncclBroadcast(rank == root ? x.p : nullptr, y.p, count, type, root, comm, s), ncclSuccess);
    EXPECT_EQ(numbers(y.read(s)), numbers(inputs(root, count)));
    EXPECT_EQ(nccl.ncclAllGather(x.p, all.p, count, type, comm, s), ncclSuccess);
    EXPECT_EQ(numbers(all.read(s)), gathered());
    cudaMemcpyAsync(whole.p + r * count, x.p, count * sizeof(T), cudaMemcpyDefault, s);
    EXPECT_EQ(nccl.ncclAllGather(whole.p + r * count, whole.p, count, type, comm, s), ncclSuccess);
    EXPECT_EQ(numbers(whole.read(s)), gathered());
    EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, count, type, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(numbers(x.read(s)), reduced(ncclSum, 0, count));
  }
};

TEST_F(NcclTest, CollectivesAreLoopsOverTheInputsInEveryType) {
  for (const int ranks : {1, 2, 3})
    run(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
      for (const size_t count : {1, 5}) {
        Case<int8_t>{ncclInt8, ranks, count}.run(rank, comm, stream);
        Case<uint8_t>{ncclUint8, ranks, count}.run(rank, comm, stream);
        Case<int32_t>{ncclInt32, ranks, count}.run(rank, comm, stream);
        Case<uint32_t>{ncclUint32, ranks, count}.run(rank, comm, stream);
        Case<int64_t>{ncclInt64, ranks, count}.run(rank, comm, stream);
        Case<uint64_t>{ncclUint64, ranks, count}.run(rank, comm, stream);
        Case<f16>{ncclFloat16, ranks, count}.run(rank, comm, stream);
        Case<float>{ncclFloat32, ranks, count}.run(rank, comm, stream);
        Case<double>{ncclFloat64, ranks, count}.run(rank, comm, stream);
        Case<bf16>{ncclBfloat16, ranks, count}.run(rank, comm, stream);
      }
    });
}

// Sums are computed in the order of ranks. Those of 16-bit floats are rounded once.
TEST_F(NcclTest, SumsHaveAnOrderAndOneRounding) {
  run(3, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    const float large[] = {1e8f, 1, -1e8f};
    const Buffer<float> x({large[rank]}, s);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, 1, ncclFloat32, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(x.read(s)[0], 0);
    const float bf16s[] = {256, 1, 1}, bytes[] = {100, 100, 100};
    const Buffer<bf16> y({bf16s[rank]}, s);
    EXPECT_EQ(nccl.ncclAllReduce(y.p, y.p, 1, ncclBfloat16, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(y.read(s)[0], 258);
    const Buffer<int8_t> z({int8_t(bytes[rank])}, s);
    EXPECT_EQ(nccl.ncclAllReduce(z.p, z.p, 1, ncclInt8, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(z.read(s)[0], int8_t(300 - 256));
  });
}

// Minima and maxima are NaN where all inputs are. -0 is less than 0.
template <class T>
void check_minima_and_maxima(ncclDataType_t type, int rank, ncclComm_t comm, cudaStream_t s) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInputs[][5] = {{kNan, 3, kNan, 0, -0.f}, {2, kNan, kNan, -0.f, 0}, {1, 4, kNan, 0, 0}},
                  kMinima[] = {1, 3, kNan, -0.f, -0.f}, kMaxima[] = {2, 4, kNan, 0, 0};
  for (const ncclRedOp_t op : {ncclMin, ncclMax}) {
    const Buffer<T> x(std::vector<T>(kInputs[rank], kInputs[rank] + 5), s);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, 5, type, op, comm, s), ncclSuccess);
    const std::vector<T> y = x.read(s);
    for (size_t i = 0; i < y.size(); ++i) {
      const auto got = static_cast<float>(y[i]), want = (op == ncclMin ? kMinima : kMaxima)[i];
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want))
          << "op " << op << ", type " << type << ", element " << i << ": " << got;
    }
  }
}
TEST_F(NcclTest, MinimaAndMaximaIgnoreNaN) {
  run(3, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    check_minima_and_maxima<f16>(ncclFloat16, rank, comm, s);
    check_minima_and_maxima<bf16>(ncclBfloat16, rank, comm, s);
    check_minima_and_maxima<float>(ncclFloat32, rank, comm, s);
    check_minima_and_maxima<double>(ncclFloat64, rank, comm, s);
  });
}

// ---- messages and groups

TEST_F(NcclTest, MessagesGoRoundARing) {
  run(3, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    Buffer<int> x({rank}, s), y(1);
    for (int step = 1; step <= 4; ++step) {
      EXPECT_EQ(nccl.ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(nccl.ncclSend(x.p, 1, ncclInt32, (rank + 1) % 3, comm, s), ncclSuccess);
      EXPECT_EQ(nccl.ncclRecv(y.p, 1, ncclInt32, (rank + 2) % 3, comm, s), ncclSuccess);
      EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
      std::swap(x.p, y.p);
      EXPECT_EQ(x.read(s)[0], (rank + 2 * step) % 3) << step;
    }
  });
}

// Rank r sends d + 1 elements to rank d, r * 10 + d each, itself included.
TEST_F(NcclTest, GroupsSendDifferentCountsToAllRanks) {
  run(3, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    std::vector<int> values, expected;
    for (int d = 0; d < 3; ++d) values.insert(values.end(), static_cast<size_t>(d + 1), rank * 10 + d);
    for (int r = 0; r < 3; ++r) expected.insert(expected.end(), static_cast<size_t>(rank + 1), r * 10 + rank);
    const Buffer<int> x(values, s), y(expected.size());
    nccl.ncclGroupStart();
    for (int d = 0, at = 0; d < 3; at += ++d)
      nccl.ncclSend(x.p + at, static_cast<size_t>(d + 1), ncclInt32, d, comm, s);
    for (int r = 0; r < 3; ++r)
      nccl.ncclRecv(y.p + r * (rank + 1), static_cast<size_t>(rank + 1), ncclInt32, r, comm, s);
    EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(y.read(s), expected);
  });
}

// A pair's messages match in their order, however they are grouped. Other ranks take no part.
TEST_F(NcclTest, MessagesOfAPairKeepTheirOrder) {
  run(3, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    const Buffer<int> x({1, 2, 3}, s), y(3);
    if (rank == 0) {
      nccl.ncclGroupStart();
      nccl.ncclGroupStart();
      for (int i = 0; i < 3; ++i) nccl.ncclSend(x.p + i, 1, ncclInt32, 2, comm, s);
      EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
    } else if (rank == 2) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(nccl.ncclRecv(y.p + i, 1, ncclInt32, 0, comm, s), ncclSuccess);
      EXPECT_EQ(y.read(s), (std::vector<int>{1, 2, 3}));
    }
  });
}

TEST_F(NcclTest, AGroupMayHaveCollectivesAndMessages) {
  run(2, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    const Buffer<float> x({1.f + float(rank)}, s), y({7.f}, s), z(1);
    nccl.ncclGroupStart();
    nccl.ncclAllReduce(x.p, x.p, 1, ncclFloat32, ncclSum, comm, s);
    if (rank == 0) nccl.ncclSend(y.p, 1, ncclFloat32, 1, comm, s);
    if (rank == 1) nccl.ncclRecv(z.p, 1, ncclFloat32, 0, comm, s);
    if (rank == 0) nccl.ncclAllReduce(x.p, x.p, 0, ncclFloat32, ncclSum, comm, s);  // is dropped
    EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(x.read(s)[0], 3);
    if (rank == 1) {
      EXPECT_EQ(z.read(s)[0], 7);
    }
  });
}

TEST_F(NcclTest, FilesOfEarlierCallsAreRemoved) {
  run(2, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    const Buffer<float> x({1}, s), y(1);
    for (int i = 0; i < 20; ++i) {
      nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclSum, comm, s);
      if (rank == 0) nccl.ncclSend(x.p, 1, ncclFloat32, 1, comm, s);
      if (rank == 1) nccl.ncclRecv(y.p, 1, ncclFloat32, 0, comm, s);
    }
    cudaStreamSynchronize(s);
    const std::filesystem::directory_iterator files(directories.back());
    EXPECT_LE(std::distance(begin(files), end(files)), 10);
  });
}

// A group whose call fails issues nothing.
TEST_F(NcclTest, AGroupEndsWithTheErrorOfItsCalls) {
  run(1, [&](int, ncclComm_t comm, cudaStream_t s) {
    const Buffer<float> x({5.f}, s), y({6.f}, s);
    nccl.ncclGroupStart();
    EXPECT_EQ(nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(nccl.ncclBroadcast(x.p, y.p, 1, ncclFloat32, 1, comm, s), ncclInvalidArgument);
    EXPECT_EQ(nccl.ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(y.read(s)[0], 6);
    EXPECT_EQ(nccl.ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat8e4m3, ncclSum, comm, s), ncclInvalidArgument);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclNumOps, comm, s), ncclInvalidArgument);
    fail_call_of("ncclAllReduce", 0, ncclSystemError);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclSum, comm, s), ncclSystemError);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(y.read(s)[0], 5);
  });
}

// ---- communicators

TEST_F(NcclTest, TwoCommunicatorsOnOneStream) {
  const ncclUniqueId ids[] = {fresh_id(), fresh_id()};
  run_ranks(2, [&](int rank) {
    const ncclComm_t a = join(ids[0], rank, 2), b = join(ids[1], 1 - rank, 2);
    const Stream s;
    const Buffer<int> x({1 + rank}, s), y({10 + rank}, s);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, a, s), ncclSuccess);
      EXPECT_EQ(nccl.ncclBroadcast(y.p, y.p, 1, ncclInt32, 0, b, s), ncclSuccess);
    }
    EXPECT_EQ(x.read(s)[0], 3 * 16);
    EXPECT_EQ(y.read(s)[0], 11);
    EXPECT_EQ(nccl.ncclCommDestroy(a), ncclSuccess);
    EXPECT_EQ(nccl.ncclCommDestroy(b), ncclSuccess);
  });
}

TEST_F(NcclTest, ANonBlockingOneIsInProgressUntilAllRanksCome) {
  const ncclUniqueId id = fresh_id();
  ncclResult_t error;
  const ncclComm_t first = join(id, 0, 2, 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(nccl.ncclCommGetAsyncError(first, &error), ncclSuccess);
    EXPECT_EQ(error, ncclInProgress);
  }
  cudaSetDevice(1);
  const ncclComm_t second = join(id, 1, 2, 0);
  cudaSetDevice(0);
  EXPECT_EQ(poll(first), ncclSuccess);
  EXPECT_EQ(poll(second), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommFinalize(first), ncclInProgress);
  EXPECT_EQ(nccl.ncclCommGetAsyncError(first, &error), ncclSuccess);
  EXPECT_EQ(error, ncclInProgress);
  EXPECT_EQ(nccl.ncclCommFinalize(second), ncclInProgress);
  EXPECT_EQ(poll(first), ncclSuccess);
  EXPECT_EQ(poll(second), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommDestroy(first), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommDestroy(second), ncclSuccess);
}

TEST_F(NcclTest, CallsOfANonBlockingOneAreInProgressNowAndThen) {
  int in_progress[2] = {};
  run(
      2,
      [&](int rank, ncclComm_t comm, cudaStream_t s) {
        const Buffer<int> x({1}, s);
        for (int i = 0; i < 20; ++i) {
          const ncclResult_t status = nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, comm, s);
          in_progress[rank] += status == ncclInProgress;
          EXPECT_EQ(complete(comm, status), ncclSuccess);
        }
        EXPECT_EQ(x.read(s)[0], 1 << 20);
      },
      0);
  EXPECT_GT(in_progress[0] + in_progress[1], 8);
  EXPECT_LT(in_progress[0] + in_progress[1], 32);
}

TEST_F(NcclTest, WrongArgumentsOfInitAreRefused) {
  const ncclUniqueId id = fresh_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER, wrong = NCCL_CONFIG_INITIALIZER;
  wrong.magic = 1;
  ncclComm_t comm = nullptr;
  for (const auto& [ranks, rank] : {std::pair(0, 0), {2, 2}, {2, -1}})
    EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, ranks, id, rank, &config), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 1, id, 0, &wrong), ncclInvalidArgument);
  wrong = config, wrong.size = 8;
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 1, id, 0, &wrong), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 1, ncclUniqueId{}, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(NcclTest, TwoRanksOfOneDeviceAreRefused) {
  const ncclUniqueId id = fresh_id(), blocking = fresh_id();
  const ncclComm_t first = join(id, 0, 2, 0), second = join(id, 1, 2, 0);
  EXPECT_EQ(poll(first), ncclInvalidUsage);
  EXPECT_EQ(poll(second), ncclInvalidUsage);
  EXPECT_EQ(nccl.ncclCommAbort(first), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommAbort(second), ncclSuccess);
  run_ranks(2, [&](int rank) {
    cudaSetDevice(0);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 2, blocking, rank, nullptr), ncclInvalidUsage);
    EXPECT_EQ(comm, nullptr);
  });
}

// Whether the call has begun or not.
TEST_F(NcclTest, AbortEndsACallWhosePeerIsMissing) {
  for (const int queries : {0, 50}) {
    const ncclUniqueId id = fresh_id();
    std::barrier both(2);
    run_ranks(2, [&](int rank) {
      const ncclComm_t comm = join(id, rank, 2, 0);
      EXPECT_EQ(poll(comm), ncclSuccess);
      if (rank == 0) {
        const Stream s;
        const Buffer<float> x({1.f}, s), y({2.f}, s);
        EXPECT_EQ(complete(comm, nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclSum, comm, s)),
                  ncclSuccess);
        for (int i = 0; i < queries; ++i) EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
        std::thread([&] { EXPECT_EQ(nccl.ncclCommAbort(comm), ncclSuccess); }).join();
        EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
        EXPECT_TRUE(std::isnan(y.read(s)[0]));
      }
      both.arrive_and_wait();
      if (rank == 1) {
        EXPECT_EQ(nccl.ncclCommAbort(comm), ncclSuccess);
      }
    });
  }
}

// ---- mistakes

// Returns the faults of a program that all have a kind and a text.
void expect_faults(FaultScope& faults, FaultKind kind, const std::string& text) {
  const std::vector<Fault> found = faults.take();
  EXPECT_FALSE(found.empty()) << "no fault: " << text;
  for (const Fault& f : found) {
    EXPECT_EQ(f.kind, kind) << f.text;
    EXPECT_NE(f.text.find(text), std::string::npos) << f.text;
  }
}

// An abort waits for the device, where the call of the second communicator waits for the other rank. In a group both
// calls end before one abort waits.
TEST_F(NcclTest, AbortsOneByOneAreADeadlock) {
  for (const bool is_group : {false, true})
    for (const bool two_streams : {false, true}) {
      SCOPED_TRACE(testing::Message() << "group " << is_group << ", two streams " << two_streams);
      FaultScope faults;
      const ncclUniqueId ids[] = {fresh_id(), fresh_id()};
      std::barrier both(2);
      run_ranks(2, [&](int rank) {
        const ncclComm_t comms[] = {join(ids[0], rank, 2), join(ids[1], rank, 2)};
        if (rank == 0) {
          const Stream s[2];
          const Buffer<float> x({1}, s[0]), y({2}, s[0]);
          EXPECT_EQ(cudaStreamSynchronize(s[0]), cudaSuccess);
          nccl.ncclAllReduce(x.p, x.p, 1, ncclFloat32, ncclSum, comms[0], s[0]);
          nccl.ncclAllReduce(y.p, y.p, 1, ncclFloat32, ncclSum, comms[1], s[two_streams]);
          if (is_group) nccl.ncclGroupStart();
          for (const ncclComm_t comm : comms) EXPECT_EQ(nccl.ncclCommAbort(comm), ncclSuccess);
          if (is_group) {
            EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
          }
          EXPECT_TRUE(std::isnan(x.read(s[0])[0]));
          EXPECT_TRUE(std::isnan(y.read(s[two_streams])[0]));
        }
        both.arrive_and_wait();
        for (const ncclComm_t comm : comms)
          if (rank == 1) nccl.ncclCommAbort(comm);
      });
      if (is_group)
        EXPECT_TRUE(faults.take().empty());
      else
        expect_faults(faults, FaultKind::kCollective,
                      "only aborts in one group begin before one of them waits");
    }
}

TEST_F(NcclTest, CallsThatDoNotMatchAreFaults) {
  using Call = std::function<void(float*, float*, ncclComm_t, cudaStream_t)>;
  const Call base = [](float* x, float* y, ncclComm_t c, cudaStream_t s) {
    nccl.ncclAllReduce(x, y, 2, ncclFloat32, ncclSum, c, s);
  };
  const auto reduce_to = [](int root) {
    return [root](float* x, float* y, ncclComm_t c, cudaStream_t s) {
      nccl.ncclReduce(x, y, 2, ncclFloat32, ncclSum, root, c, s);
    };
  };
  const struct {
    Call first, second;
    const char* text;
  } cases[] = {
      {base,
       [](float* x, float* y, ncclComm_t c, cudaStream_t s) {
         nccl.ncclAllReduce(x, y, 1, ncclFloat32, ncclSum, c, s);
       },
       "ncclAllReduce(count 1, float32, sum)"},
      {base,
       [](float* x, float* y, ncclComm_t c, cudaStream_t s) {
         nccl.ncclAllReduce(x, y, 2, ncclFloat32, ncclMax, c, s);
       },
       "ncclAllReduce(count 2, float32, max)"},
      {base,
       [](float* x, float* y, ncclComm_t c, cudaStream_t s) {
         nccl.ncclAllReduce(x, y, 2, ncclInt32, ncclSum, c, s);
       },
       "ncclAllReduce(count 2, int32, sum)"},
      {base,
       [](float* x, float* y, ncclComm_t c, cudaStream_t s) {
         nccl.ncclAllGather(x, y, 2, ncclFloat32, c, s);
       },
       "ncclAllGather(count 2, float32)"},
      {reduce_to(0), reduce_to(1), "ncclReduce(count 2, float32, sum, root 1)"},
      {base,
       [&](float* x, float* y, ncclComm_t c, cudaStream_t s) {
         nccl.ncclGroupStart();
         base(x, y, c, s);
         nccl.ncclAllReduce(x, y + 2, 2, ncclFloat32, ncclSum, c, s);
         nccl.ncclGroupEnd();
       },
       "in a group of 2 collectives"},
      {[](float* x, float*, ncclComm_t c, cudaStream_t s) { nccl.ncclSend(x, 2, ncclFloat32, 1, c, s); },
       [](float*, float* y, ncclComm_t c, cudaStream_t s) { nccl.ncclRecv(y, 1, ncclFloat32, 0, c, s); },
       "ncclRecv(count 1, float32, peer 0)"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    FaultScope faults;
    run(2, [&](int rank, ncclComm_t comm, cudaStream_t s) {
      const Buffer<float> x({1, 1}, s), y(4);
      (rank == 0 ? c.first : c.second)(x.p, y.p, comm, s);
      cudaStreamSynchronize(s);
    });
    const std::vector<Fault> found = faults.take();
    EXPECT_EQ(found.size(), 2u);  // each rank finds it
    for (const Fault& f : found) {
      EXPECT_EQ(f.kind, FaultKind::kCollective);
      for (const std::string part : {"rank 0 calls ", "rank 1 calls ", c.text})
        EXPECT_NE(f.text.find(part), std::string::npos) << f.text;
    }
  }
}

enum class Mistake { kNone, kInputNotAwaited, kInputReused, kOutputNotAwaited };

// Returns in how many of 100 orders the mistake makes a fault or a wrong result.
int shown_in(Mistake mistake, int ranks) {
  int shown = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    set_seed(seed);
    FaultScope faults;
    const ncclUniqueId id = make_id();
    std::atomic<bool> is_right = true;
    run_ranks(ranks, [&](int rank) {
      const ncclComm_t comm = join(id, rank, ranks);
      const Stream compute, comms;
      cudaEvent_t event;
      cudaEventCreate(&event);
      const Buffer<int> x(3), y({7, 7, 7}, comms), z(3);
      cudaStreamSynchronize(comms);
      cudaMemsetAsync(x.p, 1, 12, compute);
      cudaEventRecord(event, compute);
      if (mistake != Mistake::kInputNotAwaited) cudaStreamWaitEvent(comms, event, 0);
      nccl.ncclAllReduce(x.p, y.p, 3, ncclInt32, ncclSum, comm, comms);
      cudaEventRecord(event, comms);
      if (mistake == Mistake::kInputReused) cudaMemsetAsync(x.p, 9, 12, compute);
      if (mistake != Mistake::kOutputNotAwaited) cudaStreamWaitEvent(compute, event, 0);
      cudaMemcpyAsync(z.p, y.p, 12, cudaMemcpyDefault, compute);
      if (z.read(compute) != std::vector<int>(3, 0x01010101 * ranks)) is_right = false;
      cudaStreamSynchronize(comms);
      cudaEventDestroy(event);
      EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclSuccess);
    });
    shown += !is_right || !faults.take().empty();
  }
  return shown;
}

// With one rank, so that no other thread runs its work earlier.
TEST_F(NcclTest, MissingWaitsShowInManyOrders) {
  EXPECT_EQ(shown_in(Mistake::kNone, 2), 0);
  EXPECT_GE(shown_in(Mistake::kInputNotAwaited, 1), 10);
  EXPECT_GE(shown_in(Mistake::kInputReused, 1), 10);
  EXPECT_GE(shown_in(Mistake::kOutputNotAwaited, 1), 10);
}

TEST_F(NcclTest, WrongMemoryIsAFault) {
  const Stream s;
  const Buffer<float> small({1}, s), large({1, 2}, s), three({1, 2, 3}, s), unwritten(2);
  std::vector<float> host(2);
  cudaSetDevice(1);
  const Buffer<float> other(2);
  cudaSetDevice(0);
  cudaDeviceSynchronize();
  const struct {
    const void* send;
    void* receive;
    FaultKind kind;
    const char* text;
  } cases[] = {
      {small.p, large.p, FaultKind::kOutOfBounds, "sendbuff reaches beyond its memory"},
      {large.p, small.p, FaultKind::kOutOfBounds, "recvbuff reaches beyond its memory"},
      {unwritten.p, large.p, FaultKind::kUnwritten, "sendbuff was not written"},
      {host.data(), large.p, FaultKind::kHostMemory, "sendbuff is not the device's memory"},
      {large.p, other.p, FaultKind::kHostMemory, "recvbuff is memory of device 1"},
      {three.p, three.p + 1, FaultKind::kRace, "recvbuff overlaps sendbuff"},
  };
  for (const auto& c : cases) {
    // Under a sanitizer all memory counts as written.
    if (c.kind == FaultKind::kUnwritten && kFresh == Byte::kWritten) continue;
    SCOPED_TRACE(c.text);
    FaultScope faults;
    run(1, [&](int, ncclComm_t comm, cudaStream_t stream) {
      nccl.ncclAllReduce(c.send, c.receive, 2, ncclFloat32, ncclSum, comm, stream);
    });
    expect_faults(faults, c.kind, c.text);
  }
}

TEST_F(NcclTest, ABufferThatChangesDuringTheCallIsAFault) {
  for (const bool is_input : {true, false}) {
    FaultScope faults;
    std::barrier both(2);
    run(2, [&](int rank, ncclComm_t comm, cudaStream_t s) {
      const Buffer<float> x({1}, s), y(1);
      if (rank == 1) both.arrive_and_wait();
      nccl.ncclAllReduce(x.p, y.p, 1, ncclFloat32, ncclSum, comm, s);
      if (rank == 1) return;
      for (int i = 0; i < 20; ++i) EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);  // the call begins
      const Stream other;
      cudaMemsetAsync(is_input ? x.p : y.p, 0, sizeof(float), other);
      cudaStreamSynchronize(other);
      both.arrive_and_wait();
    });
    expect_faults(faults, FaultKind::kRace, is_input ? "sendbuff was changed" : "recvbuff was changed");
  }
}

// The other ranks skip the call, and do not wait.
TEST_F(NcclTest, AFaultOfOneRankEndsTheCallOfAll) {
  FaultScope faults;
  run(2, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    const Buffer<float> small({1}, s), large({1, 2}, s);
    nccl.ncclAllReduce(rank == 0 ? small.p : large.p, large.p, 2, ncclFloat32, ncclSum, comm, s);
    if (rank == 1) {
      EXPECT_TRUE(std::isnan(large.read(s)[0]));
    }
  });
  EXPECT_EQ(faults.take().size(), 1u);
}

// Returns a graph of one all-reduce in place.
cudaGraphExec_t captured_all_reduce(const Buffer<float>& x, ncclComm_t comm, cudaStream_t s) {
  cudaStreamSynchronize(s);
  EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, x.size, ncclFloat32, ncclSum, comm, s), ncclSuccess);
  cudaGraph_t graph;
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  cudaGraphExec_t made;
  EXPECT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  return made;
}

TEST_F(NcclTest, EachLaunchOfACapturedCallIsANewCall) {
  run(2, [&](int rank, ncclComm_t comm, cudaStream_t s) {
    const Buffer<float> x({1, float(rank)}, s), y({1}, s);
    const cudaGraphExec_t graph = captured_all_reduce(x, comm, s);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(cudaGraphLaunch(graph, s), cudaSuccess);
      if (i == 1) nccl.ncclAllReduce(y.p, y.p, 1, ncclFloat32, ncclSum, comm, s);
    }
    EXPECT_EQ(x.read(s), (std::vector<float>{8, 4}));
    EXPECT_EQ(y.read(s), std::vector<float>{2});
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  });
}

// NCCL would wait for the graph forever.
TEST_F(NcclTest, ACommunicatorThatEndsBeforeItsGraphIsAFault) {
  const ncclUniqueId id = fresh_id();
  FaultScope faults;
  run_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, rank, 2);
    const Stream s;
    const Buffer<float> x({1}, s);
    const cudaGraphExec_t graph = captured_all_reduce(x, comm, s);
    if (rank == 1) cudaGraphExecDestroy(graph);
    EXPECT_EQ(nccl.ncclCommAbort(comm), ncclSuccess);
    if (rank == 0) cudaGraphExecDestroy(graph);
  });
  const auto found = faults.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].text.find("ncclCommAbort"), std::string::npos) << found[0].text;
}

// On one stream always, on two streams now and then: nothing orders these.
TEST_F(NcclTest, OppositeOrdersOfTwoCommunicatorsAreAFault) {
  const auto has_fault = [&](bool two_streams) {
    const ncclUniqueId ids[] = {fresh_id(), fresh_id()};
    FaultScope faults;
    run_ranks(2, [&](int rank) {
      const ncclComm_t comms[] = {join(ids[0], rank, 2), join(ids[1], rank, 2)};
      const Stream s[2];
      const Buffer<int> x({1}, s[0]), y({1}, s[0]);
      EXPECT_EQ(cudaStreamSynchronize(s[0]), cudaSuccess);
      for (const int i : {0, 1}) {
        const int of = two_streams ? i : rank ^ i;
        int* const p = of == 0 ? x.p : y.p;
        const cudaStream_t stream = s[two_streams ? i : 0];
        EXPECT_EQ(nccl.ncclAllReduce(p, p, 1, ncclInt32, ncclSum, comms[of], stream), ncclSuccess);
      }
      for (const Stream& stream : s) EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      for (const ncclComm_t comm : comms) EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclSuccess);
    });
    const std::vector<Fault> all = faults.take();
    for (const Fault& fault : all)
      EXPECT_NE(fault.text.find("opposite orders"), std::string::npos) << fault.text;
    return !all.empty();
  };
  EXPECT_TRUE(has_fault(false));
  int found = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    set_seed(seed);
    found += has_fault(true);
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 30);
}

TEST_F(NcclTest, UseOfADestroyedOneIsAFault) {
  const Stream s;
  const Buffer<int> x({1}, s);
  for (const bool aborts : {false, true}) {
    const ncclComm_t comm = join(fresh_id(), 0, 1);
    EXPECT_EQ((aborts ? nccl.ncclCommAbort : nccl.ncclCommDestroy)(comm), ncclSuccess);
    FaultScope faults;
    EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, comm, s), ncclInvalidArgument);
    expect_faults(faults, FaultKind::kCollective, "was destroyed or aborted");
    EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclInvalidArgument);
    expect_faults(faults, FaultKind::kCollective, "was destroyed or aborted");
  }
}

TEST_F(NcclTest, DestroyBeforeTheEndOfACallIsAFault) {
  FaultScope faults;
  const ncclUniqueId id = fresh_id();
  run_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, rank, 2);
    if (rank == 1) return (void)nccl.ncclCommDestroy(comm);
    const Stream s;
    const Buffer<int> x({1}, s);
    EXPECT_EQ(nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, comm, s), ncclSuccess);
    EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclInvalidUsage);
  });
  expect_faults(faults, FaultKind::kCollective, "only ncclCommAbort() ends them");
}

TEST_F(NcclTest, ACallBeforeTheEarlierOneIsIssuedIsAFault) {
  FaultScope faults;
  const ncclComm_t comm = join(fresh_id(), 0, 1, 0);
  EXPECT_EQ(poll(comm), ncclSuccess);
  const Stream s;
  const Buffer<int> x({1}, s);
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    const auto call = [&] { return nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, comm, s); };
    if (call() != ncclInProgress) continue;
    refused += call() == ncclInvalidUsage;
    EXPECT_EQ(poll(comm), ncclSuccess);
  }
  EXPECT_GT(refused, 5);
  expect_faults(faults, FaultKind::kCollective, "an earlier call on the device is in progress");
  cudaStreamSynchronize(s);
  EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(NcclTest, TwoThreadsOfOneDeviceAreAFault) {
  const ncclComm_t a = join(fresh_id(), 0, 1), b = join(fresh_id(), 0, 1);
  const Stream s;
  const Buffer<int> x({1}, s);
  cudaStreamSynchronize(s);
  FaultScope faults;
  nccl.ncclGroupStart();
  nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, a, s);
  std::thread([&] { nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, b, s); }).join();
  nccl.ncclGroupEnd();
  expect_faults(faults, FaultKind::kCollective, "two threads call NCCL for device 0");
  // Without groups, in some of many calls.
  const auto calls = [&](ncclComm_t comm) {
    for (int i = 0; i < 200; ++i) nccl.ncclAllReduce(x.p, x.p, 1, ncclInt32, ncclSum, comm, s);
  };
  std::thread other(calls, b);
  calls(a);
  other.join();
  expect_faults(faults, FaultKind::kCollective, "two threads call NCCL for device 0");
  cudaStreamSynchronize(s);
  EXPECT_EQ(nccl.ncclCommDestroy(a), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommDestroy(b), ncclSuccess);
}

// ---- ranks that are processes

// The body of a rank's process. Returns its exit code.
int run_process() {
  alarm(60);  // if another rank ended
  const int rank = std::atoi(std::getenv("GRADUS_TEST_RANK")), ranks = 3;
  ncclUniqueId id{};
  std::string(std::getenv("GRADUS_TEST_ID")).copy(id.internal, sizeof id.internal - 1);
  const bool is_shared = std::getenv("GRADUS_EMULATED_SHARED_GPUS") != nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm;
  if (nccl.ncclCommInitRankConfig(&comm, ranks, id, rank, &config) != ncclInProgress) return 10;
  if (is_shared) {
    if (poll(comm) != ncclInvalidUsage) return 11;
    return nccl.ncclCommAbort(comm) == ncclSuccess ? 0 : 12;
  }
  if (poll(comm) != ncclSuccess) return 13;
  {
    const Stream s;
    std::vector<float> x(1000), sum(1000);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = float(i * 10 + static_cast<size_t>(rank));
      sum[i] = float(i * 30 + 3);
    }
    for (int repeat = 0; repeat < 5; ++repeat) {
      const Buffer<float> y(x, s);
      if (complete(comm, nccl.ncclAllReduce(y.p, y.p, x.size(), ncclFloat32, ncclSum, comm, s)) !=
          ncclSuccess)
        return 14;
      if (y.read(s) != sum) return 15;
    }
  }
  if (complete(comm, nccl.ncclCommFinalize(comm)) != ncclSuccess) return 16;
  return nccl.ncclCommDestroy(comm) == ncclSuccess ? 0 : 17;
}

// Runs three ranks, with the same number of a device.
std::vector<int> run_processes(const ncclUniqueId& id, bool is_shared, int seed) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("GRADUS_TEST_RANK", std::to_string(rank).c_str(), 1);
      setenv("GRADUS_TEST_ID", id.internal, 1);
      setenv("GRADUS_EMULATED_SEED", std::to_string(seed + rank).c_str(), 1);
      if (is_shared) setenv("GRADUS_EMULATED_SHARED_GPUS", "1", 1);
      execl("/proc/self/exe", "rank", nullptr);
      _exit(98);
    }
    pids.push_back(pid);
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return codes;
}

TEST_F(NcclTest, RanksMayBeProcesses) {
  for (int seed = 1; seed <= 5; ++seed)
    EXPECT_EQ(run_processes(fresh_id(), false, seed), std::vector<int>(3, 0)) << "seed " << seed;
}

TEST_F(NcclTest, ProcessesThatShareAGpuAreRefused) {
  EXPECT_EQ(run_processes(fresh_id(), true, 1), std::vector<int>(3, 0));
}

// ncclGetUniqueId() removes the directories of processes that died.
TEST_F(NcclTest, DirectoriesOfDeadProcessesAreRemoved) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    ncclUniqueId id{};
    nccl.ncclGetUniqueId(&id);
    _exit(write(ends[1], &id, sizeof id) == sizeof id ? 0 : 1);
  }
  ncclUniqueId id{};
  ASSERT_EQ(read(ends[0], &id, sizeof id), ssize_t(sizeof id));
  waitpid(pid, nullptr, 0);
  close(ends[0]), close(ends[1]);
  EXPECT_TRUE(std::filesystem::exists(id.internal));
  EXPECT_EQ(nccl.ncclCommDestroy(join(fresh_id(), 0, 1)), ncclSuccess);
  EXPECT_FALSE(std::filesystem::exists(id.internal));
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("GRADUS_TEST_RANK")) return run_process();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
