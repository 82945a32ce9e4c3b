// The runtime as the Python module atlasc.runtime._native: an engine that plays recorded functions.
//
// A call lets go of the interpreter's lock while it computes, so that other threads go on.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "atlasc/backend.hpp"
#include "atlasc/record.hpp"
#include "sim/sim_engine.hpp"
#include "python/arrays.hpp"
#include "python/calls.hpp"
#include "python/errors.hpp"
#include "python/roles.hpp"

namespace atlasc::python {
namespace {

using Progress = std::function<void(const std::string&, std::size_t, std::size_t)>;

/// A ciphertext with its level, which Python asks for often.
struct Handle {
    Ciphertext value;
    int level;
};

/// A function of Python, called from where the interpreter's lock was let go.
KeyProgress progress_of(const Progress& report) {
    return [&report](const std::string& name, std::size_t made, std::size_t total) {
        const py::gil_scoped_acquire acquired;
        report(name, made, total);
    };
}

Handle handle_of(const Engine& engine, Ciphertext value) {
    const int level = engine.level(value);
    return {std::move(value), level};
}

void add_to(Record& record, const std::map<std::string, py::bytes>& arrays) {
    record.add([&arrays](const std::string& name) { return bytes_of(arrays.at(name)); });
}

std::vector<Handle> play(Engine& engine, const Record& record, const std::string& function,
                         const std::vector<Array>& arrays,
                         const std::vector<std::vector<Handle>>& operands) {
    std::vector<Ciphertexts> given;
    for (const std::vector<Handle>& operand : operands) {
        Ciphertexts& values = given.emplace_back();
        for (const Handle& one : operand) {
            values.push_back(one.value);
        }
    }
    std::vector<Tensor> tensors;
    for (const Array& array : arrays) {
        tensors.push_back(tensor_of(array));
    }
    return computed([&] {
        Arrays roles(std::move(tensors));
        std::vector<Handle> results;
        for (Ciphertext& one :
             replay(engine, record, record.function(function), roles, std::move(given))) {
            results.push_back(handle_of(engine, std::move(one)));
        }
        return results;
    });
}

void define_facts(py::module_& module) {
    py::class_<sim::Noise>(module, "Noise", "Deviations of the simulation's errors.")
        .def(py::init<>())
        .def_static(
            "ckks",
            [](const Interface& interface) { return sim::Noise::ckks(interface.parameters, 0); },
            py::arg("interface"), "What executables draw, where they are asked for noise.")
        .def_readwrite("fresh", &sim::Noise::fresh)
        .def_readwrite("rescale", &sim::Noise::rescale)
        .def_readwrite("key_switch", &sim::Noise::key_switch)
        .def_readwrite("digits", &sim::Noise::digits)
        .def_readwrite("relinearize", &sim::Noise::relinearize)
        .def_readwrite("settle", &sim::Noise::settle)
        .def_readwrite("encode", &sim::Noise::encode)
        .def_readwrite("bootstrap", &sim::Noise::bootstrap)
        .def_readwrite("bootstrap_cubic", &sim::Noise::bootstrap_cubic)
        .def_readwrite("seed", &sim::Noise::seed);
    module.def(
        "devices",
        [](const std::string& backend) {
            std::vector<std::pair<std::string, std::uint64_t>> found;
            for (Device& one : computed([&] { return backend_named(backend).devices(); })) {
                found.emplace_back(std::move(one.name), one.bytes);
            }
            return found;
        },
        py::arg("backend"), "Name and bytes of each GPU that an engine may use.");
    module.def(
        "free_bytes",
        [](const std::string& backend) {
            return computed([&] { return backend_named(backend).free_bytes(); });
        },
        py::arg("backend"), "What a new engine finds free on the first GPU.");
    module.def(
        "write_keys",
        [](const std::string& backend, const Interface& interface, const std::string& secret,
           const std::string& evaluation, const Progress& report) {
            computed([&] {
                backend_named(backend).generate_keys(interface, {secret, evaluation},
                                                     progress_of(report));
            });
        },
        py::arg("backend"), py::arg("interface"), py::arg("secret"), py::arg("evaluation"),
        py::arg("report"));
}

void define_engine(py::module_& module) {
    py::class_<Record, std::shared_ptr<Record>>(module, "Record", "Functions of a program.")
        .def(py::init<>())
        .def("add", add_to, py::arg("arrays"));
    py::class_<Handle>(module, "Ciphertext").def_readonly("level", &Handle::level);
    py::class_<Engine>(module, "Engine")
        .def_static(
            "fresh",
            [](const std::string& backend, const Interface& interface, const Progress& report) {
                return computed([&] {
                    return backend_named(backend).fresh_engine(interface, progress_of(report));
                });
            },
            py::arg("backend"), py::arg("interface"), py::arg("report"),
            "Client and server in one, with new keys.")
        .def_static(
            "client",
            [](const std::string& backend, const Interface& interface, const std::string& secret) {
                return computed(
                    [&] { return backend_named(backend).client_engine(interface, secret); });
            },
            py::arg("backend"), py::arg("interface"), py::arg("secret"))
        .def_static(
            "server",
            [](const std::string& backend, const Interface& interface,
               const std::variant<std::string, py::buffer>& evaluation) {
                const Backend& chosen = backend_named(backend);
                if (const auto* const path = std::get_if<std::string>(&evaluation)) {
                    return computed([&] { return chosen.server_engine(interface, *path, 0); });
                }
                const py::buffer_info info = std::get<py::buffer>(evaluation).request();
                const auto* const data = static_cast<const std::uint8_t*>(info.ptr);
                const auto size = static_cast<std::size_t>(info.size * info.itemsize);
                return computed([&] {
                    return chosen.server_engine(
                        interface, PlainFile::view("the evaluation keys", data, size), 0);
                });
            },
            py::arg("backend"), py::arg("interface"), py::arg("evaluation"),
            "From a path, or from bytes that are not copied, such as a mapping of a file.")
        .def_static(
            "simulated",
            [](std::size_t slots, int max_level, std::optional<int> bootstrap_level,
               int bootstrap_batch, sim::SimEngine::Reach rotations, const sim::Noise& noise,
               double bootstrap_range) -> std::unique_ptr<Engine> {
                const Parameters parameters{slots, max_level, bootstrap_level, bootstrap_batch};
                return std::make_unique<sim::SimEngine>(parameters, std::move(rotations),
                                                        random_identity(), sim::Holds::secret, noise,
                                                        bootstrap_range);
            },
            py::arg("slots"), py::arg("max_level"), py::arg("bootstrap_level"),
            py::arg("bootstrap_batch"), py::arg("rotations"), py::arg("noise"),
            py::arg("bootstrap_range"))
        .def_property_readonly("identity", &Engine::identity)
        .def("encrypt",
             [](Engine& engine, const Array& slots, int level) {
                 const Vector vector = tensor_of(slots).values;
                 return computed(
                     [&] { return handle_of(engine, engine.encrypt(vector, level)); });
             })
        .def("decrypt",
             [](Engine& engine, const Handle& x) {
                 const Vector slots = computed([&] { return engine.decrypt(x.value); });
                 return array_of({{slots.size()}, slots});
             })
        .def("save",
             [](Engine& engine, const Handle& x) {
                 return python_bytes(computed([&] { return engine.save(x.value); }));
             })
        .def("load",
             [](Engine& engine, const py::bytes& data) {
                 const Bytes bytes = bytes_of(data);
                 return computed([&] { return handle_of(engine, engine.load(bytes)); });
             })
        .def("settle",
             [](Engine& engine, const Handle& x) { computed([&] { engine.settle({x.value}); }); })
        .def("wait", [](Engine& engine) { computed([&] { engine.wait(); }); })
        .def("play", play, py::arg("record"), py::arg("function"), py::arg("arrays"),
             py::arg("operands"), "The ciphertexts of a recorded function.")
        .def(
            "bootstrap_by",
            [](Engine& engine, std::shared_ptr<Record> record) {
                engine.bootstrap_by(std::move(record));
            },
            py::arg("record"));
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    py::list engines;
    for (const Backend* one : built_backends()) {
        engines.append(one->name);
    }
    module.attr("engines") = py::tuple(engines);
    translate_errors(module);
    define_interface(module);
    define_programs(module);
    define_facts(module);
    define_client(module);
    define_sharing(module);
    define_messages(module);
    define_engine(module);
    define_ledger(module);
    define_answers(module);
}

}  // namespace atlasc::python
