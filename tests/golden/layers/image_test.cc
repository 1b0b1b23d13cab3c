#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {

static const bool added = add_golden_layers(
    "image",
    {
        golden<nn::ConstantPad1d>("ConstantPad1d", {.padding = {1, 2}, .value = 0.5}),
        golden<nn::ConstantPad2d>("ConstantPad2d", {.padding = {1, -1, 0, 2}, .value = 3}),
        golden<nn::ConstantPad3d>("ConstantPad3d", {.padding = 1, .value = -1}),
        golden<nn::ZeroPad2d>("ZeroPad2d", {.padding = {1, 2, 3, 0}}),
        golden<nn::ZeroPad2d>("ZeroPad2d/unbatched", {.padding = 1}),
        golden<nn::ReflectionPad1d>("ReflectionPad1d", {.padding = {3, 1}}),
        golden<nn::ReflectionPad2d>("ReflectionPad2d", {.padding = {1, 2, 2, 0}}),
        golden<nn::ReflectionPad3d>("ReflectionPad3d", {.padding = 1}),
        golden<nn::ReplicationPad1d>("ReplicationPad1d", {.padding = {2, 5}}),
        golden<nn::ReplicationPad2d>("ReplicationPad2d", {.padding = 2}),
        golden<nn::ReplicationPad3d>("ReplicationPad3d", {.padding = {1, 0, 2, 1, 0, 1}}),
        golden<nn::Upsample>("Upsample", {.scale_factor = {2}}),
        golden<nn::Upsample>("Upsample/size",
                             {.size = {5, 2}, .mode = Interpolation::kBilinear, .align_corners = true}),
        golden<nn::Upsample>("Upsample/linear", {.scale_factor = {1.5}, .mode = Interpolation::kLinear}),
        golden<nn::PixelShuffle>("PixelShuffle", {.factor = 2}),
        golden<nn::PixelUnshuffle>("PixelUnshuffle", {.factor = 2}),
        golden<nn::Unfold>("Unfold", {.kernel = {2, 3}, .stride = 2, .padding = 1}),
        golden<nn::Fold>("Fold", {.output = {4, 5}, .kernel = 2, .stride = {2, 1}}),
    });

}  // namespace gradus::golden
