// SyncBatchNorm: batch norm with statistics over the joined batch of all ranks. There is no class of this
// name; convert_sync_batchnorm sets a reduction over ranks in existing layers:
//
//   dist::convert_sync_batchnorm(net);          // every batch norm in net, at any depth
//
// In training each layer runs one collective in its forward and one in its backward. Batch sizes may differ
// between ranks, and may be 0. Gradients of any order are those of the joined batch. In evaluation mode and
// in a group of one rank, layers do not communicate. Every rank must run the same layers in the same order.
// Direct calls of the function batch_norm are not converted.
#pragma once

#include "gradus/distributed/group/group.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// Makes every batch norm in the module use the statistics of all ranks of the group (default: all ranks).
// Returns their number. Parameters, buffers and training mode do not change. Not collective.
// Errors: ValueError if this rank is no member of the group.
int convert_sync_batchnorm(nn::Module& module, const Group& group = {});
// Undoes convert_sync_batchnorm. Returns the number of batch norms.
int revert_sync_batchnorm(nn::Module& module);

// Makes every MinibatchStdDev in the module use the joined batch of all ranks. Returns their number. In
// training each layer runs one collective in its forward and one in its backward. The ranks' batches must
// have equal shapes. Gradients of any order are those of the joined batch. Not collective.
// Errors: ValueError if this rank is no member of the group.
int convert_sync_minibatch_stddev(nn::Module& module, const Group& group = {});
// Undoes convert_sync_minibatch_stddev. Returns the number of layers.
int revert_sync_minibatch_stddev(nn::Module& module);

}  // namespace gradus::dist
