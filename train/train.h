// Umbrella header of train, for training programs: command line, steps, log, metrics, checkpoints, exact
// resume, interruption by signals, results.
#pragma once

#include "gradus/train/command_line.h"
#include "gradus/train/evaluate.h"
#include "gradus/train/flow/flow_matching.h"
#include "gradus/train/gan/gan.h"
#include "gradus/train/metrics/metrics.h"
#include "gradus/train/pipeline_options.h"
#include "gradus/train/program.h"
#include "gradus/train/progress.h"
#include "gradus/train/ranks.h"
#include "gradus/train/step.h"
#include "gradus/train/summary.h"
#include "gradus/train/tally.h"
#include "gradus/train/text.h"
#include "gradus/train/training.h"
#include "gradus/train/training_options.h"
#include "gradus/train/training_state.h"
