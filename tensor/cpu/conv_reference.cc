#include "gradus/tensor/cpu/conv_reference.h"

#include <Eigen/Core>

#include "gradus/tensor/parallel.h"

namespace gradus {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
// A group's channels of an image that lies [H*W, C].
template <class T>
using Channels = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

struct Geometry {
  Geometry(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& options)
      : o(options),
        N(x.size(0)),
        C(x.size(1)),
        H(x.size(2)),
        W(x.size(3)),
        O(w.size(0)),
        KH(w.size(2)),
        KW(w.size(3)),
        P(y.size(2)),
        Q(y.size(3)),
        Cg(C / o.groups),
        Og(O / o.groups) {}

  template <class T>
  Channels<T> outputs(const Tensor& y, int64_t n, int64_t g) const {
    return {y.ptr<T>() + n * P * Q * O + g * Og, P * Q, Og, Eigen::OuterStride<>(O)};
  }

  // Calls f(row, column, offset): element (row, column) of the patch matrix [P*Q, KH*KW*Cg] starts Cg
  // channels at `offset` of the image; taps in the padding are skipped.
  template <class F>
  void for_each_tap(F f) const {
    for (int64_t p = 0; p < P; ++p)
      for (int64_t q = 0; q < Q; ++q)
        for (int64_t kh = 0; kh < KH; ++kh)
          for (int64_t kw = 0; kw < KW; ++kw) {
            const int64_t h = p * o.stride.h - o.padding.h + kh * o.dilation.h;
            const int64_t w = q * o.stride.w - o.padding.w + kw * o.dilation.w;
            if (h >= 0 && h < H && w >= 0 && w < W) f(p * Q + q, (kh * KW + kw) * Cg, (h * W + w) * C);
          }
  }

  template <class T>
  Matrix<T> unfold(const Tensor& x, int64_t n, int64_t g) const {
    Matrix<T> patches = Matrix<T>::Zero(P * Q, KH * KW * Cg);
    const T* image = x.ptr<T>() + n * H * W * C + g * Cg;
    for_each_tap([&](int64_t row, int64_t column, int64_t offset) {
      std::copy_n(image + offset, Cg, &patches(row, column));
    });
    return patches;
  }

  // Adds patches into the image; the transpose of unfold.
  template <class T>
  void fold(const Matrix<T>& patches, const Tensor& x, int64_t n, int64_t g) const {
    T* image = x.ptr<T>() + n * H * W * C + g * Cg;
    for_each_tap([&](int64_t row, int64_t column, int64_t offset) {
      for (int64_t c = 0; c < Cg; ++c) image[offset + c] += patches(row, column + c);
    });
  }

  // Calls f(element of w[O,Cg,KH,KW], element of the filter matrix [KH*KW*Cg, Og]).
  template <class T, class F>
  void for_each_weight(const Tensor& w, int64_t g, Matrix<T>& filters, F f) const {
    T* p = w.ptr<T>() + g * Og * Cg * KH * KW;
    for (int64_t i = 0; i < Og; ++i)
      for (int64_t c = 0; c < Cg; ++c)
        for (int64_t k = 0; k < KH * KW; ++k) f(*p++, filters(k * Cg + c, i));
  }
  template <class T>
  Matrix<T> filters_of(const Tensor& w, int64_t g) const {
    Matrix<T> filters(KH * KW * Cg, Og);
    for_each_weight(w, g, filters, [](T& from, T& to) { to = from; });
    return filters;
  }

  // Images that make a thread worth waking: some 64 thousand multiplications.
  int64_t images_per_thread() const { return 1 + 65536 / std::max<int64_t>(1, P * Q * KH * KW * Cg * Og); }

  const Conv2dOptions o;
  const int64_t N, C, H, W, O, KH, KW, P, Q, Cg, Og;
};

}  // namespace

void conv2d_reference(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                      Conv2dOptions options) {
  dispatch_floating(y.dtype(), "conv2d", [&]<class T>() {
    const Geometry s(x, w, y, options);
    for (int64_t g = 0; g < options.groups; ++g) {
      const Matrix<T> filters = s.filters_of<T>(w, g);
      parallel_for(0, s.N, s.images_per_thread(), [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n) {
          auto out = s.outputs<T>(y, n, g);
          out.noalias() = s.unfold<T>(x, n, g) * filters;
          if (bias.defined())
            out.rowwise() +=
                Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias.ptr<T>() + g * s.Og, s.Og);
        }
      });
    }
  });
}

void conv2d_input_grad_reference(const Tensor& dx, const Tensor& dy, const Tensor& w, Conv2dOptions options) {
  dispatch_floating(dx.dtype(), "conv2d_input_grad", [&]<class T>() {
    const Geometry s(dx, w, dy, options);
    std::fill_n(dx.ptr<T>(), dx.numel(), T(0));
    for (int64_t g = 0; g < options.groups; ++g) {
      const Matrix<T> filters = s.filters_of<T>(w, g);
      parallel_for(0, s.N, s.images_per_thread(), [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n) {
          const Matrix<T> patches = s.outputs<T>(dy, n, g) * filters.transpose();
          s.fold<T>(patches, dx, n, g);
        }
      });
    }
  });
}

void conv2d_weight_grad_reference(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                                  Conv2dOptions options) {
  dispatch_floating(dw.dtype(), "conv2d_weight_grad", [&]<class T>() {
    const Geometry s(x, dw, dy, options);
    if (db.defined()) std::fill_n(db.ptr<T>(), db.numel(), T(0));
    for (int64_t g = 0; g < options.groups; ++g) {
      Matrix<T> filters = Matrix<T>::Zero(s.KH * s.KW * s.Cg, s.Og);
      for (int64_t n = 0; n < s.N; ++n) {
        const auto out = s.outputs<T>(dy, n, g);
        filters.noalias() += s.unfold<T>(x, n, g).transpose() * out;
        if (db.defined())
          Eigen::Map<Eigen::Matrix<T, 1, Eigen::Dynamic>>(db.ptr<T>() + g * s.Og, s.Og) +=
              out.colwise().sum();
      }
      s.for_each_weight(dw, g, filters, [](T& to, T& from) { to = from; });
    }
  });
}

}  // namespace gradus
