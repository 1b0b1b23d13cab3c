// The demonstrations of the ddp program. Every rank of the job calls each function (collective). Rank 0
// prints the values of all ranks before and after; a rank with a wrong result throws StateError.
#pragma once

namespace gradus::examples {

void show_collectives();     // all_reduce, broadcast, scatter, ..., groups
void show_messages();        // send, recv, isend, irecv, tags
void show_ring();            // a ring all-reduce from isend and irecv
void show_basic();           // DistributedDataParallel
void show_checkpoint();      // save on rank 0, load on all ranks
void show_model_parallel();  // a model on two devices of each rank
void show_remote();          // a model on two ranks, with gradients

}  // namespace gradus::examples
