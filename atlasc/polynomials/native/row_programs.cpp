// Row programs: what an approximation does to the rows of a tensor, on few rows at a time.
//
// A program is recorded from the algorithm in Python (row_programs.py): additions, products, row
// sums and Chebyshev sums on registers that hold some rows (wide) or one value a row (columns). A
// few rows go through the whole program while they are in the first-level cache, and the first of
// them whose result explodes ends the run. Who watches the rows is told instead which of them
// explode.

#include "chebyshev.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>

namespace py = pybind11;

namespace {

using namespace atlasc;

enum Code { kAdd, kSub, kMul, kSquare, kAddScalar, kScale, kAddVector, kScaleVector, kRowSum,
            kChebyshev, kChebyshevColumns, kMask, kFill, kHidden };

struct Instruction {
  int code, target, a, b;
  double scalar;
  int table;  // of a Chebyshev sum, of one for each column, or a vector
};

struct Sum {
  Plan plan;
  int m;
};

struct Table {
  Sum full, kept;  // inside the domain the trailing coefficients that do not count are left out
  bool truncated;
  double low, high;
};

// Elements of a wide register, about; and rows that make full vectors of columns.
constexpr std::int64_t kElements = 4096;
constexpr std::int64_t kColumns = 16;

template <typename T>
ATLASC_INLINE bool within(const T* x, std::int64_t count, T low, T high) {
  int outside = 0;  // a comparison with a value that is not a number is false
  for (std::int64_t i = 0; i < count; ++i) outside |= !((x[i] >= low) & (x[i] <= high));
  return outside == 0;
}

template <typename T, int L>
ATLASC_INLINE void row_sums(const T* x, T* y, std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, x += n) {
    typename Lanes<L>::Vec sum = {}, v;
    std::int64_t i = 0;
    for (; i + L <= n; i += L) {
      load<L>(x + i, v);
      sum += v;
    }
    double total = 0;
    for (int lane = 0; lane < L; ++lane) total += sum[lane];
    for (; i < n; ++i) total += x[i];
    y[r] = static_cast<T>(total);
  }
}

template <typename T>
ATLASC_INLINE void with_vector(bool scale, const T* a, const T* v, T* y, std::int64_t rows,
                               std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, a += n, y += n) {
    if (scale)
      for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] * v[i];
    else
      for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + v[i];
  }
}

template <typename T>
ATLASC_INLINE void binary(int code, const T* a, const T* b, T* y, std::int64_t count) {
  if (code == kAdd)
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
  else if (code == kSub)
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] - b[i];
  else
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] * b[i];
}

template <typename T>
ATLASC_INLINE void with_scalar(int code, const T* a, T b, T* y, std::int64_t count) {
  if (code == kAdd)
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b;
  else if (code == kSub)
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] - b;
  else
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] * b;
}

template <typename T>
ATLASC_INLINE void select(const T* a, const std::uint8_t* keep, T other, T* y,
                          std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = keep[i] ? a[i] : other;
}

// To each row, a factor times log(keys / visible keys).
template <typename T>
ATLASC_INLINE void add_hidden(const T* a, const std::uint8_t* keep, double log_keys, T* y,
                              std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, a += n, keep += n, y += n) {
    std::int64_t visible = 0;
    for (std::int64_t i = 0; i < n; ++i) visible += keep[i];
    const double hidden = std::log(static_cast<double>(n) / std::max<std::int64_t>(visible, 1));
    with_scalar(kAdd, a, static_cast<T>(log_keys * hidden), y, n);
  }
}

class RowProgram {
 public:
  using InstructionTuple = std::tuple<int, int, int, int, double, int>;
  using TableTuple = std::tuple<std::vector<double>, int, double, double>;

  RowProgram(const std::vector<InstructionTuple>& instructions,
             const std::vector<std::vector<double>>& vectors, const std::vector<TableTuple>& tables,
             std::vector<std::vector<double>> by_column, std::vector<bool> wide, int result)
      : vectors_(vectors), by_column_(std::move(by_column)), wide_(std::move(wide)),
        result_(result) {
    const int count = static_cast<int>(wide_.size());
    for (const auto& [code, target, a, b, scalar, table] : instructions) {
      if (target < 1 || target >= count || a < 0 || a >= count || b < 0 || b >= count)
        throw std::invalid_argument("no such register");
      const std::size_t entries = code == kChebyshev          ? tables.size()
                                  : code == kChebyshevColumns ? by_column_.size()
                                                              : vectors.size();
      if ((code == kChebyshev || code == kChebyshevColumns || code == kAddVector ||
           code == kScaleVector) &&
          (table < 0 || static_cast<std::size_t>(table) >= entries))
        throw std::invalid_argument("no such table");
      instructions_.push_back({code, target, a, b, scalar, table});
    }
    if (result < 1 || result >= count || !wide_[result])
      throw std::invalid_argument("the result must be a wide register other than the argument");
    for (const auto& [coefficients, kept, low, high] : tables) {
      if (kept < 1 || static_cast<std::size_t>(kept) > coefficients.size() || !(low < high))
        throw std::invalid_argument("no Chebyshev sum");
      const std::vector<double> first(coefficients.begin(), coefficients.begin() + kept);
      const bool truncated = first.size() < coefficients.size();
      tables_.push_back({sum(coefficients, low, high), sum(first, low, high), truncated, low, high});
    }
    columns_ = !by_column_.empty();
    for (const bool is_wide : wide_) columns_ = columns_ || !is_wide;
  }

