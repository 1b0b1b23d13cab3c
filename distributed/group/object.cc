// Collectives and messages of strings, whose sizes only their senders know. GroupState::run first exchanges
// one call record per rank, which includes the size; `move` then receives all records (MatchedCall),
// allocates, and moves the bytes with the group's backend. Roots (src, dst) are global ranks, and `root` is
// the index in the group. All calls block. A message needs no exchange: its header precedes its bytes.
#include "gradus/distributed/group/object.h"

#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/internal/message_work.h"

namespace gradus::dist {

using internal::Block;
using internal::Collective;
using internal::ConstBlock;
using internal::GroupState;
using internal::MatchedCall;
using internal::Message;
using internal::MessageHeader;
using internal::MessageWork;
using internal::Op;

namespace {

// Returns the group's state. Errors: ValueError for async_op, or if this rank is not in the group.
GroupState& member_state(const Group& group, const char* op, bool async) {
  GroupState& state = group.state();
  state.check_member(op);
  if (async) throw ValueError(op, "objects cannot be sent asynchronously");
  return state;
}

ConstBlock const_block(const std::string& object) { return {object.data(), object.size()}; }
Block block(std::string& object) { return {object.data(), object.size()}; }

// Returns one string per member, of the size in the member's record.
std::vector<std::string> make_room(const MatchedCall& matched) {
  std::vector<std::string> objects;
  for (const auto& record : matched.records) objects.emplace_back(record.bytes, '\0');
  return objects;
}
std::vector<Block> blocks(std::vector<std::string>& objects) {
  std::vector<Block> blocks;
  for (std::string& object : objects) blocks.push_back(block(object));
  return blocks;
}

}  // namespace

std::string broadcast_object(const std::string& object, const BroadcastOptions& options) {
  constexpr const char* kOp = "broadcast_object";
  GroupState& group = member_state(options.group, kOp, options.async_op);
  const int root = group.index_of(options.src, kOp, "src");
  std::string result;
  const int64_t bytes = root == group.index() ? int64_t(object.size()) : 0;
  Collective call{.op = kOp, .record = {.op = Op::kBroadcastObject, .root = root, .bytes = bytes}};
  call.move = [&](MatchedCall& matched) {
    result = root == group.index() ? object : std::string(matched.records[root].bytes, '\0');
    matched.backend.broadcast(matched.call, root, result.data(), result.size());
  };
  group.run(std::move(call), false, options.timeout);
  return result;
}

std::vector<std::string> all_gather_object(const std::string& object, const CollectiveOptions& options) {
  GroupState& group = member_state(options.group, "all_gather_object", options.async_op);
  return internal::gather_strings(group, Op::kAllGatherObject, object, options.timeout);
}

std::vector<std::string> internal::gather_strings(GroupState& group, Op op, const std::string& local,
                                                  std::optional<Milliseconds> timeout) {
  std::vector<std::string> all;
  Collective call{.op = name_of(op).data(), .record = {.op = op, .bytes = int64_t(local.size())}};
  call.move = [&](MatchedCall& matched) {
    all = make_room(matched);
    matched.backend.all_gather(matched.call, const_block(local), blocks(all));
  };
  group.run(std::move(call), false, timeout);
  return all;
}

std::vector<std::string> gather_object(const std::string& object, const GatherOptions& options) {
  constexpr const char* kOp = "gather_object";
  GroupState& group = member_state(options.group, kOp, options.async_op);
  const int root = group.index_of(options.dst, kOp, "dst");
  std::vector<std::string> objects;
  Collective call{.op = kOp,
                  .record = {.op = Op::kGatherObject, .root = root, .bytes = int64_t(object.size())}};
  call.move = [&](MatchedCall& matched) {
    if (root == group.index()) objects = make_room(matched);
    matched.gather(root, const_block(object), blocks(objects));
  };
  group.run(std::move(call), false, options.timeout);
  return objects;
}

std::string scatter_object(const std::vector<std::string>& objects, const ScatterOptions& options) {
  constexpr const char* kOp = "scatter_object";
  GroupState& group = member_state(options.group, kOp, options.async_op);
  const int root = group.index_of(options.src, kOp, "src");
  const bool is_root = root == group.index();
  if (objects.size() != (is_root ? size_t(group.size()) : 0))
    throw ValueError(kOp, "objects must be given on rank ", options.src, ", one per rank of group '",
                     group.name(), "' (", group.size(), "), and nowhere else; got ", objects.size());
  std::string result;
  Collective call{.op = kOp, .record = {.op = Op::kScatterObject, .root = root}};
  for (const std::string& object : objects) call.sizes.push_back(int64_t(object.size()));
  call.move = [&](MatchedCall& matched) {
    result.assign(matched.sizes[root].at(group.index()), '\0');
    std::vector<ConstBlock> parts;
    for (const std::string& object : objects) parts.push_back(const_block(object));
    matched.scatter(root, std::move(parts), block(result));
  };
  group.run(std::move(call), false, options.timeout);
  return result;
}

void send_object(const std::string& object, const SendOptions& options) {
  const Message message =
      internal::make_message("send_object", options.group, options.dst, "dst", options.tag, options.timeout);
  MessageWork::send(message, {.kind = MessageHeader::Kind::kObject}, std::as_bytes(std::span(object)))
      ->wait({});
}

std::string recv_object(const RecvOptions& options) {
  const Message message =
      internal::make_message("recv_object", options.group, options.src, "src", options.tag, options.timeout);
  // Shared with the transport, which may still use it after a wait that fails.
  const auto object = std::make_shared<std::string>();
  const int receiver = message.group.world()->rank;
  // Called by the transport when the header has arrived; returns the buffer for the bytes.
  const auto accept = [object, receiver](int source, const MessageHeader& header, size_t bytes) -> void* {
    if (header.kind != MessageHeader::Kind::kObject)
      throw MismatchError("recv_object", source, "rank ", source, " sent ", describe(header), ", where rank ",
                          receiver, " receives an object");
    object->resize(bytes);
    return object->data();
  };
  MessageWork::receive_bytes(message, accept)->wait({});
  return std::move(*object);
}

std::string internal::object_bytes(const std::type_info& type, std::string_view value) {
  return concat(short_name(type), '\n', value);
}

std::string_view internal::object_value(const char* op, const std::type_info& type, std::string_view bytes) {
  const std::string name = short_name(type);
  const std::string_view sent = bytes.substr(0, bytes.find('\n'));
  if (sent.size() == bytes.size())
    throw MismatchError(op, -1, "expected a value of type ", name,
                        ", got a string: all ranks must pass one type");
  if (sent != name)
    throw MismatchError(op, -1, "expected a value of type ", name, ", got one of type ", sent.substr(0, 256),
                        ": all ranks must pass one type");
  return bytes.substr(sent.size() + 1);
}

}  // namespace gradus::dist
