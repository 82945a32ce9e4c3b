// Calls of the runtime from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

#include "atlasc/base/files.hpp"

namespace atlasc::python {

namespace py = pybind11;

/// `operation()` without the interpreter's lock.
template <typename Operation>
auto computed(Operation operation) {
    const py::gil_scoped_release released;
    return operation();
}

inline Bytes bytes_of(const py::bytes& data) {
    const std::string_view view = data;
    return {view.begin(), view.end()};
}

inline py::bytes python_bytes(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace atlasc::python