  // Whether all results are numbers within the limit; what comes after one that is not is not
  // computed. Where rows are watched all are computed, and 1 is written for those that leave where a
  // sum is right, or explode. x and y are [rows, n] with n as the vectors, keep is [rows, n] or null.
  template <typename T>
  bool run(const T* x, const std::uint8_t* keep, T* y, std::int64_t rows, std::int64_t n,
           double limit, std::uint8_t* exploded) const {
#ifdef ATLASC_X86
    if (__builtin_cpu_supports("avx512f")) return run_avx512(x, keep, y, rows, n, limit, exploded);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      return run_avx2(x, keep, y, rows, n, limit, exploded);
#endif
    return blocks<T, 2>(x, keep, y, rows, n, limit, exploded);
  }

  void check(std::int64_t n) const {
    for (const auto& vector : vectors_)
      if (static_cast<std::int64_t>(vector.size()) != n)
        throw std::invalid_argument("a vector is not as long as the rows");
    for (const auto& sums : by_column_)
      if (n < 1 || sums.empty() || static_cast<std::int64_t>(sums.size()) % n)
        throw std::invalid_argument("not a Chebyshev sum for each column");
  }

 private:
  static Sum sum(const std::vector<double>& coefficients, double low, double high) {
    const int m = group_size(coefficients.size());
    return {make_plan(coefficients, low, high, m), m};
  }

#ifdef ATLASC_X86
  template <typename T>
  __attribute__((target("avx512f"))) bool run_avx512(const T* x, const std::uint8_t* keep, T* y,
                                                     std::int64_t rows, std::int64_t n,
                                                     double limit, std::uint8_t* exploded) const {
    return blocks<T, 8>(x, keep, y, rows, n, limit, exploded);
  }
  template <typename T>
  __attribute__((target("avx2,fma"))) bool run_avx2(const T* x, const std::uint8_t* keep, T* y,
                                                    std::int64_t rows, std::int64_t n,
                                                    double limit, std::uint8_t* exploded) const {
    return blocks<T, 4>(x, keep, y, rows, n, limit, exploded);
  }
#endif

  template <typename T, int L>
  ATLASC_INLINE bool blocks(const T* x, const std::uint8_t* keep, T* y, std::int64_t rows,
                            std::int64_t n, double limit, std::uint8_t* exploded) const {
    const std::int64_t wanted = std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, n));
    const std::int64_t size = columns_ ? (wanted + kColumns - 1) / kColumns * kColumns : wanted;
    std::vector<T> memory(wide_.size() * size * n), vectors;
    for (const auto& vector : vectors_) vectors.insert(vectors.end(), vector.begin(), vector.end());
    std::vector<T*> registers(wide_.size());
    bool finite = true;
    for (std::size_t i = 0; i < registers.size(); ++i) registers[i] = memory.data() + i * size * n;
    for (std::int64_t start = 0; start < rows; start += size) {
      const std::int64_t block = std::min(size, rows - start);
      registers[0] = const_cast<T*>(x + start * n);  // never a target
      registers[result_] = y + start * n;
      const std::uint8_t* kept = keep == nullptr ? nullptr : keep + start * n;
      for (const Instruction& instruction : instructions_)
        step<T, L>(instruction, registers.data(), vectors.data(), kept, block, n);
      const T bound = static_cast<T>(limit);
      if (within(registers[result_], block * n, -bound, bound)) continue;
      if (exploded == nullptr) return false;
      for (std::int64_t r = 0; r < block; ++r)
        if (!within(registers[result_] + r * n, n, -bound, bound)) exploded[start + r] = 1;
      finite = false;
    }
    return finite;
  }

  template <typename T, int L>
  ATLASC_INLINE void step(const Instruction& instruction, T* const* registers, const T* vectors,
                          const std::uint8_t* keep, std::int64_t rows, std::int64_t n) const {
    const int code = instruction.code;
    const T *a = registers[instruction.a], *b = registers[instruction.b];
    T* y = registers[instruction.target];
    const bool wide = wide_[instruction.a];
    const std::int64_t count = wide ? rows * n : rows;
    const T scalar = static_cast<T>(instruction.scalar);
    switch (code) {
      case kAdd: case kSub: case kMul:
        if (wide == wide_[instruction.b]) return binary(code, a, b, y, count);
        for (std::int64_t r = 0; r < rows; ++r) with_scalar(code, a + r * n, b[r], y + r * n, n);
        return;
      case kSquare: return binary<T>(kMul, a, a, y, count);
      case kAddScalar: return with_scalar<T>(kAdd, a, scalar, y, count);
      case kScale: return with_scalar<T>(kMul, a, scalar, y, count);
      case kAddVector: case kScaleVector:
        return with_vector(code == kScaleVector, a, vectors + instruction.table * n, y, rows, n);
      case kRowSum: return row_sums<T, L>(a, y, rows, n);
      case kHidden:
        if (keep != nullptr) return add_hidden(a, keep, instruction.scalar, y, rows, n);
        if (a != y) std::copy(a, a + count, y);
        return;
      case kMask: case kFill:
        if (keep != nullptr) return select(a, keep, scalar, y, count);
        if (a != y) std::copy(a, a + count, y);
        return;
      case kChebyshevColumns:
        return column_sums<T, L>(a, by_column_[instruction.table], y, rows, n);
      default: {
        const Table& table = tables_[instruction.table];
        run_groups<T, L>(table.kept.plan, table.kept.m, a, y, count);
        const T low = static_cast<T>(table.low), high = static_cast<T>(table.high);
        if (table.truncated && !within(a, count, low, high)) {
          // Each element alone decides: the result does not depend on how rows are divided.
          std::vector<T> values;
          for (std::int64_t i = 0; i < count; ++i)
            if (!((a[i] >= low) & (a[i] <= high))) values.push_back(a[i]);
          run_groups<T, L>(table.full.plan, table.full.m, values.data(), values.data(),
                           static_cast<std::int64_t>(values.size()));
          const T* value = values.data();
          for (std::int64_t i = 0; i < count; ++i)
            if (!((a[i] >= low) & (a[i] <= high))) y[i] = *value++;
        }
      }
    }
  }

  std::vector<Instruction> instructions_;
  std::vector<std::vector<double>> vectors_;
  std::vector<Table> tables_;
  std::vector<std::vector<double>> by_column_;  // [degree + 1, n]; an argument is in [-1, 1]
  std::vector<bool> wide_;
  int result_;
  bool columns_ = false;  // whether several rows at once pay
};

