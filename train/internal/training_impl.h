// Training::Impl: the private members of Training (pimpl), for training.cc and step.cc. The members count steps
// and images, find checkpoint files, check for NaN and infinity, write the logs, and handle SIGINT and SIGTERM.
#pragma once

#include "gradus/train/internal/checkpoint_files.h"
#include "gradus/train/internal/finite_check.h"
#include "gradus/train/internal/step_log.h"
#include "gradus/train/internal/stop.h"
#include "gradus/train/training.h"

namespace gradus::training {

struct Training::Impl {
  // Called in the constructor of t, when program_, run_, loader_ and options_ are initialized. `log` keeps
  // references to t's options and loader, and to `counts`, so t must outlive the Impl.
  explicit Impl(const Training& t)
      : files(t.program_, t.run_, t.loader_.dataset().name(), t.options_.fixed),
        finite_check(t.program_, files.path()),
        samples(t.run_.sample_log),
        log(t.run_, t.options_, t.loader_, counts) {}

  // The order matters: finite_check reads `files` during construction.
  internal::Counts counts;          // steps, images and seconds over all runs; stored in checkpoints
  internal::CheckpointFiles files;  // paths of checkpoints, and the check that a checkpoint fits this program
  internal::FiniteCheck finite_check;  // NaN and infinity in logged values and gradients
  internal::SampleLog samples;         // file of the sample indices of each step, for tests
  internal::Stop stop;                 // agreement of all ranks to stop after SIGINT or SIGTERM
  internal::StepLog log;               // sums over ranks, lines or progress bar, event files
};

}  // namespace gradus::training
