// Fused evaluation of a Chebyshev sum over an array: y[i] = sum_k c[k] T_k(t(x[i])).
//
// The affine domain map t(x) = alpha x + beta is fused in, the whole recurrence runs while a vector of
// elements is in registers, so memory is read once and written once whatever the degree.
//
// The sum is regrouped as sum_i T_{im}(t) q_i(t) with deg q_i < m (m = 1 is plain Clenshaw). One coefficient
// then costs one fused multiply-add instead of Clenshaw's two operations, and the q_i are independent chains.
// Everything is computed in double, also for float arrays: at degree 511 a float recurrence would lose
// three to four digits next to the ends of the domain.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

namespace py = pybind11;

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define ATLASC_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATLASC_CLONES
#endif
#define ATLASC_INLINE inline __attribute__((always_inline))

namespace {

constexpr int kLanes = 8;
typedef double Vec __attribute__((vector_size(kLanes * sizeof(double))));
typedef float FloatVec __attribute__((vector_size(kLanes * sizeof(float))));

struct Plan {
  double alpha, beta;         // t = alpha x + beta
  int groups;                 // number of polynomials q_i
  std::vector<double> table;  // groups x m, row i holds q_i in the Chebyshev basis
};

// Rewrites sum_k c_k T_k as sum_i T_{im} q_i with T_{im} T_j = (T_{im+j} + T_{im-j}) / 2.
Plan make_plan(std::vector<double> c, double low, double high, int m) {
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

template <int M, int U>
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

template <typename T>
ATLASC_INLINE Vec load(const T* p);
template <>
ATLASC_INLINE Vec load<double>(const double* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <>
ATLASC_INLINE Vec load<float>(const float* p) {
  FloatVec f;
  std::memcpy(&f, p, sizeof f);
  return __builtin_convertvector(f, Vec);
}
ATLASC_INLINE void store(double* p, const Vec& v) { std::memcpy(p, &v, sizeof v); }
ATLASC_INLINE void store(float* p, const Vec& v) {
  const FloatVec f = __builtin_convertvector(v, FloatVec);
  std::memcpy(p, &f, sizeof f);
}

template <typename T, int M, int U>
ATLASC_INLINE void run(const Plan& plan, const T* x, T* y, std::int64_t count) {
  constexpr std::int64_t step = static_cast<std::int64_t>(kLanes) * U;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    Vec v[U];
    for (int u = 0; u < U; ++u) v[u] = load(x + i + u * kLanes);
    kernel<M, U>(plan, v);
    for (int u = 0; u < U; ++u) store(y + i + u * kLanes, v[u]);
  }
  if (i < count) {
    T buffer[step] = {};
    std::copy(x + i, x + count, buffer);
    Vec v[U];
    for (int u = 0; u < U; ++u) v[u] = load(buffer + u * kLanes);
    kernel<M, U>(plan, v);
    for (int u = 0; u < U; ++u) store(buffer + u * kLanes, v[u]);
    std::copy(buffer, buffer + (count - i), y + i);
  }
}

#define ATLASC_KERNEL(NAME, TYPE, M, U)                                                     \
  ATLASC_CLONES void NAME(const Plan& plan, const TYPE* x, TYPE* y, std::int64_t count) { \
    run<TYPE, M, U>(plan, x, y, count);                                                     \
  }
ATLASC_KERNEL(float_clenshaw, float, 1, 4)
ATLASC_KERNEL(float_groups_4, float, 4, 2)
ATLASC_KERNEL(float_groups_16, float, 16, 1)
ATLASC_KERNEL(double_clenshaw, double, 1, 4)
ATLASC_KERNEL(double_groups_4, double, 4, 2)
ATLASC_KERNEL(double_groups_16, double, 16, 1)

int group_size(std::size_t coefficients) {
  if (coefficients <= 16) return 1;
  return coefficients <= 64 ? 4 : 16;
}

void dispatch(const Plan& plan, int m, const float* x, float* y, std::int64_t count) {
  (m == 1 ? float_clenshaw : m == 4 ? float_groups_4 : float_groups_16)(plan, x, y, count);
}
void dispatch(const Plan& plan, int m, const double* x, double* y, std::int64_t count) {
  (m == 1 ? double_clenshaw : m == 4 ? double_groups_4 : double_groups_16)(plan, x, y, count);
}

// Below this many coefficient-element products a thread costs more than it saves.
constexpr std::int64_t kWorkPerThread = 1 << 21;

template <typename T>
py::array_t<T> evaluate(py::array_t<T, py::array::c_style> x,
                        py::array_t<double, py::array::c_style> coefficients, double low,
                        double high, int threads) {
  if (coefficients.ndim() != 1 || coefficients.size() == 0)
    throw std::invalid_argument("coefficients must be a non-empty vector");
  if (!(low < high)) throw std::invalid_argument("the domain must have low < high");
  if (threads < 1) throw std::invalid_argument("threads must be at least 1");
  py::array_t<T> result(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim()));
  const std::vector<double> c(coefficients.data(), coefficients.data() + coefficients.size());
  const T* source = x.data();
  T* target = result.mutable_data();
  const std::int64_t count = x.size();
  {
    py::gil_scoped_release release;
    const int m = group_size(c.size());
    const Plan plan = make_plan(c, low, high, m);
    const std::int64_t work = count * static_cast<std::int64_t>(c.size()) / kWorkPerThread;
    const std::int64_t parts = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, work));
    const std::int64_t chunk = ((count + parts - 1) / parts + 63) / 64 * 64;
    std::vector<std::thread> pool;
    for (std::int64_t begin = chunk; begin < count; begin += chunk) {
      const std::int64_t length = std::min(chunk, count - begin);
      pool.emplace_back([&plan, m, source, target, begin, length] {
        dispatch(plan, m, source + begin, target + begin, length);
      });
    }
    dispatch(plan, m, source, target, std::min(chunk, count));
    for (std::thread& thread : pool) thread.join();
  }
  return result;
}

}  // namespace

PYBIND11_MODULE(_chebyshev_native, module) {
  module.doc() = "Fused, multithreaded evaluation of Chebyshev sums.";
  const char* doc =
      "sum_k coefficients[k] T_k((2 x - low - high) / (high - low)), elementwise; same shape and dtype as x.";
  module.def("evaluate_f32", &evaluate<float>, doc, py::arg("x"), py::arg("coefficients"),
             py::arg("low"), py::arg("high"), py::arg("threads"));
  module.def("evaluate_f64", &evaluate<double>, doc, py::arg("x"), py::arg("coefficients"),
             py::arg("low"), py::arg("high"), py::arg("threads"));
}
