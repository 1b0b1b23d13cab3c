// Includes all networks: those for images, GPT and those of GANs.
#pragma once

#include "gradus/models/gan/dcgan.h"
#include "gradus/models/gan/lsgan.h"
#include "gradus/models/gan/pggan.h"
#include "gradus/models/gan/stylegan.h"
#include "gradus/models/gan/stylegan2.h"
#include "gradus/models/gan/r3gan.h"
#include "gradus/models/gan/sngan.h"
#include "gradus/models/gan/wgan_gp.h"
#include "gradus/models/gpt.h"
#include "gradus/models/mnist_net.h"
#include "gradus/models/mobilenet.h"
#include "gradus/models/resnet.h"
#include "gradus/models/unet.h"
#include "gradus/models/velocity_unet.h"
#include "gradus/models/vgg.h"
#include "gradus/models/vision_transformer.h"
