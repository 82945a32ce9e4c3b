// What client and server do beside the arithmetic, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace atlasc::python {

/// What client and server agree on: what is encrypted, what the server sees, and what comes back.
void define_interface(pybind11::module_& module);

/// The reader of programs in files.
void define_programs(pybind11::module_& module);

/// From inputs to slots, from slots to answers, and the checks on both.
void define_client(pybind11::module_& module);

/// The noise and the rounding of numbers that are passed on.
void define_sharing(pybind11::module_& module);

/// Queries and answers as bytes.
void define_messages(pybind11::module_& module);

void define_ledger(pybind11::module_& module);

/// What a client does with an answer, step by step.
void define_answers(pybind11::module_& module);

}  // namespace atlasc::python
