// SyncBatchNorm: batch norm with the statistics of all ranks' batches together. It is not a type of its own,
// but a batch norm with a reduction:
//
//   dist::convert_sync_batchnorm(net);          // every batch norm in net, at any depth
//
// Each layer runs one collective in its forward and one in its backward. Batches may differ in size between
// ranks, and be empty on some. Gradients of any order are those of the joined batch. In evaluation mode and
// in a group of one, layers are plain. Every rank must run the same layers in the same order. Code that calls
// the function batch_norm directly is not converted.
#pragma once

#include "gradus/distributed/group/group.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// Makes every batch norm in the module synchronize. Returns how many there are. Parameters, buffers and
// training mode stay.
int convert_sync_batchnorm(nn::Module& module, const Group& group = {});
// Makes every batch norm in the module plain again. Returns how many there are.
int revert_sync_batchnorm(nn::Module& module);

// Makes every MinibatchStdDev in the module look at the joined batch of all ranks. Returns how many there
// are. In training each layer runs one collective in its forward and one in its backward. The ranks' batches
// must be of one shape. Gradients of any order are those of the joined batch.
int convert_sync_minibatch_stddev(nn::Module& module, const Group& group = {});
// Makes every MinibatchStdDev in the module look at its own rank's batch again. Returns how many there are.
int revert_sync_minibatch_stddev(nn::Module& module);

}  // namespace gradus::dist
