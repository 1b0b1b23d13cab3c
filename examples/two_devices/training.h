// The training whose time the model_parallel program measures, as in PyTorch's tutorial on model parallelism.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::examples {

struct Batch {
  Tensor images;  // f32[N,3,size,size]
  Tensor labels;  // f32[N,classes], one-hot
};

struct BatchOptions {
  int64_t images = 120, size = 128, classes = 1000;
};
// Returns standard normal images with labels drawn at random, on the host.
Batch random_batch(const BatchOptions& options);

// A network to train, on the devices of its parameters.
struct Trainee {
  std::function<Tensor(const Tensor& images)> forward;
  std::vector<Tensor> parameters;
};

// Returns the gradients of the mean squared error, in the order of net.parameters.
std::vector<Tensor> gradients_of(const Trainee& net, const Batch& batch);

// Trains on the batches by SGD with learning rate 0.001, after a step to warm up. Returns the seconds.
double train_seconds(const Trainee& net, const std::vector<Batch>& batches);

}  // namespace gradus::examples
