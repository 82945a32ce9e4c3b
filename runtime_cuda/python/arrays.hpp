// Arrays of NumPy as tensors, and back.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>

#include "atlasc/base/tensor_file.hpp"

namespace atlasc::python {

namespace py = pybind11;

using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;

inline Tensor tensor_of(const Array& array) {
    return {{array.shape(), array.shape() + array.ndim()},
            {array.data(), array.data() + array.size()}};
}

inline Array array_of(const Tensor& tensor) {
    Array array(tensor.shape);
    std::copy(tensor.values.begin(), tensor.values.end(), array.mutable_data());
    return array;
}

}  // namespace atlasc::python
