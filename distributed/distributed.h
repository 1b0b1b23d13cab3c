// Includes the headers for programs of several ranks: data parallelism, collectives, messages, launcher and
// pipelines. Not included: key-value stores (gradus/distributed/store/) and simulation/simulation.h, for
// tests.
#pragma once

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/data_parallel/data_parallel.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
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
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/distributed/pipeline/pipeline_report.h"
#include "gradus/distributed/pipeline/schedule.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"
