// Collectives, messages and data-parallel training give the same bits on cpu:0, which computes at once, and
// on cpu:1, whose stream is asynchronous and writes the inputs late (late.h): a missing synchronization would
// read NaN. Linked with the GPU emulator, ranks have cuda:0 and cuda:1, where trained values are near the CPU's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/distributed.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/optim/step_in_backward.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tests/distributed/late.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using Tensors = std::vector<Tensor>;
constexpr int kWorld = 3;

// The rank's device.
Device other_device() {
  static const int gpus = cuda_device_count();
  return gpus > 0 ? Device{DeviceType::kCUDA, int16_t(get_rank() % gpus)} : Device::parse("cpu:1");
}

struct Row {
  std::string name;
  std::function<Tensors(Device)> run;  // called on each rank; returns the tensors to compare
  double tolerance = 0;                // of results on cuda
};

Tensor x_of(const Shape& shape, Device device, int seed = 0) {
  return late(random_tensor(shape, DType::kF32, uint64_t(10 * get_rank() + seed + 1)), device);
}
Tensors xs_of(const Shape& shape, Device device) {
  Tensors xs;
  for (int r = 0; r < kWorld; ++r) xs.push_back(x_of(shape, device, r));
  return xs;
}
// A kernel queued behind the collective, which must read its result.
Tensors used(const Tensors& ys) {
  Tensors later;
  for (const Tensor& y : ys) later.push_back(y * 2);
  return later;
}

// Collectives that write into given tensors; `async`: with async_op and wait().
std::vector<Row> rows_in_place(bool async) {
  const Shape s{3, 2};
  const auto on_rank_1 = [=](Device d) { return get_rank() == 1 ? xs_of(s, d) : Tensors{}; };
  struct Started {
    Work work;
    Tensors results;
  };
  std::vector<Row> rows;
  const auto add = [&](const char* name, auto start) {
    rows.push_back({concat(name, async ? " async" : ""), [=](Device d) {
                      const Started started = start(d);
                      if (async) started.work.wait();
                      return used(started.results);
                    }});
  };
  add("all_reduce", [=](Device d) {
    const Tensor x = x_of(s, d);
    return Started{all_reduce(x, {.async_op = async}), {x}};
  });
  add("all_reduce_coalesced", [=](Device d) {
    const Tensors xs{x_of(s, d), x_of({5}, d, 1)};
    return Started{all_reduce_coalesced(xs, {.async_op = async}), xs};
  });
  add("reduce", [=](Device d) {
    const Tensor x = x_of(s, d);
    return Started{reduce(x, {.dst = 1, .async_op = async}), {x}};
  });
  add("broadcast", [=](Device d) {
    const Tensor x = x_of(s, d);
    return Started{broadcast(x, {.src = 1, .async_op = async}), {x}};
  });
  add("gather", [=](Device d) {
    const Tensors ys = on_rank_1(d);
    return Started{gather(x_of(s, d), ys, {.dst = 1, .async_op = async}), ys};
  });
  add("scatter", [=](Device d) {
    const Tensor y = x_of(s, d);
    return Started{scatter(y, on_rank_1(d), {.src = 1, .async_op = async}), {y}};
  });
  add("all_gather", [=](Device d) {
    const Tensors ys = xs_of(s, d);
    return Started{all_gather(ys, x_of(s, d), {.async_op = async}), ys};
  });
  add("all_gather_into_tensor", [=](Device d) {
    const Tensor y = x_of({9, 2}, d);
    return Started{all_gather_into_tensor(y, x_of(s, d), {.async_op = async}), {y}};
  });
  add("reduce_scatter", [=](Device d) {
    const Tensor y = x_of(s, d);
    return Started{reduce_scatter(y, xs_of(s, d), {.async_op = async}), {y}};
  });
  add("reduce_scatter_tensor", [=](Device d) {
    const Tensor y = x_of({1, 2}, d);
    return Started{reduce_scatter_tensor(y, x_of(s, d), {.async_op = async}), {y}};
  });
  add("all_to_all", [=](Device d) {
    const Tensors ys = xs_of(s, d);
    return Started{all_to_all(ys, xs_of(s, d), {.async_op = async}), ys};
  });
  add("all_to_all_single", [=](Device d) {
    const Tensor y = x_of(s, d);
    return Started{all_to_all_single(y, x_of(s, d), {}, {}, {.async_op = async}), {y}};
  });
  return rows;
}

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 6, .out = 8}};
  nn::BatchNorm1d bn{this, "bn", {.features = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 2}};
  Tensor forward(const Tensor& x) override { return fc2(bn.relu(fc1(x))); }
};
Tensors state_of(const nn::Module& m) {
  Tensors all;
  for (const auto& [name, t] : m.state_dict()) all.push_back(raw::clone(t));
  return all;
}
// The state after two steps of data-parallel training. `twice`: an outer manager records too, and the
// optimizer steps by the gradient of the squared norm of the gradient.
Tensors trained(Device d, DistributedDataParallelOptions options, bool sync_batch_norm, bool amp,
                bool twice) {
  manual_seed(uint64_t(get_rank()));
  Net net;
  net.to(d);
  if (sync_batch_norm) convert_sync_batchnorm(net);
  DistributedDataParallel ddp(net, options);
  GradManager gm, outer;
  ddp.attach(gm);
  if (twice) ddp.attach(outer);
  optim::SGD opt(net.parameters(), {.lr = 0.001});
  for (int step = 0; step < 2; ++step) {
    std::optional<Recording> sees;
    if (twice) sees.emplace(outer.record());
    auto recording = gm.record();
    Tensor loss;
    {
      std::optional<Autocast> scope;
      if (amp) scope.emplace(DType::kBF16);
      loss = sum(square(ddp(x_of({4 + get_rank(), 6}, d, step))));
    }
    gm.backward(loss);
    if (twice) {
      Tensor norm;
      for (const Tensor& p : net.parameters()) {
        const Tensor part = sum(square(p.grad()));
        norm = norm.defined() ? norm + part : part;
        p.set_grad({});
      }
      sees->backward(norm);
    }
    opt.step().clear_grad();
  }
  check_synchronized(net);
  return state_of(net);
}

