// Traces of pipelines, for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <filesystem>

#include "gradus/distributed/pipeline/pipeline_record.h"

namespace gradus::dist {

// Writes trace events as JSON. Each rank is a process with a row for actions ("2F0") and one for messages,
// where a receive lasts as long as the rank waited. An arrow leads from the action that sends a message to
// the one that takes it. Counters show the micro-batches that the rank holds, and the bytes of its process.
// Errors: FileError naming the file.
void write_trace(const PipelineRecord& record, const std::filesystem::path& path);

}  // namespace gradus::dist
