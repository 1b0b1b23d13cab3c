// Point-to-point messages: blocking, asynchronous, with tags, from any source, and the store by name.
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/ddp_demos/demos.h"
#include "gradus/examples/ddp_demos/show.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::examples {
namespace {

void send_and_recv() {
  const int rank = dist::get_rank();
  Tensor x = full({2}, rank == 0 ? 7 : 0);
  const std::string before = text(x);
  if (rank == 0) dist::send(x, {.dst = 1});
  if (rank == 1) dist::recv(x, {.src = 0});
  show("send and recv: rank 0 sends to rank 1", before, text(x), rank < 2 ? "[7 7]" : "[0 0]");
}

void isend_and_irecv() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const Tensor to_right = full({1}, rank);
  Tensor from_left = zeros({1});
  // All ranks receive and send at the same time. With the blocking forms all ranks would wait in send.
  const dist::Work receive = dist::irecv(from_left, {.src = left});
  const dist::Work send = dist::isend(to_right, {.dst = right});
  receive.wait();
  send.wait();
  show("isend and irecv: everyone to the right, from the left", text(to_right), text(from_left),
       "[" + std::to_string(left) + "]");
}

// Messages with different tags do not wait for each other.
void tags() {
  const int rank = dist::get_rank();
  Tensor x = full({1}, rank == 0 ? 1 : 0), y = full({1}, rank == 0 ? 2 : 0);
  const std::string before = text({x, y});
  if (rank == 0) {
    const dist::Work first = dist::isend(x, {.dst = 1, .tag = 1});
    dist::send(y, {.dst = 1, .tag = 2});
    first.wait();
  }
  if (rank == 1) {
    dist::recv(y, {.src = 0, .tag = 2});  // sent second, received first
    dist::recv(x, {.src = 0, .tag = 1});
  }
  show("tags: rank 1 receives the second message first", before, text({x, y}),
       rank < 2 ? "[1] [2]" : "[0] [0]");
}

void recv_from_any() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  Tensor x = full({1}, rank);
  std::vector<float> received(size_t(size), 0);
  if (rank == 0) {
    for (int i = 1; i < size; ++i) {
      const int source = dist::recv(x);
      received[size_t(source)] = x.item<float>();
    }
  } else {
    dist::send(x, {.dst = 0});
  }
  std::vector<float> expected(size_t(size), 0);
  if (rank == 0)
    for (int r = 1; r < size; ++r) expected[size_t(r)] = static_cast<float>(r);
  show("recv from anyone: rank 0 hears of all, in whatever order they come", std::to_string(rank),
       text(received), text(expected));
}

void user_set_and_get() {
  const int rank = dist::get_rank();
  dist::Client client = dist::get_client();
  if (rank == 0) client.user_set("best accuracy", "0.98");
  show("user_set and user_get: by a name instead of a rank", rank == 0 ? "0.98" : "-",
       client.user_get("best accuracy"), "0.98");
}

}  // namespace

void show_messages() {
  if (dist::get_world_size() == 1) return training::print("\nMessages need two ranks.");
  send_and_recv();
  isend_and_irecv();
  tags();
  recv_from_any();
  user_set_and_get();
}

}  // namespace gradus::examples
