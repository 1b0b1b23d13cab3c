// Data sets, samplers, the loader.
#pragma once

#include "gradus/data/cache_dir.h"
#include "gradus/data/cifar.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/dataset.h"
#include "gradus/data/digits.h"
#include "gradus/data/download.h"
#include "gradus/data/endless.h"
#include "gradus/data/fake_data.h"
#include "gradus/data/idx.h"
#include "gradus/data/image.h"
#include "gradus/data/image_dataset.h"
#include "gradus/data/image_decoder.h"
#include "gradus/data/image_ops.h"
#include "gradus/data/mnist.h"
#include "gradus/data/sampler.h"
#include "gradus/data/transforms.h"
