// Fused evaluation of a Chebyshev sum over an array: y[i] = sum_k c[k] T_k(t(x[i])).
//
// The affine domain map t(x) = alpha x + beta is fused in, and the whole recurrence runs while a
// vector of elements is in registers: memory is read once and written once whatever the degree.
//
// The sum is regrouped as sum_i T_{im}(t) q_i(t) with deg q_i < m (m = 1 is plain Clenshaw). One
// coefficient then costs little more than one fused multiply-add instead of Clenshaw's two
// operations, and the q_i are independent chains.
//
// Everything is computed in double, also for float arrays: at degree 511 a float recurrence would
// lose three to four digits next to the ends of the domain.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define ATLASC_X86 1
#endif
#define ATLASC_INLINE inline __attribute__((always_inline))

namespace atlasc {

// Vectors of L elements; L is what one register of the instruction set holds.
template <int L>
struct Lanes {
  typedef double Vec __attribute__((vector_size(L * sizeof(double))));
  typedef float FloatVec __attribute__((vector_size(L * sizeof(float))));
};

struct Plan {
  double alpha, beta;         // t = alpha x + beta
  int groups;                 // number of polynomials q_i
  std::vector<double> table;  // groups x m, row i holds q_i in the Chebyshev basis
};

// Rewrites sum_k c_k T_k as sum_i T_{im} q_i with T_{im} T_j = (T_{im+j} + T_{im-j}) / 2.
inline Plan make_plan(std::vector<double> c, double low, double high, int m) {
  Plan plan;
  plan.alpha = 2.0 / (high - low);
  plan.beta = -(low + high) / (high - low);
  const int groups = (static_cast<int>(c.size()) + m - 1) / m;
  c.resize(static_cast<std::size_t>(groups) * m, 0.0);
  for (int i = groups - 1; i > 0; --i) {
    for (int j = 1; j < m; ++j) {
      c[i * m - j] -= c[i * m + j];
      c[i * m + j] *= 2.0;
    }
  }
  plan.groups = groups;
  plan.table = std::move(c);
  return plan;
}

template <int L, int M, int U, typename Vec = typename Lanes<L>::Vec>
ATLASC_INLINE void kernel(const Plan& plan, Vec* v) {
  Vec t[U], two_tm[U], basis[M][U], b1[U], b2[U];
  for (int u = 0; u < U; ++u) {
    t[u] = v[u] * plan.alpha + plan.beta;
    basis[0][u] = t[u] * 0.0 + 1.0;
    if (M > 1) basis[M > 1 ? 1 : 0][u] = t[u];
#pragma GCC unroll 16
    for (int j = 2; j < M; ++j) {
      if (j % 2 == 0) {
        const Vec half = basis[j / 2][u];
        basis[j][u] = (half + half) * half - 1.0;
      } else {
        const Vec low = basis[j / 2][u];
        basis[j][u] = (low + low) * basis[j / 2 + 1][u] - t[u];
      }
    }
    const Vec half = basis[M / 2][u];
    const Vec tm = M == 1 ? t[u] : (half + half) * half - 1.0;
    two_tm[u] = tm + tm;
    b1[u] = t[u] * 0.0;
    b2[u] = b1[u];
  }
  const double* row = plan.table.data() + static_cast<std::size_t>(plan.groups) * M;
  for (int i = plan.groups - 1; i >= 0; --i) {
    row -= M;
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      // q is kept apart from b until the end, so that the groups overlap in the pipeline.
      Vec q = M == 1 ? row[0] - b2[u] : basis[M > 1 ? 1 : 0][u] * row[M > 1 ? 1 : 0] + row[0];
#pragma GCC unroll 16
      for (int j = 2; j < M; ++j) q = basis[j][u] * row[j] + q;
      const Vec previous = b1[u];
      b1[u] = M == 1 ? two_tm[u] * previous + q : two_tm[u] * previous + (q - b2[u]);
      b2[u] = previous;
    }
  }
  // The last step used 2 T_m b_1 where the sum wants T_m b_1.
  for (int u = 0; u < U; ++u) v[u] = b1[u] - b2[u] * (two_tm[u] * 0.5);
}

