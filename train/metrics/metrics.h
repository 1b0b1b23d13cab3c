// All metrics: of classifiers, and of generated images.
#pragma once

#include "gradus/train/metrics/classification.h"
#include "gradus/train/metrics/mean.h"
#include "gradus/train/metrics/metric.h"
