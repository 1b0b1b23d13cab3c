// Umbrella header of all image transforms.
#pragma once

#include "gradus/data/transforms/color.h"
#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/data/transforms/transform.h"
