// Implements the training step of training_step.h, and counts what the emulator holds for the program.
#include "gradus/tests/cuda/faults/training_step.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/losses.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tensor/runtime/pinned_memory.h"
#include "gradus/tools/cuda_emulator/libraries/cublaslt.h"
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/pinned.h"
#include "gradus/tools/cuda_emulator/streams.h"

namespace gradus {
namespace {

Tensor numbers(const Shape& shape) {
  return raw::to(reshape(linspace(-0.5, 0.7, shape.product(), {.dtype = DType::kF64}), shape), DType::kF32);
}

}  // namespace

Tensor SmallNet::forward(const Tensor& x) { return fc(mean(relu(conv(x * gain)), {2, 3})); }

Training::Training(Device device, int64_t height, int64_t width)
    : images(numbers({2, 1, height, width})),
      target(tensor(std::vector<int64_t>{2, 0}, {2})),
      device_(device),
      opt_(net_.parameters(), {.lr = 0.1, .momentum = 0.9, .dampening = 0.5}) {  // the first step is undamped
  for (const Tensor& p : net_.parameters()) raw::copy_(p, numbers(p.shape()));
  net_.to(device);
  gm_.attach(net_.parameters());
}

std::vector<double> Training::step() {
  opt_.clear_grad();
  Tensor loss;
  {
    auto recording = gm_.record();
    loss = cross_entropy(net_(to(images, device_)), to(target, device_));
    gm_.backward(loss);
  }
  opt_.step();
  const Stream main = current_stream(device_), side = Stream::create(device_);
  side.wait(Event::record(main));
  Tensor total = zeros({}, {.device = device_});
  side.wait(Event::record(main));
  {
    const StreamScope scope(side);
    for (const Tensor& p : net_.parameters()) total = total + sum(exp(p));
  }
  main.wait(Event::record(side));
  std::vector<double> read{loss.item<double>(), total.item<double>()};
  loss = {}, total = {};
  empty_cache(device_);
  return read;
}

std::vector<double> Training::parameters() {
  std::vector<double> all;
  for (const Tensor& p : net_.parameters())
    for (const double v : p.to_vector<double>()) all.push_back(v);
  return all;
}

Expected::Expected(int64_t height, int64_t width) {
  Training training(kCPU, height, width);
  parameters[0] = training.parameters();
  for (size_t i = 0; i < kSteps; ++i) {
    read[i] = training.step();
    parameters[i + 1] = training.parameters();
  }
}

// 1e-5: f32 sums of some hundred terms, in another order than the CPU's.
bool is_near(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b,
                            [](double x, double y) { return std::abs(x - y) <= 1e-5 * (1 + std::abs(y)); });
}

Holdings Holdings::now() {
  using namespace cuda::emulated;  // NOLINT
  Holdings h{};
  for (int d = 0; d < device_count(); ++d) h.blocks += memory_of(d)->blocks();
  const size_t kept = gradus::internal::PinnedMemory::of(kCuda).blocks();  // for the next copies
  h.pinned = count_pinned() - kept;
  h.products = count_matmul_descriptors(), h.convolutions = count_descriptors();
  const auto lock = Runtime::get().lock();
  h.streams = Runtime::get().streams(), h.events = Runtime::get().events - kept;
  return h;
}

std::string to_string(const Holdings& h) {
  return concat(h.blocks, " blocks, ", h.pinned, " pinned blocks, ", h.streams, " streams, ", h.events,
                " events, ", h.products, " descriptors of cuBLASLt, ", h.convolutions, " of cuDNN");
}

}  // namespace gradus
