// All headers for programs of several ranks. For tests there is also
// gradus/distributed/simulation/simulation.h.
#pragma once

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/data_parallel.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/power_sgd.h"
#include "gradus/distributed/data_parallel/separate_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/data_parallel/verify.h"
#include "gradus/distributed/group/any_rank.h"
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/grid.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/remote.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/launch/launcher.h"
