// GPT networks against the same networks in PyTorch (gpt.py wrote gpt.safetensors): outputs and gradients,
// with the tolerances of golden_layers.h.
#include "gradus/models/gpt.h"

#include "gradus/tests/nn/layers/golden_layers.h"

namespace gradus::golden {

using models::GPT;

static const bool added = add_golden_layers(
    "tests/golden/gpt/gpt.safetensors",
    {
        golden<GPT>("GPT",
                    {.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .width = 8, .dropout = 0}),
        golden<GPT>("GPT/short",
                    {.vocabulary = 7, .context = 9, .layers = 3, .heads = 1, .width = 6, .dropout = 0}),
        golden<GPT>("GPT/no_bias", {.vocabulary = 5,
                                    .context = 8,
                                    .layers = 1,
                                    .heads = 3,
                                    .width = 6,
                                    .dropout = 0,
                                    .bias = false}),
    });

}  // namespace gradus::golden
