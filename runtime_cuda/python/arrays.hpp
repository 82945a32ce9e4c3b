// Arrays of NumPy as tensors, and back.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>
#include <map>
#include <string>

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

inline std::map<std::string, Tensor> tensors_of(const std::map<std::string, Array>& arrays) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, array] : arrays) {
        tensors.emplace(name, tensor_of(array));
    }
    return tensors;
}

inline std::map<std::string, Array> arrays_of(const std::map<std::string, Tensor>& tensors) {
    std::map<std::string, Array> arrays;
    for (const auto& [name, tensor] : tensors) {
        arrays.emplace(name, array_of(tensor));
    }
    return arrays;
}

}  // namespace atlasc::python