template <typename T>
bool run(const RowProgram& program, py::array_t<T, py::array::c_style> x, py::object keep,
         py::array_t<T, py::array::c_style> y, double limit, py::object watched) {
  if (x.ndim() != 2 || y.ndim() != 2 || y.shape(0) != x.shape(0) || y.shape(1) != x.shape(1))
    throw std::invalid_argument("x and y must be matrices of one shape");
  program.check(x.shape(1));
  const std::uint8_t* kept = nullptr;
  py::array_t<std::uint8_t, py::array::c_style> mask;
  if (!keep.is_none()) {
    mask = keep.cast<py::array_t<std::uint8_t, py::array::c_style>>();
    if (mask.size() != x.size()) throw std::invalid_argument("keep must have the shape of x");
    kept = mask.data();
  }
  std::uint8_t* exploded = nullptr;
  if (!watched.is_none()) {
    auto rows = watched.cast<py::array_t<std::uint8_t, 0>>();  // a view, to be written to
    if (rows.ndim() != 1 || rows.shape(0) != x.shape(0) || (rows.size() && rows.strides(0) != 1))
      throw std::invalid_argument("exploded must have a value for each row of x");
    if (rows.size()) exploded = rows.mutable_data(0);
  }
  const T* source = x.data();
  T* target = y.mutable_data();
  const std::int64_t rows = x.shape(0), n = x.shape(1);
  py::gil_scoped_release release;
  return program.run<T>(source, kept, target, rows, n, limit, exploded);
}

}  // namespace

void bind_row_programs(py::module_& module) {
  py::dict codes;
  const char* names[] = {"add", "sub", "mul", "square", "add_scalar", "scale", "add_vector",
                         "scale_vector", "row_sum", "chebyshev", "chebyshev_columns", "mask", "fill",
                         "hidden"};
  for (int code = kAdd; code <= kHidden; ++code) codes[names[code]] = code;
  module.attr("ROW_CODES") = codes;
  const char* doc =
      "Writes the results into y; False if one is beyond the limit. Without `exploded` it ends "
      "there. With it it goes on: 1 is written there for rows with a result beyond the limit.";
  py::class_<RowProgram>(module, "RowProgram")
      .def(py::init<const std::vector<RowProgram::InstructionTuple>&,
                    const std::vector<std::vector<double>>&,
                    const std::vector<RowProgram::TableTuple>&,
                    std::vector<std::vector<double>>, std::vector<bool>, int>(),
           py::arg("instructions"), py::arg("vectors"), py::arg("tables"), py::arg("by_column"),
           py::arg("wide"), py::arg("result"))
      .def("run_f32", &run<float>, doc, py::arg("x").noconvert(), py::arg("keep"),
           py::arg("y").noconvert(), py::arg("limit"), py::arg("exploded"))
      .def("run_f64", &run<double>, doc, py::arg("x").noconvert(), py::arg("keep"),
           py::arg("y").noconvert(), py::arg("limit"), py::arg("exploded"));
}
