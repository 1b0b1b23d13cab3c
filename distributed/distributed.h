// All that programs of several ranks use. For tests there is more: gradus/distributed/simulation.h.
#pragma once

#include "gradus/distributed/allreduce_callback.h"
#include "gradus/distributed/bcast_checkpoint.h"
#include "gradus/distributed/bcast_list.h"
#include "gradus/distributed/client.h"
#include "gradus/distributed/collectives.h"
#include "gradus/distributed/data_parallel.h"
#include "gradus/distributed/distributed_data_parallel.h"
#include "gradus/distributed/functional.h"
#include "gradus/distributed/launcher.h"
#include "gradus/distributed/object.h"
#include "gradus/distributed/process_group.h"
#include "gradus/distributed/remote.h"
#include "gradus/distributed/run_ranks.h"
#include "gradus/distributed/separate_data_parallel.h"
#include "gradus/distributed/sync_batch_norm.h"
#include "gradus/distributed/verify.h"
