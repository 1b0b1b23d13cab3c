// Workloads in LibTorch: optimizer steps over 100 tensors of 100,000 elements (10M), over many small
// parameters and of a sparse embedding, and gradient clipping.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// optim_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

constexpr int64_t kLarge = 100000;

std::vector<torch::Tensor> parameters(int64_t number, int64_t size) {
  std::vector<torch::Tensor> all;
  for (int64_t i = 0; i < number; ++i) {
    all.push_back(torch::randn({size}).requires_grad_());
    all.back().mutable_grad() = torch::randn({size});
  }
  return all;
}

template <class O, class Options>
Entry step(const char* name, int64_t number, int64_t size, Options options) {
  return {name, [=] {
            const auto opt = std::make_shared<O>(parameters(number, size), options);
            return work([=] { opt->step(); });
          }};
}

// A step of an embedding with 50,000 rows and a sparse gradient of the 2,048 rows that were read.
template <class O, class Options> Entry sparse_step(const char* name, Options options) {
  return {name, [=] {
            torch::nn::Embedding words(torch::nn::EmbeddingOptions(50000, 256).sparse(true));
            const auto opt = std::make_shared<O>(words->parameters(), options);
            const auto read = torch::randint(50000, {64, 32}, torch::kLong), dy = torch::randn({64, 32, 256});
            return work([=]() mutable {
              opt->zero_grad();
              words->forward(read).backward(dy);
              opt->step();
            });
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kLibTorch, "optim",
    {
        step<torch::optim::SGD>("SGD with momentum, 10M", 100, kLarge,
                                torch::optim::SGDOptions(1e-5).momentum(0.9)),
        step<torch::optim::Adam>("Adam, 10M", 100, kLarge, torch::optim::AdamOptions(1e-5)),
        step<torch::optim::AdamW>("AdamW, 10M", 100, kLarge, torch::optim::AdamWOptions(1e-5)),
        step<torch::optim::Adagrad>("Adagrad, 10M", 100, kLarge, torch::optim::AdagradOptions(1e-5)),
        step<torch::optim::RMSprop>("RMSprop, 10M", 100, kLarge, torch::optim::RMSpropOptions(1e-5)),
        step<torch::optim::Adam>("Adam, 200 parameters of 64", 200, 64, torch::optim::AdamOptions(1e-5)),
        sparse_step<torch::optim::SGD>("SGD of a sparse embedding, 2K rows of 50K x 256",
                                       torch::optim::SGDOptions(1e-3)),
        sparse_step<torch::optim::Adagrad>("Adagrad of a sparse embedding, 2K rows of 50K x 256",
                                           torch::optim::AdagradOptions(1e-3)),
        {"clip_grad_norm_, 10M",
         [] {
           const auto params = parameters(100, kLarge);
           return work([=] { torch::nn::utils::clip_grad_norm_(params, 1e9); });
         }},
    });

}  // namespace gradus::bench
