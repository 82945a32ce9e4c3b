// A compiled program as a Python module: client and server in one process, for a try-out.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>

#include "atlasc/backend.hpp"
#include "atlasc/roles.hpp"
#include "python/arrays.hpp"
#include "python/errors.hpp"

namespace atlasc::python {

namespace py = pybind11;

/// A message in ciphertexts of another engine with the same keys.
inline Message moved(const Message& message, const std::string& kind, const Interface& interface,
                     const Engine& from, const Engine& to) {
    return deserialized(serialized(message, kind, from), interface, to);
}

/// Fills a module:
///   model, program, engine          names; the digest of the program
///   keygen(folder)                  writes secret.key and evaluation.key
///   Client(key), Server(keys, weights)
///   query = client.encrypt({name: [count, ...]}, unchecked=False)
///   answer = server.execute(query)
///   {name: [count, ...]}, {row: share} = client.decrypt(answer)    see `Answers`
/// Ciphertexts pass between the two as they would in files.
inline void fill(py::module_& module, const Interface& interface, Program program) {
    translate_errors(module);
    module.attr("model") = interface.model;
    module.attr("program") = interface.identity;
    module.attr("engine") = built_backend().name;
    module.def("keygen", [&interface](const std::string& folder) { make_keys(interface, folder); },
               py::arg("folder"), py::call_guard<py::gil_scoped_release>());

    // A message with the engine whose ciphertexts it has, which must live as long.
    struct Handed {
        Message message;
        const Engine* engine;
    };
    // Local to the module: a process may load the modules of several programs.
    const py::module_local local;
    py::class_<Handed>(module, "Message", local);
    py::class_<Client>(module, "Client", local)
        .def(py::init([&interface](const std::string& key) {
                 return std::make_unique<Client>(interface, key);
             }),
             py::arg("key"))
        .def(
            "encrypt",
            [](const Client& client, const std::map<std::string, Array>& arrays, bool unchecked) {
                const Tensors inputs = tensors_of(arrays);
                const py::gil_scoped_release released;
                return Handed{client.encrypt(inputs, unchecked).message, &client.engine()};
            },
            py::arg("inputs"), py::arg("unchecked") = false, py::keep_alive<0, 1>())
        .def(
            "decrypt",
            [&interface](const Client& client, const Handed& answer) {
                Answers found;
                {
                    const py::gil_scoped_release released;
                    found = client.decrypt(
                        moved(answer.message, "answer", interface, *answer.engine, client.engine()));
                }
                return py::make_tuple(arrays_of(found.outputs), found.refused);
            },
            py::arg("answer"));
    py::class_<Server>(module, "Server", local)
        .def(py::init([&interface, program](const std::string& keys, const std::string& weights) {
                 const py::gil_scoped_release released;
                 return std::make_unique<Server>(interface, program, keys, weights);
             }),
             py::arg("keys"), py::arg("weights"))
        .def(
            "execute",
            [&interface](Server& server, const Handed& query) {
                const py::gil_scoped_release released;
                return Handed{
                    server.execute(moved(query.message, "query", interface, *query.engine,
                                         server.engine())),
                    &server.engine()};
            },
            py::arg("query"), py::keep_alive<0, 1>());
}

}  // namespace atlasc::python
