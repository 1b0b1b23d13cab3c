// The parts of the ddp program. Each is called by every rank of a job, shows on rank 0 what all ranks have,
// and throws on a rank whose result is wrong.
#pragma once

namespace gradus::examples {

void show_collectives();
void show_messages();
void show_ring();
void show_basic();
void show_checkpoint();
void show_model_parallel();
void show_remote();

}  // namespace gradus::examples
