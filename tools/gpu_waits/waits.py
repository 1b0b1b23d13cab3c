"""The waits of collectives on GPUs, each with the edits that remove it. run.py reads the list."""
import typing


class Wait(typing.NamedTuple):
    name: str
    file: str
    edits: list  # pairs: text that occurs exactly once in the file, and its replacement
    needless: str = ""  # why no test on the emulated device can notice the removal


STATE = "distributed/group/group_state.cc"
STAGED = "distributed/group/internal/staged_collectives.cc"
CALLS = "distributed/group/internal/device_calls.cc"
LINKS = "distributed/group/internal/device_links.cc"
ORDER = "distributed/group/internal/issue_order.cc"
MESSAGE = "distributed/group/internal/message_work.cc"
DEVICE_MESSAGES = "distributed/group/internal/device_messages.cc"
NCCL = "distributed/cuda/nccl_collectives.cc"
STREAM = "tensor/runtime/stream.cc"
CAPTURED = "distributed/group/internal/captured_calls.cc"
GRAPH = "tensor/graph_capture.cc"

# Each call of StagedCollectives waits for its copies to the host. By function: what follows the wait.
STAGED_CALLS = {
    "all_reduce": "    host_.all_reduce(",
    "reduce": "    host_.reduce(call",
    "reduce_scatter": "    host_.reduce_scatter(",
    "broadcast": "    host_.broadcast(",
    "all_gather": "    host_.all_gather(",
    "exchange_blocks": "    host_.exchange_blocks(",
}

# Collectives that allocate their results. By function: the statement before its tensors.
GATHERS = {
    "gather": '  Collective call{.op = "gather", .record = make_record(Op::kGather, in, {}, root)};\n',
    "all_gather": '  Collective call{.op = "all_gather", .record = make_record(Op::kAllGather, in)};\n',
}

LATE = "a waiter of a Futex looks again after 50 ms: late, but right"

