// Training::Impl: what a training counts, checks, logs and saves.
#pragma once

#include "gradus/train/internal/checkpoint_files.h"
#include "gradus/train/internal/finite_check.h"
#include "gradus/train/internal/sample_log.h"
#include "gradus/train/internal/step_log.h"
#include "gradus/train/internal/stop.h"
#include "gradus/train/training.h"

namespace gradus::training {

struct Training::Impl {
  explicit Impl(const Training& t)
      : files(t.program_, t.run_, t.loader_.dataset().name(), t.options_.fixed),
        finite_check(t.program_, files.path()),
        samples(t.run_.sample_log),
        log(t.run_, t.options_, t.loader_, counts) {}

  internal::Counts counts;
  internal::CheckpointFiles files;
  internal::FiniteCheck finite_check;
  internal::SampleLog samples;
  internal::Stop stop;
  internal::StepLog log;
};

}  // namespace gradus::training
