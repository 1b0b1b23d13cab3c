// The results of a training as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gradus/examples/support/training.h"

namespace gradus::examples {

// What all programs tell: results, speed, memory, the options, and each epoch. Programs may add to it.
nlohmann::ordered_json summary_of(const Training& training);

// Writes it to the file of --summary, if there is one, on rank 0.
void write_summary(const Training& training, const nlohmann::ordered_json& summary);

}  // namespace gradus::examples