template <int L, typename Vec = typename Lanes<L>::Vec>
ATLASC_INLINE void load(const double* p, Vec& v) {
  std::memcpy(&v, p, sizeof v);
}
template <int L, typename Vec = typename Lanes<L>::Vec>
ATLASC_INLINE void load(const float* p, Vec& v) {
  typename Lanes<L>::FloatVec f;
  std::memcpy(&f, p, sizeof f);
  v = __builtin_convertvector(f, Vec);
}
template <int L, typename Vec = typename Lanes<L>::Vec>
ATLASC_INLINE void store(double* p, const Vec& v) {
  std::memcpy(p, &v, sizeof v);
}
template <int L, typename Vec = typename Lanes<L>::Vec>
ATLASC_INLINE void store(float* p, const Vec& v) {
  const typename Lanes<L>::FloatVec f =
      __builtin_convertvector(v, typename Lanes<L>::FloatVec);
  std::memcpy(p, &f, sizeof f);
}

template <typename T, int L, int M, int U>
ATLASC_INLINE void run(const Plan& plan, const T* x, T* y, std::int64_t count) {
  constexpr std::int64_t step = static_cast<std::int64_t>(L) * U;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    typename Lanes<L>::Vec v[U];
    for (int u = 0; u < U; ++u) load<L>(x + i + u * L, v[u]);
    kernel<L, M, U>(plan, v);
    for (int u = 0; u < U; ++u) store<L>(y + i + u * L, v[u]);
  }
  if (i < count) {
    T buffer[step] = {};
    std::copy(x + i, x + count, buffer);
    typename Lanes<L>::Vec v[U];
    for (int u = 0; u < U; ++u) load<L>(buffer + u * L, v[u]);
    kernel<L, M, U>(plan, v);
    for (int u = 0; u < U; ++u) store<L>(buffer + u * L, v[u]);
    std::copy(buffer, buffer + (count - i), y + i);
  }
}

// Groups of 4 measured best on AVX-512 and on AVX2: longer ones spill, or load one coefficient for
// each operation.
constexpr int kGroup = 4;

inline int group_size(std::size_t coefficients) { return coefficients <= 2 * kGroup ? 1 : kGroup; }

template <typename T, int L>
ATLASC_INLINE void run_groups(const Plan& plan, int m, const T* x, T* y, std::int64_t count) {
  if (m == 1) {
    run<T, L, 1, 4>(plan, x, y, count);
  } else {
    run<T, L, kGroup, 2>(plan, x, y, count);
  }
}

// Clenshaw's recurrence on U rows of L columns.
template <typename T, int L, int U, typename Vec = typename Lanes<L>::Vec>
ATLASC_INLINE void column_block(const T* x, const double* c, T* y, std::int64_t n, int terms) {
  Vec t[U], b1[U], b2[U], term;
  for (int u = 0; u < U; ++u) {
    load<L>(x + u * n, t[u]);
    b1[u] = t[u] * 0.0;
    b2[u] = b1[u];
  }
  for (int k = terms - 1; k > 0; --k) {
    load<L>(c + k * n, term);
    for (int u = 0; u < U; ++u) {
      const Vec previous = b1[u];
      b1[u] = (t[u] + t[u]) * previous + (term - b2[u]);
      b2[u] = previous;
    }
  }
  load<L>(c, term);
  for (int u = 0; u < U; ++u) store<L>(y + u * n, Vec(t[u] * b1[u] + (term - b2[u])));
}

template <typename T, int L>
ATLASC_INLINE void columns_at(const T* x, const double* c, T* y, std::int64_t rows, std::int64_t n,
                              int terms) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) column_block<T, L, 4>(x + r * n, c, y + r * n, n, terms);
  for (; r < rows; ++r) column_block<T, L, 1>(x + r * n, c, y + r * n, n, terms);
}

// A Chebyshev sum of its own for every column. All rows of some columns before the next ones, so
// that their coefficients stay in the cache.
template <typename T, int L>
ATLASC_INLINE void column_sums(const T* x, const std::vector<double>& c, T* y, std::int64_t rows,
                               std::int64_t n) {
  const int terms = static_cast<int>(c.size() / n);
  std::int64_t i = 0;
  for (; i + L <= n; i += L) columns_at<T, L>(x + i, c.data() + i, y + i, rows, n, terms);
  for (; i < n; ++i) columns_at<T, 1>(x + i, c.data() + i, y + i, rows, n, terms);
}

}  // namespace atlasc
