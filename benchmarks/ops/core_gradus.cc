// Workloads: the training step of the MNIST network and the smallest ops, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (core_libtorch.cc).
#include "benchmarks/mnist_step.h"
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {

void set_up_gradus(int threads) {
  set_num_threads(threads);
  manual_seed(1);
}

static const AddWorkloads added(Side::kGradus, "core",
                                {
                                    {"mnist_cnn train step, batch 64",
                                     [] {
                                       auto step = std::make_shared<MnistStep>(64);
                                       return work([=] { step->run(); });
                                     }},
                                    {"add of 1-element tensors",
                                     [] {
                                       const Tensor a = ones({1}), b = ones({1});
                                       return tiny([=] { add(a, b); });
                                     }},
                                    {"add of 1-element tensors, recorded",
                                     []() -> Workload {
                                       const Tensor a = ones({1}), b = ones({1});
                                       auto gm = std::make_shared<GradManager>();
                                       gm->attach({a, b});
                                       auto recording = std::make_shared<Recording>(gm->record().pause());
                                       return {"ns", 20000, [=] {
                                                 recording->resume();
                                                 for (int i = 0; i < 20000; ++i) add(a, b);
                                                 recording->pause();
                                               }};
                                     }},
                                });

}  // namespace gradus::bench
