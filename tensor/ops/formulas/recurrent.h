// Scalar formulas of one time step of LSTM and GRU and of their gradients for one element of the state,
// shared by the kernels of all devices. Gates are given before activation; T is f32 or f64.
#pragma once

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::formulas {

// The gates i, f, u, o in the order in memory, and the cell state c:
//   c' = sigmoid(f) c + sigmoid(i) tanh(u), h' = sigmoid(o) tanh(c')
template <class T> struct LstmCell {
  T i, f, u, o, c;

  struct Output {
    T h, c;
  };
  GRADUS_HD Output forward() const {
    const T next = m::sigmoid(f) * c + m::sigmoid(i) * m::tanh(u);
    return {m::sigmoid(o) * m::tanh(next), next};
  }
  // Returns the gradients of i, f, u, o and c for the gradients dh of h' and dc of c'.
  GRADUS_HD LstmCell backward(T dh, T dc) const {
    const T si = m::sigmoid(i), sf = m::sigmoid(f), tu = m::tanh(u), so = m::sigmoid(o);
    const T t = m::tanh(sf * c + si * tu);
    const T d = dc + dh * so * (T(1) - t * t);
    return {d * tu * si * (T(1) - si), d * c * sf * (T(1) - sf), d * si * (T(1) - tu * tu),
            dh * t * so * (T(1) - so), d * sf};
  }
};

// The gates r, z, n of the input (x) and of the state (s), and the state h:
//   r = sigmoid(x_r + s_r), z = sigmoid(x_z + s_z), n = tanh(x_n + r s_n), h' = (1 - z) n + z h
template <class T> struct GruCell {
  T xr, xz, xn, sr, sz, sn, h;

  GRADUS_HD T forward() const {
    const auto [r, z, n] = gates();
    return n + z * (h - n);
  }
  // Returns the gradients of x, s and h for the gradient dy of h'; that of h is without the part through s.
  GRADUS_HD GruCell backward(T dy) const {
    const auto [r, z, n] = gates();
    const T dn = dy * (T(1) - z) * (T(1) - n * n), dz = dy * (h - n) * z * (T(1) - z),
            dr = dn * sn * r * (T(1) - r);
    return {dr, dz, dn, dr, dz, dn * r, dy * z};
  }

 private:
  struct Gates {
    T r, z, n;
  };
  GRADUS_HD Gates gates() const {
    const T r = m::sigmoid(xr + sr), z = m::sigmoid(xz + sz);
    return {r, z, m::tanh(xn + r * sn)};
  }
};

}  // namespace gradus::formulas
