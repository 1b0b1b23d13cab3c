// What a training needs to go on where it was, to and from a checkpoint.
#pragma once

#include "gradus/data/dataloader.h"
#include "gradus/io/checkpoint.h"
#include "gradus/nn/module.h"
#include "gradus/optim/optim.h"

namespace gradus::examples {

// Model, optimizer, schedule, place in the data, and the random numbers of the current Context. With data
// parallel training all of it is the same on every rank, so one rank's checkpoint is everyone's, for any
// number of ranks.
struct TrainingState {
  nn::Module& model;
  optim::Optimizer& optimizer;
  optim::LRSchedule& schedule;
  data::DataLoader& loader;

  io::Checkpoint save() const;
  // Errors: FileError or ValueError for what is missing or does not fit.
  void load(const io::Checkpoint& c) const;
};

}  // namespace gradus::examples