std::vector<Row> rows_of_messages_and_models() {
  const Shape s{3, 2};
  const auto send_on = [](const Tensor& x, const Tensor& y, bool async) {
    const int to = (get_rank() + 1) % kWorld, from = (get_rank() + kWorld - 1) % kWorld;
    if (async) {
      const Work in = irecv(y, {.src = from}), out = isend(x, {.dst = to});
      in.wait(), out.wait();
    } else if (get_rank() == 0) {
      send(x, {.dst = to}), recv(y, {.src = from});
    } else {
      recv(y, {.src = from}), send(x, {.dst = to});
    }
    return used({y});
  };
  return {
      {"all_gather of any size",
       [=](Device d) {
         return used(all_gather(x_of({get_rank(), 2}, d)));
       }},
      {"send and recv", [=](Device d) { return send_on(x_of(s, d), x_of(s, d, 1), false); }},
      {"isend and irecv", [=](Device d) { return send_on(x_of(s, d), x_of(s, d, 1), true); }},
      {"objects",
       [=](Device d) {
         Tensors all;
         for (const std::string& bytes : all_gather_object(to_wire(x_of(s, d))))
           all.push_back(from_wire<Tensor>(bytes));
         return all;
       }},
      {"bcast_list_",
       [=](Device d) {
         const Tensors xs{x_of(s, d), x_of({4}, d, 1)};
         bcast_list_(xs, {.src = 1});
         return used(xs);
       }},
      {"bcast_list_ of an optimizer",
       [=](Device d) {
         const Tensor p = x_of(s, d);
         optim::Adam opt(Tensors{p}, {.lr = 0.01});
         if (get_rank() == 1) {
           p.set_grad(x_of(s, d, 1));
           opt.step();
         }
         bcast_list_(Tensors{p}, {.src = 1});
         bcast_list_(opt, {.src = 1});
         p.set_grad(raw::to(ones(s), d));
         opt.step();
         return used({p});
       }},
      {"any_rank",
       [=](Device d) { return Tensors{scalar(any_rank(x_of(s, d).to_vector<float>()[0] < 0), {})}; }},
      {"DDP", [](Device d) { return trained(d, {}, false, false, false); }, 1e-4},
      {"DDP, SyncBatchNorm", [](Device d) { return trained(d, {}, true, false, false); }, 1e-4},
      {"DDP, SyncBatchNorm, autocast", [](Device d) { return trained(d, {}, true, true, false); }, 2e-2},
      {"DDP, views of buckets, checks",
       [](Device d) {
         return trained(d,
                        {.gradient_as_bucket_view = true, .check_divergence_every = 1, .check_finite = true},
                        false, false, false);
       },
       1e-4},
      {"DDP, a hook",
       [](Device d) { return trained(d, {.comm_hook = bf16_compress_hook()}, false, false, false); }, 2e-2},
      {"DDP, low rank",
       [](Device d) {
         return trained(d, {.comm_hook = power_sgd_hook({.start_iter = 2, .min_compression_rate = 0.1})},
                        false, false, false);
       },
       1e-4},
      {"DDP, seen by an outer recording", [](Device d) { return trained(d, {}, true, false, true); }, 1e-4},
      {"DDP, accumulating",
       [](Device d) {
         manual_seed(1);
         Net net;
         net.to(d);
         DistributedDataParallel ddp(net);
         GradManager gm;
         ddp.attach(gm);
         const auto train = [&](int step) {
           auto recording = gm.record();
           gm.backward(sum(square(ddp(x_of({5, 6}, d, step)))));
         };
         {
           const auto kept_back = ddp.no_sync();
           train(0), train(1);
         }
         train(2);
         Tensors grads;
         for (const Tensor& p : net.parameters()) grads.push_back(p.grad());
         return used(grads);
       },
       1e-3},
      {"DDP by modules, uneven inputs",
       [](Device d) {
         manual_seed(1);
         Net net;
         net.to(d);
         SeparateDistributedDataParallel ddp(net);
         GradManager gm;
         ddp.attach(gm);
         optim::SGD opt(net.parameters(), {.lr = 0.01});
         ddp.join([&] {
           for (int step = 0; step <= get_rank(); ++step) {
             auto recording = gm.record();
             gm.backward(sum(square(net(x_of({5, 6}, d, step)))));
             opt.step().clear_grad();
           }
         });
         return state_of(net);
       },
       1e-4},
      {"DDP, steps within the backward, rebuilt buckets, uneven inputs with an object",
       [](Device d) {
         struct Sum final : Joinable {
           void step(const Tensor& x) {
             notify();
             all_reduce(x);
             results.push_back(x);
           }
           void shadow_step() override { all_reduce(raw::to(zeros({3}), device)); }
           Tensors results;
           Device device;
         } object;
         object.device = d;
         manual_seed(1);
         Net net;
         net.to(d);
         DistributedDataParallel ddp(net, {.bucket_cap_mb = 1e-4, .rebuild_buckets = true});
         GradManager gm;
         ddp.attach(gm, std::make_shared<optim::StepInBackward>([](const Tensor& p) {
                      return std::make_unique<optim::SGD>(Tensors{p}, optim::SGDOptions{.lr = 0.01});
                    }));
         const auto body = [&] {
           for (int step = 0; step <= get_rank(); ++step) {
             auto recording = gm.record();
             gm.backward(sum(square(ddp(x_of({5, 6}, d, step)))));
             object.step(x_of({3}, d, step));
           }
         };
         ddp.join(body, {}, {&object});
         Tensors all = state_of(net);
         all.insert(all.end(), object.results.begin(), object.results.end());
         return used(all);
       },
       1e-4},
      {"a gradient of several MiB, reduced where it lies",
       [](Device d) {
         const Tensor w = x_of({600, 1000}, d), factor = x_of({600, 1000}, d, 1);
         GradManager gm;
         gm.attach(w, make_allreduce_cb(ReduceOp::kSum));
         auto recording = gm.record();
         gm.backward(sum(w * factor));
         return used({w.grad()});
       }},
  };
}

