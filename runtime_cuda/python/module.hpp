// A compiled program as a Python module: client and server in one process, for a try-out.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/program_file.hpp"
#include "atlasc/roles.hpp"
#include "python/arrays.hpp"
#include "python/calls.hpp"
#include "python/errors.hpp"

namespace atlasc::python {

namespace py = pybind11;

/// Fills a module with calls that were compiled, of the file whose text has a SHA-256:
///   engine                          its name
///   identity(program)               digest of the program that a client's file is of
///   keygen(folder, program)         writes secret.key, evaluation.key and the ledger
///   Client(key, program), Server(keys, program)
///   query = client.encrypt({name: [count, ...]}, unchecked=False)
///   answer = server.execute(query)
///   {name: [count, ...]}, {row: share} = client.decrypt(answer)    see `Answers`
/// `program` is a file: for a client interface.safetensors, for a server program.safetensors. Queries
/// and answers are bytes, those of their files.
inline void fill(py::module_& module, Program execute, const std::string& text) {
    translate_errors(module);
    module.attr("engine") = built_backend().name;
    const auto interface_in = [](const std::string& program) {
        return read_interface(TensorFile(program, TensorFile::large_header));
    };
    module.def(
        "identity",
        [interface_in](const std::string& program) { return interface_in(program).identity; },
        py::arg("program"), py::call_guard<py::gil_scoped_release>());
    module.def(
        "keygen",
        [interface_in](const std::string& folder, const std::string& program) {
            make_keys(interface_in(program), folder);
        },
        py::arg("folder"), py::arg("program"), py::call_guard<py::gil_scoped_release>());
    // Local to the module: a process may load the modules of several programs.
    const py::module_local local;
    py::class_<Client>(module, "Client", local)
        .def(py::init([interface_in](const std::string& key, const std::string& program) {
                 return std::make_unique<Client>(interface_in(program), key);
             }),
             py::arg("key"), py::arg("program"))
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
        .def(py::init([execute, text](const std::string& keys, const std::string& program) {
                 const py::gil_scoped_release released;
                 const StoredProgram stored(TensorFile(program, TensorFile::large_header));
                 stored.require_text(text);
                 stored.require_no_state();
                 return std::make_unique<Server>(stored.interface(), execute, keys,
                                                 PlainFile(program));
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
