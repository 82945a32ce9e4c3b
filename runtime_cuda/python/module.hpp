// A compiled program as a Python module: client and server in one process, for a try-out.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/roles.hpp"
#include "python/arrays.hpp"
#include "python/calls.hpp"
#include "python/errors.hpp"

namespace atlasc::python {

namespace py = pybind11;

/// Fills a module:
///   model, program, engine          names; the digest of the program
///   keygen(folder)                  writes secret.key, evaluation.key and the ledger
///   Client(key), Server(keys, program)
///   query = client.encrypt({name: [count, ...]}, unchecked=False)
///   answer = server.execute(query)
///   {name: [count, ...]}, {row: share} = client.decrypt(answer)    see `Answers`
/// Queries and answers are bytes, those of their files.
inline void fill(py::module_& module, const Interface& interface, Program program) {
    translate_errors(module);
    module.attr("model") = interface.model;
    module.attr("program") = interface.identity;
    module.attr("engine") = built_backend().name;
    module.def("keygen", [&interface](const std::string& folder) { make_keys(interface, folder); },
               py::arg("folder"), py::call_guard<py::gil_scoped_release>());
    // Local to the module: a process may load the modules of several programs.
    const py::module_local local;
    py::class_<Client>(module, "Client", local)
        .def(py::init([&interface](const std::string& key) {
                 return std::make_unique<Client>(interface, key);
             }),
             py::arg("key"))
        .def(
            "encrypt",
            [](Client& client, const std::map<std::string, Array>& arrays, bool unchecked) {
                const Tensors inputs = tensors_of(arrays);
                return python_bytes(
                    computed([&] { return client.encrypt(inputs, unchecked).bytes; }));
            },
            py::arg("inputs"), py::arg("unchecked") = false)
        .def(
            "decrypt",
            [](Client& client, const py::bytes& answer) {
                PlainFile file("the answer", bytes_of(answer));
                const Answers found = computed([&] { return client.decrypt(std::move(file)); });
                return py::make_tuple(arrays_of(found.outputs), found.refused);
            },
            py::arg("answer"));
    py::class_<Server>(module, "Server", local)
        .def(py::init([&interface, program](const std::string& keys, const std::string& file) {
                 const py::gil_scoped_release released;
                 return std::make_unique<Server>(interface, program, keys, PlainFile(file));
             }),
             py::arg("keys"), py::arg("program"))
        .def(
            "execute",
            [](Server& server, const py::bytes& query) {
                PlainFile file("the query", bytes_of(query));
                return python_bytes(computed([&] { return server.execute(std::move(file)); }));
            },
            py::arg("query"));
}

}  // namespace atlasc::python
