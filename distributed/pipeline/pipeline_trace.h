// Writes a PipelineRecord in the Trace Event Format of ui.perfetto.dev and chrome://tracing.
#pragma once

#include <filesystem>

#include "gradus/distributed/pipeline/pipeline_record.h"

namespace gradus::dist {

// Writes JSON. Each rank is a process with a track of actions ("2F0") and a track of messages; the duration
// of a receive is the rank's waiting time. Flow arrows lead from the sending to the receiving action. Counters
// show the rank's micro-batches in flight and the bytes of its process's tensors.
// Errors: FileError naming the file.
void write_trace(const PipelineRecord& record, const std::filesystem::path& path);

}  // namespace gradus::dist
