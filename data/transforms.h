// All transforms of images.
#pragma once

#include "gradus/data/transform.h"
#include "gradus/data/transforms_color.h"
#include "gradus/data/transforms_geometry.h"
#include "gradus/data/transforms_tensor.h"
