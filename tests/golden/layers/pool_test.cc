#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {

static const bool added = add_golden_layers(
    "pool",
    {
        golden<nn::MaxPool1d>("MaxPool1d", {.kernel = 2}),
        golden<nn::MaxPool1d>("MaxPool1d/options",
                              {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}),
        golden<nn::MaxPool2d>("MaxPool2d", {.kernel = 2}),
        golden<nn::MaxPool2d>("MaxPool2d/options",
                              {.kernel = {3, 2}, .stride = {2, 1}, .padding = 1, .ceil_mode = true}),
        golden<nn::MaxPool2d>("MaxPool2d/unbatched", {.kernel = 2}),
        golden<nn::MaxPool3d>("MaxPool3d", {.kernel = {2, 1, 2}, .stride = 1}),
        golden<nn::AvgPool1d>("AvgPool1d",
                              {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false}),
        golden<nn::AvgPool2d>("AvgPool2d", {.kernel = 2}),
        golden<nn::AvgPool2d>(
            "AvgPool2d/options",
            {.kernel = {3, 2}, .stride = 2, .padding = 1, .ceil_mode = true, .divisor_override = 5}),
        golden<nn::AvgPool3d>("AvgPool3d", {.kernel = 2, .stride = {2, 1, 1}, .padding = {1, 0, 1}}),
        golden<nn::LPPool1d>("LPPool1d", {.p = 2, .kernel = 3, .stride = 2}),
        golden<nn::LPPool2d>("LPPool2d", {.p = 1.5, .kernel = {2, 3}}),
        golden<nn::AdaptiveAvgPool1d>("AdaptiveAvgPool1d", {.output = 3}),
        golden<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d", {.output = {2, 4}}),
        golden<nn::AdaptiveAvgPool3d>("AdaptiveAvgPool3d", {.output = {3, 2, 1}}),
        golden<nn::AdaptiveMaxPool1d>("AdaptiveMaxPool1d", {.output = 3}),
        golden<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d", {.output = {2, 4}}),
        golden<nn::AdaptiveMaxPool3d>("AdaptiveMaxPool3d", {.output = {3, 2, 1}}),
        golden<nn::AdaptiveMaxPool3d>("AdaptiveMaxPool3d/unbatched", {.output = 2}),
    });

}  // namespace gradus::golden
