// All networks: MnistNet and ResNet.
#pragma once

#include "gradus/models/mnist_net.h"
#include "gradus/models/resnet.h"
