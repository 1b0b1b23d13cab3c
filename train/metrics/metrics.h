// Includes the headers of all metrics: of classifiers, and of generated images.
#pragma once

#include "gradus/train/metrics/class_scores.h"
#include "gradus/train/metrics/classification.h"
#include "gradus/train/metrics/frechet.h"
#include "gradus/train/metrics/kernel_distance.h"
#include "gradus/train/metrics/metric.h"
#include "gradus/train/metrics/ms_ssim.h"
#include "gradus/train/metrics/path_length.h"
#include "gradus/train/metrics/precision_recall.h"
#include "gradus/train/metrics/swd.h"
