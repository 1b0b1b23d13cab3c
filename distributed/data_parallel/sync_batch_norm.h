// SyncBatchNorm: batch norm whose statistics are those of all ranks' batches together. It is no type of its
// own, but a batch norm with a reduction:
//
//   dist::convert_sync_batchnorm(net);          // every batch norm in net, at any depth
//
// One collective in the forward and one in the backward of each layer. Batches may differ in size between
// ranks, and be empty on some. Gradients of any order are those of the joined batch. Evaluation, and a group
// of one, are plain. Every rank must come to the same layers in the same order. What calls the function
// batch_norm is no layer and stays as it is.
#pragma once

#include "gradus/distributed/group/group.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// Returns how many layers now synchronize. Parameters, buffers and training mode stay.
int convert_sync_batchnorm(nn::Module& module, const Group& group = {});
// Makes them plain again.
int revert_sync_batchnorm(nn::Module& module);

}  // namespace gradus::dist
