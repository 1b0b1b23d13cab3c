// All transforms of images.
#pragma once

#include "gradus/data/transforms/color.h"
#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/data/transforms/transform.h"
