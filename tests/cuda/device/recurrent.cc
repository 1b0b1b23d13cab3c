// Kernels of the LSTM and GRU cells and of their gradients against the formulas on the host
// (tensor/ops/formulas): f32 bit for bit, f64 within the roundings of CUDA's exponential and hyperbolic
// tangent. The op table compares these formulas with references.
#include "gradus/tensor/cuda/kernels/recurrent.h"

#include "device_test.h"
#include "gradus/tensor/ops/formulas/recurrent.h"

namespace device_test {
namespace {

template <class T> class CellChecker {
 public:
  CellChecker(Group& group, const cuda::StateShape& s) : group_(group), s_(s) {}

  void check_lstm() {
    const std::vector<T> gates = samples(4, 1), c = samples(1, 2), dh = samples(1, 3),
                         dc_next = samples(1, 4);
    std::vector<T> h(c.size()), c_next(c.size()), dgates(gates.size()), dc(c.size());
    for_each_element(4, [&](size_t e, size_t j, size_t H) {
      const gradus::formulas::LstmCell<T> cell{gates[j], gates[j + H], gates[j + 2 * H], gates[j + 3 * H],
                                               c[e]};
      const auto out = cell.forward();
      h[e] = out.h, c_next[e] = out.c;
      const auto d = cell.backward(dh[e], dc_next[e]);
      dgates[j] = d.i, dgates[j + H] = d.f, dgates[j + 2 * H] = d.u, dgates[j + 3 * H] = d.o, dc[e] = d.c;
    });
    const Elements<T> gates_in(gates), c_in(c), dh_in(dh), dc_next_in(dc_next);
    const Elements<T> h_out(c.size()), c_next_out(c.size()), dgates_out(gates.size()), dc_out(c.size());
    cuda::lstm_cell("test", h_out.data(), c_next_out.data(), gates_in.data(), c_in.data(), s_, nullptr);
    cuda::lstm_cell_backward("test", dgates_out.data(), dc_out.data(), dh_in.data(), dc_next_in.data(),
                             gates_in.data(), c_in.data(), s_, nullptr);
    check("h", h_out, h), check("c'", c_next_out, c_next), check("dgates", dgates_out, dgates),
        check("dc", dc_out, dc);
  }

  void check_gru() {
    const std::vector<T> x = samples(3, 5), s = samples(3, 6), h = samples(1, 7), dy = samples(1, 8);
    std::vector<T> y(h.size()), dx(x.size()), ds(x.size()), dh(h.size());
    for_each_element(3, [&](size_t e, size_t j, size_t H) {
      const gradus::formulas::GruCell<T> cell{x[j],     x[j + H],     x[j + 2 * H], s[j],
                                              s[j + H], s[j + 2 * H], h[e]};
      y[e] = cell.forward();
      const auto d = cell.backward(dy[e]);
      dx[j] = d.xr, dx[j + H] = d.xz, dx[j + 2 * H] = d.xn;
      ds[j] = d.sr, ds[j + H] = d.sz, ds[j + 2 * H] = d.sn, dh[e] = d.h;
    });
    const Elements<T> x_in(x), s_in(s), h_in(h), dy_in(dy);
    const Elements<T> y_out(h.size()), dx_out(x.size()), ds_out(x.size()), dh_out(h.size());
    cuda::gru_cell("test", y_out.data(), x_in.data(), s_in.data(), h_in.data(), s_, nullptr);
    cuda::gru_cell_backward("test", dx_out.data(), ds_out.data(), dh_out.data(), dy_in.data(), x_in.data(),
                            s_in.data(), h_in.data(), s_, nullptr);
    check("y", y_out, y), check("dx", dx_out, dx), check("ds", ds_out, ds), check("dh", dh_out, dh);
  }

 private:
  // `gates` values for each element of the state, up to about 8, with infinities and NaN in every third
  // shape.
  std::vector<T> samples(int64_t gates, uint64_t salt) const {
    std::vector<T> x(size_t(s_.N * s_.H * gates));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = T(8) * sample<T>(i, salt, false);
      if ((s_.N + s_.H) % 3 == 0 && mix(i + salt) % 20 == 0) x[i] = mix(i) % 2 ? T(NAN) : T(-INFINITY);
    }
    return x;
  }
  template <class F> void for_each_element(size_t gates, F&& f) const {
    const auto H = size_t(s_.H);
    for (size_t n = 0; n < size_t(s_.N); ++n)
      for (size_t j = 0; j < H; ++j) f(n * H + j, n * gates * H + j, H);
  }
  void check(const char* what, const Elements<T>& result, const std::vector<T>& want) {
    const std::vector<T> got = result.take();
    const double allowed = std::is_same_v<T, double> ? 0x1p-47 : 0;
    for (size_t i = 0; i < want.size(); ++i)
      group_.check(same(got[i], want[i]) || std::abs(double(got[i]) - double(want[i])) <= allowed,
                   "%s of [%lld, %lld] at %zu: %.17g, not %.17g", what, (long long)s_.N, (long long)s_.H, i,
                   double(got[i]), double(want[i]));
    group_.check(result.is_clean(), "%s of [%lld, %lld]: written outside", what, (long long)s_.N,
                 (long long)s_.H);
  }

  Group& group_;
  cuda::StateShape s_;
};

template <class T> void test_cells(const char* name) {
  Group group(std::string("recurrent cells of ") + name);
  if (!group) return;
  std::vector<cuda::StateShape> shapes = {{1, 1}, {3, 5}, {1, 255}, {2, 128}, {1, 257}, {40, 13}, {7, 64}};
  if (!options().small) shapes.insert(shapes.end(), {{256, 1024}, {1000, 333}});
  for (const cuda::StateShape& s : shapes) {
    CellChecker<T> checker(group, s);
    checker.check_lstm();
    checker.check_gru();
  }
}

}  // namespace

void test_recurrent() {
  test_cells<float>("f32");
  test_cells<double>("f64");
}

}  // namespace device_test
