// Errors of the runtime in Python.
#pragma once

#include <pybind11/pybind11.h>

#include "atlasc/base/error.hpp"

namespace atlasc::python {

namespace py = pybind11;

/// An Error becomes the module's exception Error(what, where, why, remedy).
inline void translate_errors(const py::module_& module) {
    // The module keeps it as long as the process lives.
    static PyObject* const kind = py::exception<Error>(module, "Error").release().ptr();
    py::register_local_exception_translator([](std::exception_ptr thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Error& error) {
            const py::tuple facts = py::make_tuple(error.what(), error.where, error.why,
                                                   error.remedy);
            PyErr_SetObject(kind, facts.ptr());
        }
    });
}

}  // namespace atlasc::python
