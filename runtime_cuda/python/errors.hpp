// Errors of the runtime in Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "atlasc/base/error.hpp"

namespace atlasc::python {

namespace py = pybind11;

/// A text of an error, which may quote a file that is no text: bytes that are none are escaped.
inline py::str text_of(const std::string& text) {
    PyObject* const decoded = PyUnicode_DecodeUTF8(
        text.data(), static_cast<py::ssize_t>(text.size()), "backslashreplace");
    return py::reinterpret_steal<py::str>(decoded);
}

/// An Error becomes the module's exception Error(what, where, why, remedy).
inline void translate_errors(const py::module_& module) {
    // The module keeps it as long as the process lives.
    static PyObject* const kind = py::exception<Error>(module, "Error").release().ptr();
    py::register_local_exception_translator([](std::exception_ptr thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Error& error) {
            const py::tuple facts =
                py::make_tuple(text_of(error.what()), text_of(error.where), text_of(error.why),
                               text_of(error.remedy));
            PyErr_SetObject(kind, facts.ptr());
        }
    });
}

}  // namespace atlasc::python
