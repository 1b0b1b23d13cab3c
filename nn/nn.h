// Everything of nn.
#pragma once

#include "gradus/nn/activation.h"
#include "gradus/nn/batch_norm.h"
#include "gradus/nn/conv.h"
#include "gradus/nn/dropout.h"
#include "gradus/nn/flatten.h"
#include "gradus/nn/init.h"
#include "gradus/nn/layer.h"
#include "gradus/nn/linear.h"
#include "gradus/nn/losses.h"
#include "gradus/nn/module.h"
#include "gradus/nn/pooling.h"
#include "gradus/nn/sequential.h"
#include "gradus/nn/summary.h"
