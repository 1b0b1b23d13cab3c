// Umbrella header of all public parts of Gradus: core.h (tensors, autograd, modules, optimizers), data loading,
// files, distributed training, models, ops on boxes, training programs, the profiler and gradient checks.
#pragma once

#include "gradus/autograd/gradcheck.h"
#include "gradus/core.h"
#include "gradus/data/data.h"
#include "gradus/distributed/distributed.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/event_writer.h"
#include "gradus/io/safetensors.h"
#include "gradus/io/save_image.h"
#include "gradus/io/weights.h"
#include "gradus/models/models.h"
#include "gradus/optim/step_in_backward.h"
#include "gradus/tensor/profile/profiler.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/train/train.h"
#include "gradus/vision/boxes.h"
#include "gradus/vision/detection.h"
#include "gradus/vision/draw.h"
