// ResNet-50 with half of its layers on each of two devices, which compute one after the other, or at the same
// time on splits of the batch.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/examples/ddp_demos/toy.h"
#include "gradus/models/resnet.h"

namespace gradus::examples {

// Returns cat(f(x_1), f(x_2), ...) for consecutive splits of split_size samples of the batch x.
template <class F> Tensor in_splits(const Tensor& x, int64_t split_size, F&& f) {
  std::vector<Tensor> results;
  for (const Tensor& part : split(x, split_size)) results.push_back(f(part));
  return cat(results);
}

// A ResNet of four stages with conv1, bn1, layer1 and layer2 on the first device, and layer3, layer4 and fc
// on the second. The names of its parameters are torchvision's.
// Shapes: x [N,3,H,W] on any device -> [N,classes] on the second.
class ModelParallelResNet50 : public models::ResNet {
 public:
  explicit ModelParallelResNet50(models::ResNetOptions options = models::resnet50());
  Tensor forward(const Tensor& x) override { return second_half(to(first_half(to(x, kFirst)), kSecond)); }
  Tensor first_half(const Tensor& x) { return stage(2, stage(1, stem(x))); }
  Tensor second_half(const Tensor& h) { return head(stage(4, stage(3, h))); }
};

// As ModelParallelResNet50, but the first device computes the next split of the batch while the second device
// computes the previous split. Batch norm normalizes each split by itself.
class PipelineParallelResNet50 : public ModelParallelResNet50 {
 public:
  explicit PipelineParallelResNet50(int64_t size = 20, models::ResNetOptions options = models::resnet50())
      : ModelParallelResNet50(std::move(options)), split_size(size) {}
  Tensor forward(const Tensor& x) override {
    return in_splits(to(x, kFirst), split_size,
                     [this](const Tensor& part) { return ModelParallelResNet50::forward(part); });
  }

  int64_t split_size;
};

}  // namespace gradus::examples
