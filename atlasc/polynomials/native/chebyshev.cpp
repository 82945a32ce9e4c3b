// Chebyshev sums over whole arrays, on several threads; the kernel itself is in chebyshev.hpp.

#include "chebyshev.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <thread>

namespace py = pybind11;

void bind_row_programs(py::module_& module);

namespace {

using namespace atlasc;

// One binary for all processors: the widest instruction set is chosen when it runs. `Work` has
// `template <int L> void run() const`, for vectors of L elements.
#ifdef ATLASC_X86
template <typename Work>
__attribute__((target("avx512f"))) void run_avx512(const Work& work) {
  work.template run<8>();
}
template <typename Work>
__attribute__((target("avx2,fma"))) void run_avx2(const Work& work) {
  work.template run<4>();
}
#endif

template <typename Work>
void dispatch(const Work& work) {
#ifdef ATLASC_X86
  if (__builtin_cpu_supports("avx512f")) return run_avx512(work);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2(work);
#endif
  work.template run<2>();
}

// Elements of an array.
template <typename T>
struct Elements {
  const Plan& plan;
  int group;
  const T* x;
  T* y;
  std::int64_t count;
  template <int L>
  ATLASC_INLINE void run() const {
    run_groups<T, L>(plan, group, x, y, count);
  }
};

// Rows of an array, each column with a sum of its own.
template <typename T>
struct Rows {
  const std::vector<double>& terms;
  const T* x;
  T* y;
  std::int64_t rows, columns;
  template <int L>
  ATLASC_INLINE void run() const {
    column_sums<T, L>(x, terms, y, rows, columns);
  }
};

// Below this many coefficient-element products a thread costs more than it saves.
constexpr std::int64_t kWorkPerThread = 1 << 21;

// Calls part(begin, length) for parts of `count`, each on a thread of its own.
template <typename Part>
void on_threads(std::int64_t count, std::int64_t work, int threads, std::int64_t unit,
                const Part& part) {
  const std::int64_t wanted = work / kWorkPerThread;
  const std::int64_t parts = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, wanted));
  const std::int64_t chunk = ((count + parts - 1) / parts + unit - 1) / unit * unit;
  std::vector<std::thread> pool;
  for (std::int64_t begin = chunk; begin < count; begin += chunk) {
    const std::int64_t length = std::min(chunk, count - begin);
    pool.emplace_back([&part, begin, length] { part(begin, length); });
  }
  part(0, std::min(chunk, count));
  for (std::thread& thread : pool) thread.join();
}

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
py::array_t<T> evaluate(Array<T> x, Array<double> coefficients, double low, double high,
                        int threads) {
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
    const int group = group_size(c.size());
    const Plan plan = make_plan(c, low, high, group);
    const std::int64_t work = count * static_cast<std::int64_t>(c.size());
    on_threads(count, work, threads, 64, [&](std::int64_t begin, std::int64_t length) {
      dispatch(Elements<T>{plan, group, source + begin, target + begin, length});
    });
  }
  return result;
}

template <typename T>
py::array_t<T> evaluate_columns(Array<T> x, Array<double> coefficients, int threads) {
  if (coefficients.ndim() != 2 || coefficients.size() == 0)
    throw std::invalid_argument("coefficients must be a non-empty matrix");
  if (x.ndim() != 2 || x.shape(1) != coefficients.shape(1))
    throw std::invalid_argument("x must have a column for each column of the coefficients");
  if (threads < 1) throw std::invalid_argument("threads must be at least 1");
  py::array_t<T> result(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim()));
  const std::vector<double> c(coefficients.data(), coefficients.data() + coefficients.size());
  const T* source = x.data();
  T* target = result.mutable_data();
  const std::int64_t rows = x.shape(0), columns = x.shape(1);
  {
    py::gil_scoped_release release;
    const std::int64_t work = rows * static_cast<std::int64_t>(c.size());
    on_threads(rows, work, threads, 4, [&](std::int64_t begin, std::int64_t length) {
      const std::int64_t at = begin * columns;
      dispatch(Rows<T>{c, source + at, target + at, length, columns});
    });
  }
  return result;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Fused, multithreaded evaluation of Chebyshev sums, and of row programs.";
  const char* doc =
      "sum_k coefficients[k] T_k((2 x - low - high) / (high - low)), elementwise; shape and dtype "
      "of x.";
  module.def("evaluate_f32", &evaluate<float>, doc, py::arg("x"), py::arg("coefficients"),
             py::arg("low"), py::arg("high"), py::arg("threads"));
  module.def("evaluate_f64", &evaluate<double>, doc, py::arg("x"), py::arg("coefficients"),
             py::arg("low"), py::arg("high"), py::arg("threads"));
  const char* columns =
      "sum_k coefficients[k, j] T_k(x[i, j]) for each row i and column j; shape and dtype of x.";
  module.def("evaluate_columns_f32", &evaluate_columns<float>, columns, py::arg("x"),
             py::arg("coefficients"), py::arg("threads"));
  module.def("evaluate_columns_f64", &evaluate_columns<double>, columns, py::arg("x"),
             py::arg("coefficients"), py::arg("threads"));
  bind_row_programs(module);
}
