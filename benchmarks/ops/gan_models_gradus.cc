// Workloads: training steps of the networks in models/gan, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (gan_models_libtorch.cc).
#include <memory>

#include "benchmarks/gan_steps.h"
#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

Entry dcgan(const char* name, DcganStepOptions options) {
  return {name, [=] {
            auto step = std::make_shared<DcganStep>(options);
            return work([=] { step->run(); });
          }};
}

Entry wgan_gp(const char* name, int64_t size, int64_t width, int64_t batch) {
  return {name, [=] {
            auto step = std::make_shared<WganGpCriticStep>(size, width, batch);
            return work([=] { step->run(); });
          }};
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "gan_models",
                                {dcgan("dcgan 64x64 train step, batch 64", {}),
                                 dcgan("dcgan 32x32 train step, batch 128",
                                       {.size = 32, .channels = 1, .width = 32, .batch = 128}),
                                 wgan_gp("wgan-gp 64x64 critic train step, batch 16", 64, 64, 16)});

}  // namespace gradus::bench