TEST(Devices, EveryCollectiveAndWrapperGivesTheSameBitsOnEveryDevice) {
  std::vector<Row> rows = rows_in_place(false);
  for (auto& more : {rows_in_place(true), rows_of_messages_and_models()})
    rows.insert(rows.end(), more.begin(), more.end());
  for (const Row& row : rows)
    run_ranks(kWorld, [&] {
      SCOPED_TRACE(concat(row.name, " on rank ", get_rank()));
      Tensors want, got;
      try {
        want = row.run(kCPU), got = row.run(other_device());
      } catch (const Error& e) {
        FAIL() << e.what();
      }
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const bool is_on_host = row.name == "objects" || row.name == "any_rank";
        EXPECT_TRUE(is_on_host || got[i].device() == other_device()) << got[i].device();
        expect_near(raw::to(raw::to(got[i], kCPU), DType::kF64), raw::to(want[i], DType::kF64),
                    other_device().type == DeviceType::kCUDA ? row.tolerance : 0);
      }
    });
}

TEST(Devices, VerifyTakesAModelOnAnyDevice) {
  const data::TensorDataset samples(random_tensor({32, 6}), zeros({32}, {.dtype = DType::kI64}));
  const auto make = [] {
    auto net = std::make_unique<Net>();
    net->to(other_device());
    return net;
  };
  const auto loss = [](Net& net, const data::Batch& b) {
    return nn::cross_entropy(net(to(b.input, other_device())), to(b.target, other_device())) *
           (double(b.size()) * get_world_size() / double(b.global_size));
  };
  VerifyOptions options{.prepare = [](nn::Module& m) { convert_sync_batchnorm(m); }};
  const VerifyReport report = verify(make, samples, options, loss);
  EXPECT_TRUE(report) << report;
  options.prepare = {};
  EXPECT_EQ(verify(make, samples, options, loss).cause, VerifyReport::Cause::kBatchNormStatistics);
}

}  // namespace
}  // namespace gradus::dist
