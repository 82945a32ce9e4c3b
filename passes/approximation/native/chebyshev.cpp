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

#ifdef ATLASC_X86
template <typename T>
__attribute__((target("avx512f"))) void run_avx512(const Plan& plan, int m, const T* x, T* y,
                                                   std::int64_t count) {
  run_groups<T, 8>(plan, m, x, y, count);
}
template <typename T>
__attribute__((target("avx2,fma"))) void run_avx2(const Plan& plan, int m, const T* x, T* y,
                                                  std::int64_t count) {
  run_groups<T, 4>(plan, m, x, y, count);
}
#endif

// One binary for all processors: the widest instruction set is chosen when it runs.
template <typename T>
void dispatch(const Plan& plan, int m, const T* x, T* y, std::int64_t count) {
#ifdef ATLASC_X86
  if (__builtin_cpu_supports("avx512f")) return run_avx512<T>(plan, m, x, y, count);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return run_avx2<T>(plan, m, x, y, count);
#endif
  run_groups<T, 2>(plan, m, x, y, count);
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

PYBIND11_MODULE(_native, module) {
  module.doc() = "Fused, multithreaded evaluation of Chebyshev sums, and of row programs.";
  const char* doc =
      "sum_k coefficients[k] T_k((2 x - low - high) / (high - low)), elementwise; shape and dtype "
      "of x.";
  module.def("evaluate_f32", &evaluate<float>, doc, py::arg("x"), py::arg("coefficients"),
             py::arg("low"), py::arg("high"), py::arg("threads"));
  module.def("evaluate_f64", &evaluate<double>, doc, py::arg("x"), py::arg("coefficients"),
             py::arg("low"), py::arg("high"), py::arg("threads"));
  bind_row_programs(module);
}
