#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {

static const bool added = add_golden_layers(
    "norm",
    {
        golden<nn::BatchNorm1d>("BatchNorm1d", {.features = 3}),
        golden<nn::BatchNorm1d>("BatchNorm1d/signal", {.features = 3, .eps = 1e-3, .momentum = {}}),
        golden<nn::BatchNorm1d>("BatchNorm1d/plain",
                                {.features = 3, .affine = false, .track_running_stats = false}),
        golden<nn::BatchNorm2d>("BatchNorm2d", {.features = 3}),
        golden<nn::BatchNorm2d>("BatchNorm2d/momentum", {.features = 3, .momentum = 0.3},
                                [](nn::BatchNorm2d& m, X x) {
                                  return std::vector<Tensor>{m(x[0]), m(x[0] * 2)};
                                }),
        golden<nn::BatchNorm3d>("BatchNorm3d", {.features = 3}),
        golden<nn::LayerNorm>("LayerNorm", {.shape = 5}),
        golden<nn::LayerNorm>("LayerNorm/two", {.shape = {3, 4}, .eps = 1e-3}),
        golden<nn::LayerNorm>("LayerNorm/plain", {.shape = 5, .affine = false}),
        golden<nn::GroupNorm>("GroupNorm", {.groups = 2, .channels = 4}),
        golden<nn::GroupNorm>("GroupNorm/plain", {.groups = 1, .channels = 4, .affine = false}),
        golden<nn::InstanceNorm1d>("InstanceNorm1d", {.features = 3}),
        golden<nn::InstanceNorm1d>("InstanceNorm1d/unbatched", {.features = 3, .affine = true}),
        golden<nn::InstanceNorm2d>("InstanceNorm2d",
                                   {.features = 3, .affine = true, .track_running_stats = true}),
        golden<nn::InstanceNorm3d>("InstanceNorm3d",
                                   {.features = 2, .momentum = 0.4, .track_running_stats = true}),
        golden<nn::LocalResponseNorm>("LocalResponseNorm", {.size = 3, .alpha = 0.1, .beta = 0.6, .k = 2}),
        golden<nn::LocalResponseNorm>("LocalResponseNorm/even", {.size = 2}),
        golden<nn::AlphaDropout>("AlphaDropout", {.p = 0.3}),
        golden<nn::FeatureAlphaDropout>("FeatureAlphaDropout", {.p = 0.3}),
        golden<nn::Dropout1d>("Dropout1d", {.p = 0.3}),
        golden<nn::Dropout2d>("Dropout2d", {.p = 0}),
        golden<nn::Dropout3d>("Dropout3d", {.p = 0}),
        golden<nn::RMSNorm>("RMSNorm", {.shape = 5}),
        golden<nn::RMSNorm>("RMSNorm/plain", {.shape = 5, .eps = 1e-3, .affine = false}),
    });

}  // namespace gradus::golden
