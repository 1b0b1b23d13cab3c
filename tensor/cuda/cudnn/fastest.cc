#include "gradus/tensor/cuda/cudnn/fastest.h"

#include <limits>
#include <memory>
#include <vector>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::cuda {
namespace {

using Events = std::vector<std::unique_ptr<internal::NativeEvent>>;

constexpr int kTimes = 3;

// Empty where it fails.
Events run(internal::NativeStream& stream, const std::function<std::function<void()>()>& prepare) {
  const auto record = [&] {
    auto event =
        std::make_unique<internal::NativeEvent>(stream.runtime(), stream.device().index, /*timed=*/true);
    stream.record(*event);
    return event;
  };
  try {
    const std::function<void()> work = prepare();
    work();  // the library loads its kernels
    Events events;
    events.push_back(record());
    for (int i = 0; i < kTimes; ++i) {
      work();
      events.push_back(record());
    }
    return events;
  } catch (const DeviceFailure&) {
    return {};
  }
}

}  // namespace

std::optional<size_t> find_fastest(Device device, size_t n,
                                   const std::function<std::function<void()>(size_t)>& prepare) {
  const std::shared_ptr<internal::NativeStream> stream = internal::current_native_stream(device);
  std::vector<Events> all;
  for (size_t i = 0; i < n; ++i) all.push_back(run(*stream, [&] { return prepare(i); }));
  for (auto last = all.rbegin(); last != all.rend(); ++last)
    if (!last->empty()) {
      last->back()->synchronize();
      break;
    }
  std::optional<size_t> fastest;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 1; k < all[i].size(); ++k)
      if (const auto seconds = all[i][k]->seconds_since(*all[i][k - 1]); seconds && *seconds < least)
        least = *seconds, fastest = i;
  return fastest;
}

}  // namespace gradus::cuda
