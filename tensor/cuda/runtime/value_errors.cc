// Errors about tensor values that CUDA kernels find (a class out of range, a negative probability), on the
// host (value_reports.h: on the device). Each stream has a ValueRecord in pinned host memory. The first launch
// that finds a bad value owns the record: it writes its number and, of its bad values, the one at the smallest
// position; later launches write nothing until the record is cleared. When the host next synchronizes, it reads
// the record without a copy, waits until the launch has ended, and throws. Functions are thread-safe; one lock
// guards all state.
#include "gradus/tensor/cuda/runtime/value_errors.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/cuda/runtime/error.h"

namespace gradus::cuda {
namespace {

// How a launch's error is thrown.
struct Origin {
  ValueErrorHandler thrower;
  const char* op;  // the op that the user called, for the error; null: none
  bool operator==(const Origin&) const = default;
};
// A launch number has a counter in its upper bits, and in these lower bits the index of its Origin.
constexpr int kOriginBits = 16;

struct Stream {
  cudaStream_t handle;  // null: the stream was destroyed, and work queued before may still run
  int device;
  ValueRecord* record;
  uint64_t retirement = 0;  // number of its retire_reports() among all; 0: the stream is alive
};

// All state. Never destroyed, because streams may run until the process ends.
struct Reports {
  std::mutex mutex;
  std::vector<Stream> streams;
  std::vector<ValueRecord*> unused;
  std::vector<Origin> origins;
  uint64_t launches = 0, retirements = 0;

  static Reports& get() {
    static Reports& all = *new Reports;
    return all;
  }

  // Returns the stream's record; assigns one if the stream has none.
  ValueRecord* record_of(cudaStream_t stream, int device) {
    for (const Stream& s : streams)
      if (s.handle == stream) return s.record;
    if (unused.empty()) make_records();
    streams.push_back({stream, device, unused.back()});
    unused.pop_back();
    return streams.back().record;
  }
  // Allocates a page of records in pinned memory, which is never freed.
  void make_records() {
    constexpr size_t kBytes = 4096, kCount = kBytes / sizeof(ValueRecord);
    unused.reserve(unused.size() + kCount);
    void* page = nullptr;
    check("cuda", "cudaMallocHost", cudaMallocHost(&page, kBytes));
    for (size_t i = 0; i < kCount; ++i)
      unused.push_back(new (static_cast<ValueRecord*>(page) + i) ValueRecord);
  }

  uint64_t number_of_origin(const Origin& origin) {
    const auto found = std::find(origins.begin(), origins.end(), origin);
    if (found != origins.end()) return static_cast<uint64_t>(found - origins.begin());
    if (origins.size() >> kOriginBits) throw InternalError("more than 65536 ops report values");
    origins.push_back(origin);
    return origins.size() - 1;
  }
};

// Returns the number of the launch that has written into the record; 0: none. Kernels write concurrently.
uint64_t launch_in(const ValueRecord& record) {
  return std::atomic_ref(const_cast<ValueRecord::Word&>(record.launch)).load(std::memory_order_acquire);
}

// Reads and clears a record whose launch has ended; `launch` last, because a running launch may then own the
// record. The caller has the lock.
std::pair<ReportedValue, Origin> take(ValueRecord* record) {
  ReportedValue found{static_cast<int64_t>(record->words[0] >> ValueRecord::kPartBits), 0,
                      static_cast<int64_t>(record->limit), static_cast<int64_t>(record->per_row)};
  for (int i = 0; i < ValueRecord::kParts; ++i)
    found.bits |= (record->words[i] & ((uint64_t{1} << ValueRecord::kPartBits) - 1))
                  << (i * ValueRecord::kPartBits);
  const Origin origin = Reports::get().origins[launch_in(*record) & ((uint64_t{1} << kOriginBits) - 1)];
  record->limit = record->per_row = ValueRecord::kNone;
  record->words[0] = record->words[1] = record->words[2] = ValueRecord::kNone;
  std::atomic_ref(record->launch).store(0, std::memory_order_release);
  return {found, origin};
}

// Throws with the op that the user had called at the launch as the op of the error.
void throw_as_called(const ReportedValue& found, const Origin& origin) {
  struct Name {
    const char* now = std::exchange(internal::called_op, nullptr);
    ~Name() { internal::called_op = now; }
  } name;
  internal::called_op = origin.op;
  origin.thrower(found);
}

// Throws the error of the first stream for which is_asked(stream) is true and whose record has a launch; does
// nothing if there is none. wait() waits for all streams for which is_asked is true.
template <class F, class Wait> void throw_first(F&& is_asked, Wait&& wait) {
  Reports& all = Reports::get();
  std::unique_lock lock(all.mutex);
  const auto has_some = [&](const Stream& s) { return is_asked(s) && launch_in(*s.record); };
  const auto found = std::find_if(all.streams.begin(), all.streams.end(), has_some);
  if (found == all.streams.end()) return;
  ValueRecord* const record = found->record;
  const uint64_t launch = launch_in(*record);
  lock.unlock();
  wait();  // the caller's wait may have returned before this launch began, so the launch may still run
  lock.lock();
  if (launch_in(*record) != launch) return;  // another thread has taken it
  const auto [value, origin] = take(record);
  lock.unlock();
  throw_as_called(value, origin);
}

// Waits for the device and not for one stream, because another thread may destroy the stream meanwhile.
void wait_for_device(int device) {
  check("cuda", "cudaSetDevice", cudaSetDevice(device));
  check("cuda", "cudaDeviceSynchronize", cudaDeviceSynchronize());
}

// Returns the records of destroyed streams to `unused`, after waiting until none of their work runs.
void reuse_records(int device) {
  Reports& all = Reports::get();
  std::unique_lock lock(all.mutex);
  const auto is_gone = [=, last = all.retirements](const Stream& s) {
    return s.retirement != 0 && s.retirement <= last && s.device == device;
  };
  if (std::none_of(all.streams.begin(), all.streams.end(), is_gone)) return;
  lock.unlock();
  wait_for_device(device);
  lock.lock();
  std::erase_if(all.streams, [&](const Stream& s) {
    const bool is_over = is_gone(s) && !launch_in(*s.record);
    if (is_over) all.unused.push_back(s.record);
    return is_over;
  });
}

}  // namespace

ValueReports reports_of(const Tensor& x, cudaStream_t stream, ValueErrorHandler thrower, int64_t limit,
                        int64_t per_row) {
  Reports& all = Reports::get();
  const std::lock_guard lock(all.mutex);
  const uint64_t origin = all.number_of_origin({thrower, internal::called_op});
  ValueRecord* const record = all.record_of(stream, x.device().index);
  return {record, ++all.launches << kOriginBits | origin, limit, per_row};
}

void throw_kernel_errors(cudaStream_t stream) {
  throw_first([=](const Stream& s) { return s.handle == stream; },
              [=] { check("cuda", "cudaStreamSynchronize", cudaStreamSynchronize(stream)); });
}

void throw_kernel_errors_on_device(int device) {
  throw_first([=](const Stream& s) { return s.device == device; }, [=] { wait_for_device(device); });
  reuse_records(device);
}

void retire_reports(cudaStream_t stream) noexcept {
  Reports& all = Reports::get();
  const std::lock_guard lock(all.mutex);
  for (Stream& s : all.streams)
    if (s.handle == stream) s.handle = nullptr, s.retirement = ++all.retirements;
}

}  // namespace gradus::cuda
