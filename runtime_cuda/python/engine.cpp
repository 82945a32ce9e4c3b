// The engine as a Python module, for atlasc/targets/cpu: ciphertexts, the primitives, and keys.
//
// Every call lets go of the interpreter's lock while it computes, so that other threads go on.
#include <pybind11/complex.h>
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "atlasc/record.hpp"
#include "ckks/keys/key_files.hpp"
#include "ckks/shared_engine.hpp"
#include "python/errors.hpp"

namespace atlasc::python {
namespace {

using ckks::CkksEngine;
using ckks::Ground;
using ckks::SharedEngine;

/// A ciphertext with its level, which Python asks for often.
struct Handle {
    Ciphertext value;
    int level;
};

using Handles = std::vector<Handle>;

template <typename Number>
std::vector<Number> numbers_of(const py::object& array) {
    const auto numbers =
        py::cast<py::array_t<Number, py::array::c_style | py::array::forcecast>>(array);
    return {numbers.data(), numbers.data() + numbers.size()};
}

/// A number, or an array of slots, complex or not.
Plaintext plaintext_of(const py::object& value) {
    if (!py::isinstance<py::array>(value)) {
        return py::cast<double>(value);
    }
    if (py::cast<py::array>(value).dtype().kind() == 'c') {
        return numbers_of<std::complex<double>>(value);
    }
    return numbers_of<double>(value);
}

Ciphertexts values_of(const Handles& handles) {
    Ciphertexts values;
    for (const Handle& handle : handles) {
        values.push_back(handle.value);
    }
    return values;
}

Handle handle_of(const CkksEngine& engine, const Ciphertext& value) {
    return {value, engine.level(value)};
}

Handles handles_of(const CkksEngine& engine, const Ciphertexts& values) {
    Handles handles;
    for (const Ciphertext& value : values) {
        handles.push_back(handle_of(engine, value));
    }
    return handles;
}

/// `operation(engine)` without the interpreter's lock; ciphertexts become handles.
template <typename Operation>
auto computed(SharedEngine& shared, Operation operation) {
    const py::gil_scoped_release released;
    return shared.with([&](CkksEngine& engine) {
        auto result = operation(engine);
        if constexpr (std::is_same_v<decltype(result), Ciphertext>) {
            return handle_of(engine, result);
        } else if constexpr (std::is_same_v<decltype(result), Ciphertexts>) {
            return handles_of(engine, result);
        } else {
            return result;
        }
    });
}

/// A method of Python for a primitive of one ciphertext, and for one of two.
auto method(Ciphertext (CkksEngine::*primitive)(const Ciphertext&)) {
    return [primitive](SharedEngine& shared, const Handle& x) {
        return computed(shared,
                        [&](CkksEngine& engine) { return (engine.*primitive)(x.value); });
    };
}
auto method(Ciphertext (CkksEngine::*primitive)(const Ciphertext&, const Ciphertext&)) {
    return [primitive](SharedEngine& shared, const Handle& x, const Handle& y) {
        return computed(
            shared, [&](CkksEngine& engine) { return (engine.*primitive)(x.value, y.value); });
    };
}

py::bytes bytes_of(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Parameters and keys of a program, without the rest of its interface.
Interface interface_of(const Parameters& parameters, const KeyPlan& keys) {
    Interface interface;
    interface.parameters = parameters;
    interface.keys = keys;
    return interface;
}

/// An engine whose role `role(interface, ground)` makes.
template <typename MakeRole>
std::unique_ptr<SharedEngine> engine_of(const Parameters& parameters, const KeyPlan& keys,
                                        MakeRole make_role) {
    const py::gil_scoped_release released;
    const Interface interface = interface_of(parameters, keys);
    std::unique_ptr<Ground> ground = ckks::ground_of(interface);
    ckks::Role role = make_role(interface, *ground);
    return std::make_unique<SharedEngine>(
        std::make_unique<CkksEngine>(std::move(ground), std::move(role)));
}

using PythonProgress = std::function<void(const std::string&, std::size_t, std::size_t)>;

/// A function of Python, called from where the interpreter's lock was let go.
ckks::KeyProgress progress_of(const PythonProgress& report) {
    return [&report](const std::string& name, std::size_t made, std::size_t total) {
        const py::gil_scoped_acquire acquired;
        report(name, made, total);
    };
}

void define_facts(py::module_& module) {
    py::class_<Parameters>(module, "Parameters")
        .def(py::init([](std::size_t slots, int max_level, std::optional<int> bootstrap_level,
                         int bootstrap_batch, std::vector<int> primes, std::vector<int> special,
                         int scale, std::vector<double> log_scales) {
                 Moduli moduli{std::move(primes), std::move(special), scale,
                               std::move(log_scales)};
                 return Parameters{slots, max_level, bootstrap_level, bootstrap_batch,
                                   std::move(moduli)};
             }),
             py::kw_only(), py::arg("slots"), py::arg("max_level"), py::arg("bootstrap_level"),
             py::arg("bootstrap_batch"), py::arg("primes"), py::arg("special"),
             py::arg("scale"), py::arg("log_scales"));
    py::class_<KeyPlan>(module, "Keys")
        .def(py::init([](std::map<std::size_t, int> rotations, int relinearisation_level,
                         int conjugation_level) {
                 return KeyPlan{std::move(rotations), relinearisation_level, conjugation_level};
             }),
             py::arg("rotations"), py::arg("relinearisation_level"),
             py::arg("conjugation_level"));
    module.def(
        "write_keys",
        [](const Parameters& parameters, const KeyPlan& keys, const std::string& secret,
           const std::string& evaluation, const PythonProgress& report) {
            const py::gil_scoped_release released;
            const Interface interface = interface_of(parameters, keys);
            ckks::write_keys(interface, *ckks::ground_of(interface), secret, evaluation,
                             progress_of(report));
        },
        py::arg("parameters"), py::arg("keys"), py::arg("secret"), py::arg("evaluation"),
        py::arg("report"));
}

void define_engine(py::module_& module) {
    py::class_<Handle>(module, "Ciphertext").def_readonly("level", &Handle::level);
    py::class_<SharedEngine>(module, "Engine")
        .def_static(
            "fresh",
            [](const Parameters& parameters, const KeyPlan& keys, const PythonProgress& report) {
                return engine_of(parameters, keys, [&](const auto& interface, Ground& ground) {
                    return ckks::fresh_role(interface, ground, progress_of(report));
                });
            },
            py::arg("parameters"), py::arg("keys"), py::arg("report"),
            "Client and server in one, with new keys.")
        .def_static(
            "client",
            [](const Parameters& parameters, const std::string& secret) {
                const KeyPlan none{{}, -1, -1};
                return engine_of(parameters, none, [&](const auto& interface, Ground& ground) {
                    return ckks::client_role(interface, ground, secret);
                });
            },
            py::arg("parameters"), py::arg("secret"))
        .def_static(
            "server",
            [](const Parameters& parameters, const KeyPlan& keys, const std::string& evaluation) {
                return engine_of(parameters, keys, [&](const auto& interface, Ground& ground) {
                    return ckks::server_role(interface, ground, evaluation);
                });
            },
            py::arg("parameters"), py::arg("keys"), py::arg("evaluation"))
        .def_property_readonly("identity",
                               [](SharedEngine& shared) {
                                   return shared.with(
                                       [](CkksEngine& engine) { return engine.identity(); });
                               })
        .def("encrypt",
             [](SharedEngine& shared, const py::object& slots, int level) {
                 const Vector vector = numbers_of<double>(slots);
                 return computed(shared,
                                 [&](CkksEngine& engine) { return engine.encrypt(vector, level); });
             })
        .def("decrypt",
             [](SharedEngine& shared, const Handle& x) {
                 const Vector slots = computed(
                     shared, [&](CkksEngine& engine) { return engine.decrypt(x.value); });
                 return py::array_t<double>(static_cast<py::ssize_t>(slots.size()), slots.data());
             })
        .def("save",
             [](SharedEngine& shared, const Handle& x) {
                 return bytes_of(computed(
                     shared, [&](CkksEngine& engine) { return engine.save(x.value); }));
             })
        .def("load",
             [](SharedEngine& shared, const py::bytes& data) {
                 const std::string_view view = data;
                 const Bytes bytes(view.begin(), view.end());
                 return computed(shared,
                                 [&](CkksEngine& engine) { return engine.load(bytes); });
             })
        .def("add", method(&CkksEngine::add))
        .def("sub", method(&CkksEngine::sub))
        .def("negate", method(&CkksEngine::negate))
        .def("add_plain",
             [](SharedEngine& shared, const Handle& x, const py::object& value) {
                 const Plaintext plaintext = plaintext_of(value);
                 return computed(shared, [&](CkksEngine& engine) {
                     return engine.add_plain(x.value, plaintext);
                 });
             })
        .def("square", method(&CkksEngine::square))
        .def("dot",
             [](SharedEngine& shared, const Handles& lefts, const Handles& rights) {
                 return computed(shared, [&](CkksEngine& engine) {
                     return engine.dot(values_of(lefts), values_of(rights));
                 });
             })
        .def("dot_plain",
             [](SharedEngine& shared, const Handles& xs, const std::vector<py::object>& values) {
                 std::vector<Plaintext> plaintexts;
                 for (const py::object& value : values) {
                     plaintexts.push_back(plaintext_of(value));
                 }
                 return computed(shared, [&](CkksEngine& engine) {
                     return engine.dot_plain(values_of(xs), plaintexts);
                 });
             })
        .def("times_i", method(&CkksEngine::times_i))
        .def("conjugate", method(&CkksEngine::conjugate))
        .def("rotate_many",
             [](SharedEngine& shared, const Handle& x, const std::vector<std::size_t>& amounts) {
                 return computed(shared, [&](CkksEngine& engine) {
                     return engine.rotate_many(x.value, amounts);
                 });
             })
        .def("settle",
             [](SharedEngine& shared, const Handle& x) {
                 const py::gil_scoped_release released;
                 shared.with([&](CkksEngine& engine) { engine.settle(x.value); });
             })
        .def("drop_to",
             [](SharedEngine& shared, const Handle& x, int level) {
                 return computed(shared, [&](CkksEngine& engine) {
                     return engine.drop_to(x.value, level);
                 });
             })
        .def(
            "bootstrap_by",
            [](SharedEngine& shared, const std::map<std::string, py::bytes>& arrays) {
                const auto record = std::make_shared<Record>([&](const std::string& name) {
                    const std::string_view view = arrays.at(name);
                    return Bytes(view.begin(), view.end());
                });
                shared.with([&](CkksEngine& engine) { engine.bootstrap_by(record); });
            },
            py::arg("arrays"))
        .def("bootstrap_many", [](SharedEngine& shared, const Handles& xs, std::size_t period) {
            return computed(shared, [&](CkksEngine& engine) {
                return engine.bootstrap_many(values_of(xs), period);
            });
        });
}

}  // namespace

PYBIND11_MODULE(_engine, module) {
    translate_errors(module);
    define_facts(module);
    define_engine(module);
}

}  // namespace atlasc::python
