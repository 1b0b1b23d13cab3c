#include "gradus/train/internal/numbers.h"

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::training::internal {

bool is_on_gpu(const Tensor& x) { return x.device().type == DeviceType::kCUDA; }

Tensor copy_number(const Tensor& x) {
  const Tensor number = empty({}, {DType::kF64, x.device()});
  raw::copy_(number, raw::reshape(x, {}));
  return number;
}

std::vector<double> read_numbers(const std::vector<Tensor>& numbers) {
  if (numbers.empty()) return {};
  const auto count = static_cast<int64_t>(numbers.size());
  const Tensor all = empty({count}, {DType::kF64, numbers[0].device()});
  for (int64_t i = 0; i < count; ++i) raw::copy_(raw::select(all, 0, i), numbers[static_cast<size_t>(i)]);
  return all.to_vector<double>();
}

}  // namespace gradus::training::internal