WAITS = [
    # The caller and the call.
    Wait("posted: the event of the caller's work", STATE,
         [("Event::record(current_stream(device)), Event())", "Event(), Event())")]),
    Wait("posted: the call's stream waits for it", STATE, [("    stream.wait(gpu.posted);\n", "")]),
    Wait("done: the event of the call", STATE, [("    gpu.done = Event::record(stream);\n", "")]),
    Wait("done: the caller's stream waits, synchronous call", STATE,
         [("      if (gpu) current_stream(gpu->device).wait(gpu->done);\n", "")]),
    Wait("done: the host waits, synchronous call behind others", STATE, [("  if (!async) work.wait();\n", "")]),
    Wait("done: the caller's stream waits, Work::wait", STATE,
         [("  // throws its errors\n    current_stream(call_->device).wait(call_->done);\n", "  // throws its errors\n")]),
    Wait("queued: the host waits, Work::wait", STATE, [("    queued_.wait(timeout);\n", "")]),
    Wait("done: the host waits, Work::wait with a timeout", STATE,
         [("    while (timeout && !call_->done.done()) {", "    while (false) {"),
          ("    if (timeout) call_->done.synchronize();  // throws its errors\n", "")]),
    Wait("done: the limit of Work::wait with a timeout", STATE,
         [("    while (timeout && !call_->done.done()) {", "    while (false) {")]),
    Wait("done: errors of Work::wait with a timeout", STATE,
         [("    if (timeout) call_->done.synchronize();  // throws its errors\n", "")]),
    Wait("queued: polled by Work::is_completed", STATE, [("    if (!queued_.is_completed()) return false;\n", "")]),
    Wait("done: polled by Work::is_completed", STATE, [("    return call_->done.done();\n", "    return true;\n")]),
    Wait("the current stream of the call's kernels", STATE, [("    const StreamScope scope(stream);\n", "")]),
    # Memory that the call's stream uses.
    Wait("memory: record_use", STATE,
         [("      record_use(x, stream);\n", "      (void)x;\n")]),
    Wait("memory: tensors of collectives", "distributed/group/collectives.cc",
         [("  collective.tensors = args.on_gpu();\n", "")]),
    *[Wait("memory: the input of " + op, "distributed/group/collectives.cc",
           [(record + "  call.device = args.device();\n  call.tensors = args.on_gpu();\n",
             record + "  call.device = args.device();\n")])
      for op, record in GATHERS.items()],
    Wait("memory: inputs of functional collectives", "distributed/group/agreement.cc",
         [("  call.tensors.assign(forward.inputs.begin(), forward.inputs.end());\n", "")]),
    Wait("memory: buckets", "distributed/data_parallel/internal/bucket.cc",
         [("    call.tensors = {bucket->memory};\n", "")],
         needless="kernels that copy to the bucket or fill it mark its memory; without such, no call uses it"),
    Wait("memory: gradients", "distributed/data_parallel/internal/bucket.cc",
         [("      if (g.sent.defined()) call.tensors.push_back(g.sent);\n", "      (void)g;\n")]),
    Wait("memory: operands of kernels", "tensor/cuda/ops/operands.cc",
         [("      if (x->defined()) allocator->record_stream(x->storage()->data(), stream);\n", "      (void)x;\n")]),
    Wait("memory: pinned blocks", STAGED,
         [("    if (pinned_) memory_.record_use(pinned_, stream_.handle());\n", "")]),
    # Through host memory.
    *[Wait("staged: " + name, STAGED, [("    wait(call);\n" + next_line, next_line)])
      for name, next_line in STAGED_CALLS.items()],
    Wait("staged: errors of earlier kernels", STAGED, [("    queued.synchronize();\n", "")]),
    Wait("staged: the job's failure ends the wait", STAGED,
         [("      call.watch.membership->check(call.op);\n", "      (void)call;\n")]),
    # By NCCL.
    Wait("NCCL: polled until queued, ncclCommInitRankConfig", NCCL,
         [('      poll_until_queued(call, "ncclCommInitRankConfig",\n'
           "                        nccl_.ncclCommInitRankConfig(&comm_, size, unique, index, &config));\n",
           "      (void)call, (void)nccl_.ncclCommInitRankConfig(&comm_, size, unique, index, &config);\n")]),
    Wait("NCCL: polled until queued, one call", NCCL,
         [("    poll_until_queued(call, function, status);\n", "    (void)function;\n")]),
    Wait("NCCL: polled until queued, a group of calls", NCCL,
         [('    poll_until_queued(call, "ncclGroupEnd", nccl_.ncclGroupEnd());\n',
           "    (void)nccl_.ncclGroupEnd();\n")]),
    Wait("NCCL: aborts end all calls before one waits", NCCL,
         [("  const bool is_grouped = taken.size() > 1 && nccl.ncclGroupStart() == ncclSuccess;\n",
           "  const bool is_grouped = false;\n")]),
    Wait("NCCL: one stream of all groups", LINKS,
         [("world_->stream_of(link.device));", "Stream::create(link.device));")]),
    # The order of the calls of all groups.
    Wait("order: a call waits until it is the next one", STATE,
         [("  turn.wait(call.op, call.watch);\n", "")]),
    Wait("order: the greatest proposal counts", STATE,
         [("    agreed = std::max(agreed, number);\n", "    agreed = proposed;\n")]),
    Wait("order: a call waits for proposals", ORDER,
         [("  key_ = {++order_.count_, {}};\n  order_.open_.emplace(key_, this);\n",
           "  key_ = {++order_.count_, {}};\n")]),
    Wait("order: agreed numbers advance the count", ORDER,
         [("    order_.count_ = std::max(order_.count_, agreed);\n", "")]),
    Wait("order: the end of a turn wakes the next call", ORDER,
         [("    order_.open_.erase(key_);\n  }\n  order_.changed_.notify();\n",
           "    order_.open_.erase(key_);\n  }\n")],
         needless=LATE),
    Wait("order: an agreed number wakes the next call", ORDER,
         [("  }\n  order_.changed_.notify();\n}\n\nbool IssueOrder", "  }\n}\n\nbool IssueOrder")], needless=LATE),
    # Queued calls, whose members may end.
    Wait("queued calls: watched", STATE, [("      world_->device_calls().watch(watched);\n", "")]),
    Wait("queued calls: the event of a watched call", STATE,
         [("    if (watched) watched->set_queued(gpu.done);\n", "")]),
    Wait("queued calls: a rank does not exit before they are done", CALLS,
         [("    posted_->add(call->series, 1);\n", ""), ("  posted_->add(call.series, -1);\n", ""),
          ("  for (const auto& call : calls) posted_->add(call->series, -1);\n", "")]),
    Wait("queued calls: polled", CALLS,
         [("    if (!call.is_queued.load(std::memory_order_acquire) || !call.done.done()) return false;\n",
           "    if (!call.is_queued.load(std::memory_order_acquire)) return false;\n")]),
    Wait("queued calls: polled when they have their event", CALLS,
         [("    if (!call.is_queued.load(std::memory_order_acquire) || !call.done.done()) return false;\n",
           "    if (!call.done.done()) return false;\n")]),
    Wait("queued calls: a new one wakes the thread", CALLS,
         [("    posted_->add(call->series, 1);\n  }\n  changed_.notify_all();\n",
           "    posted_->add(call->series, 1);\n  }\n")]),
    Wait("connections: closed by a thread", STATE,
         [("    links_->retire(world_->device_calls());\n", "    (void)0;\n")]),
    Wait("connections: closed behind their queued calls", CALLS,
         [("(one.use_count() == 2 && one->close())", "one->close()")]),
    Wait("connections: a retired one wakes the thread", CALLS,
         [("    retired_.push_back(std::move(collectives));\n  }\n  changed_.notify_all();\n",
           "    retired_.push_back(std::move(collectives));\n  }\n")]),
    Wait("connections: a rank leaves when they are closed", "distributed/group/internal/join_job.cc",
         [("  world.finish_closing();\n", "")],
         needless="ranks that are threads of a test end without leave_job()"),
    # Data-parallel training.
    Wait("data parallel: a bucket", "distributed/data_parallel/allreduce_callback.cc",
         [("    bucket.work.wait();  // throws the errors of the communication\n", "")]),
    Wait("data parallel: bcast_list_", "distributed/data_parallel/bcast_list.cc", [("    pack.work.wait();\n", "")]),
    Wait("data parallel: the hook that casts", "distributed/data_parallel/comm_hooks.cc",
         [("      work.wait();\n      raw::copy_", "      raw::copy_")]),
    Wait("data parallel: the hook that reduces", "distributed/data_parallel/comm_hooks.cc",
         [("      work.wait();\n      if (!average)", "      if (!average)")]),
    Wait("data parallel: PowerSGD's P", "distributed/data_parallel/power_sgd.cc",
         [("    work.wait();\n    for", "    (void)work;\n    for")]),
    Wait("data parallel: PowerSGD's Q", "distributed/data_parallel/power_sgd.cc", [("      sums.wait();\n", "")]),
    # Captured steps.
    Wait("captured: the graph runs behind earlier calls", CAPTURED, [("    step.wait(Event::record(calls));\n", "")]),
    Wait("captured: later calls run behind the graph", CAPTURED, [("    calls.wait(Event::record(step));\n", "")]),
    Wait("captured: Work::wait", STATE, [("    current_stream(call_->device).wait(call_->done);\n  }\n  bool is_completed() override {\n    refuse_capture",
                                          "  }\n  bool is_completed() override {\n    refuse_capture")]),
    Wait("captured: the end of the recording waits for the side stream", GRAPH,
         [("  if (side_) stream_.wait(Event::record(*side_));\n", "")]),
    Wait("captured: the side stream begins behind the step's stream", GRAPH,
         [("    side_->wait(Event::record(stream_));\n", "")],
         needless="each call's stream waits for its caller's work, and joins the capture by that"),
    Wait("captured: memory that the side stream uses", "tensor/runtime/device_allocator.cc",
         [("        freed_in_capture_[other.get()].push_back(block);\n        ++block->events;\n", "")]),
    Wait("captured: graphs are destroyed before an abort", NCCL,
         [("      if (const auto graph = one.lock()) graph->destroy();\n", "      (void)one;\n")]),
    Wait("captured: a call waits for the group's earlier ones", STATE,
         [("    while (capture && !has_run) queue_.wait_until_idle(), has_run = run_here();\n", "")]),
    # Messages of tensors on GPUs.
    Wait("messages: the event of the receiver's work", MESSAGE,
         [("    if (x) receive.posted = Event::record(current_stream(device));\n", "")]),
    Wait("messages: the event of the sender's work", MESSAGE,
         [("  offered->posted = Event::record(current_stream(x.device()));\n", "")]),
    Wait("messages: the event of the copy", MESSAGE, [("  copied_ = Event::record(stream);\n", "")]),
    Wait("messages: a stream waits for either", MESSAGE, [("  stream.wait(copied_);\n", "")]),
    Wait("messages: the current stream waits for what NCCL does", MESSAGE,
         [("current_stream(offered()->device).wait(offered()->done);", "void();")]),
    Wait("messages: the host waits with a timeout", MESSAGE,
         [("  while (!offered()->done.done()) {", "  while (false) {"),
          ("  offered()->done.synchronize();  // throws its errors\n", "")]),
    Wait("messages: the limit of the wait with a timeout", MESSAGE,
         [("  while (!offered()->done.done()) {", "  while (false) {")]),
    Wait("messages: the event is polled by Work::is_completed", MESSAGE,
         [("return !offered()->is_queued || offered()->done.done();", "return true;")]),
    Wait("messages: the agreement is polled by Work::is_completed", MESSAGE,
         [("    if (offered() && !offered()->has_ended()) return membership_->failed();\n", "")]),
    Wait("messages: the host waits for the agreement", MESSAGE,
         [("    if (offered()) offered()->wait(*transport_, limits);\n", "")]),
    Wait("messages: the host waits until it is queued", DEVICE_MESSAGES,
         [("  if (by_library) wait_for(is_queued);\n", "")]),
    Wait("messages: the host waits for data through host memory", DEVICE_MESSAGES,
         [("  transport.wait(*conclusion, limits, op);\n", "  (void)transport;\n")]),
    Wait("messages: NCCL's stream waits for the caller's work", DEVICE_MESSAGES,
         [("  stream.wait(m.posted);\n  record_use", "  record_use")]),
    Wait("messages: the copy to host memory waits for the caller's work", DEVICE_MESSAGES,
         [("  stream.wait(m.posted);\n  const auto copy", "  const auto copy")]),
    Wait("messages: memory", DEVICE_MESSAGES, [("  record_use(m.tensor, stream);\n", "")]),
    Wait("messages: the event of NCCL's work", DEVICE_MESSAGES, [("  m.done = Event::record(stream);\n", "")]),
    Wait("messages: queued in their turns", DEVICE_MESSAGES,
         [("open.second.is_agreed && open.second.turn.is_next();", "open.second.is_agreed;")]),
    Wait("messages: the greatest proposal counts", DEVICE_MESSAGES,
         [("std::max(propose(m, series), answer.proposed)", "std::max(propose(m, series), uint64_t(1))")]),
    Wait("messages: answered while others wait for their turns", DEVICE_MESSAGES,
         [("  post(&Threads::answers, m->op, [this, m] { send_answer(m); });\n",
           "  post(&Threads::turns, m->op, [this, m] { send_answer(m); });\n")]),
    Wait("messages: watched", DEVICE_MESSAGES, [("  world_.device_calls().watch(watched);\n", "")]),
    Wait("messages: the event of a watched message", DEVICE_MESSAGES, [("  watched->set_queued(m.done);\n", "")]),
    # Streams of GPUs.
    Wait("Stream::wait", STREAM, [("    stream->wait(*native->event);\n", "")]),
    Wait("Event::synchronize", STREAM, [("    event->synchronize();\n", "")]),
    Wait("Stream::synchronize", STREAM,
         [("    stream->synchronize();\n    stream->throw_errors();\n", "    stream->throw_errors();\n")]),
    Wait("Stream::wait: errors of the other stream", STREAM,
         [("    add_missing(&dependencies_, native->dependencies);\n", "    (void)native->dependencies;\n")]),
    Wait("Event::record: errors of streams that were waited for", STREAM,
         [("      add_missing(&dependencies, dependencies_);\n", "")]),
]
